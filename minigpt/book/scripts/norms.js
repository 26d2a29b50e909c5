// A token of a few numbers, each of which can be dragged, and what norms make of it.
({ line, rect, text, alt, set, drag }, { norms, eps, size }) => {
  const mean = xs => xs.reduce((sum, x) => sum + x, 0) / xs.length;
  const rms = xs => Math.sqrt(mean(xs.map(x => x * x)));
  const centred = xs => { const m = mean(xs); return xs.map(x => x - m); };
  const scaled = xs => xs.map(x => x / Math.sqrt(mean(xs.map(v => v * v)) + eps));
  const apply = { LayerNorm: xs => scaled(centred(xs)), RMSNorm: scaled };
  const measure = { std: xs => rms(centred(xs)), rms }[size];

  const word = v => {
    const s = v.toFixed(Math.abs(v) < 0.01 ? 4 : 2);
    return +s === 0 ? "0" : s.replace("-", "−");
  };
  const sizes = xs => `mean ${word(mean(xs))}, ${size} ${word(measure(xs))}`;

  let own, times;
  const raw = y => y / times;
  [1, 2, 3, 4].forEach((n, i) => {
    drag(`dot-${n}`, (_, y) => set(`x${n}`, raw(y) - own.plus));
    drag(`bar-0-${n}`, (_, y) => set(`x${n}`, raw(y) - own.plus));
  });
  drag("mean-end", (_, y) => set("plus", raw(y) - mean(own.xs)));

  return values => {
    times = values.times;
    own = { plus: values.plus, xs: [1, 2, 3, 4].map(n => values[`x${n}`]) };
    const x = own.xs.map(v => times * (v + values.plus));
    const shown = [x, ...norms.map(name => apply[name](x))];
    shown.forEach((ys, n) => {
      ys.forEach((y, i) => {
        rect(`bar-${n}-${i + 1}`, i - 0.3, 0, i + 0.3, y, n);
        text(`value-${n}-${i + 1}`, word(y));
      });
      text(`sizes-${n}`, sizes(ys));
    });
    x.forEach((y, i) => line(`dot-${i + 1}`, [i], [y]));
    line("mean", [-0.5, 3.5], [mean(x), mean(x)]);
    line("mean-end", [3.5], [mean(x)]);
    const told = ["The token", ...norms].map((name, n) =>
      `${name}: ${shown[n].map(word).join(", ")}; ${sizes(shown[n])}.`);
    alt(told.join(" "));
  };
}
