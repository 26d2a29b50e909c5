// Signal, gradient and similarity, layer by layer, of a stack that grows.
({ line, text, visible, alt, set, drag }, data) => {
  const grow = x => set("layers", 2 * Math.min(32, Math.max(1, Math.round(x / 2))));
  ["signal", "gradient", "similarity"].forEach((name, n) => drag(`${name}-end`, grow, n));

  const size = log => {
    if (log > -2 && log < 3) return (10 ** log).toFixed(log < 0 ? 2 : 0);
    const digits = [...String(Math.round(log))];
    return "10" + digits.map(c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
  };
  return ({ layers, init, each_layer: each }) => {
    const { signal, gradients, similarity } = data.runs[init][each];
    const at = Array.from({ length: layers }, (_, i) => i + 1);
    const gradient = gradients[layers / 2 - 1];
    const draw = (name, ys, n) => {
      line(name, at, ys, n);
      line(`${name}-end`, [layers], [ys.at(-1)], n);
    };
    draw("signal", at.map(n => 10 ** signal[n - 1]), 0);
    draw("gradient", gradient.map(v => 10 ** v), 1);
    draw("similarity", similarity.slice(0, layers), 2);
    line("first", [1], [10 ** gradient[0]], 1);
    visible("predicted", each === "f(x)");
    line("predicted", [1, layers], [data.factor[init] ** ((layers - 1) / 2), 1], 1);
    text("signal-word", `layer ${layers}: ${size(signal[layers - 1])}`);
    text("gradient-word", `layer 1: ${size(gradient[0])} of the last`);
    alt(`${layers} layers, ${init} initialisation, each layer ${each}: the last layer's ` +
      `signal is ${size(signal[layers - 1])}, the gradient at layer 1 is ` +
      `${size(gradient[0])} of that at the last, and the last outputs of different ` +
      `inputs have a mean cosine of ${similarity[layers - 1].toFixed(2)}.`);
  };
}
