// One neighbour in a batch is dragged: which output of the token beside it moves?
({ line, rect, text, alt, set, drag }, { company, start, eps }) => {
  const mean = xs => xs.reduce((sum, x) => sum + x, 0) / xs.length;
  const normalise = xs => {
    const m = mean(xs), variance = mean(xs.map(x => (x - m) ** 2));
    return xs.map(x => (x - m) / Math.sqrt(variance + eps));
  };
  // Along the token, and along the place in all tokens.
  const byToken = () => normalise(company[0]);
  const byBatch = neighbour => neighbour.map((value, i) =>
    normalise([...company.map(token => token[i]), value])[0]);

  const outputs = neighbour => [byToken(), byBatch(neighbour)];
  const before = outputs(start);
  start.forEach((_, i) => drag(`dot-${i + 1}`, (_, y) => set(`n${i + 1}`, y)));

  return values => {
    const neighbour = start.map((_, i) => values[`n${i + 1}`]);
    const moved = outputs(neighbour).map((ys, n) => {
      ys.forEach((y, i) => rect(`bar-${n}-${i + 1}`, i - 0.3, 0, i + 0.3, y, n + 1));
      const far = Math.max(...ys.map((y, i) => Math.abs(y - before[n][i])));
      const words = `moved by ${far.toFixed(2)}`;
      text(`moved-${n}`, words);
      return words;
    });
    neighbour.forEach((y, i) => line(`dot-${i + 1}`, [i + 0.25], [y]));
    alt(`The neighbour's numbers are ${neighbour.map(v => v.toFixed(1)).join(", ")}. ` +
      `The token's LayerNorm output has ${moved[0]}, its BatchNorm output ${moved[1]}.`);
  };
}
