// The size of the stream, and of each update, as residual blocks are added.
({ line, text, alt, set, drag }, data) => {
  drag("stream-end", x => set("blocks", Math.round(x)));
  const small = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const count = v => {
    if (v < 1000) return v.toFixed(v < 10 ? 1 : 0);
    const [digits, power] = v.toExponential(1).split("e+");
    return `${digits} · 10${[...power].map(c => small[c]).join("")}`;
  };
  return ({ blocks, writes }) => {
    const { stream, attention, mlp } = data[writes][blocks - 1];
    const at = stream.map((_, i) => i);
    line("stream", at, stream);
    line("attention", at.slice(1).map(i => i - 0.5), attention);
    line("mlp", at.slice(1), mlp);
    line("stream-end", [blocks], [stream[blocks]]);
    const grown = count(stream[blocks] / stream[0]);
    text("grown", `after block ${blocks}: ${grown} × the embedding’s size`);
    alt(`${blocks} residual blocks, writes ${writes}: the stream ends at ${grown} times ` +
      "the size of the embedding.");
  };
}
