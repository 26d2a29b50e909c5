// One distribution, cut by temperature, top-k and top-p, in this order.
({ line, polygon, rect, text, move, alt, set, drag }, data) => {
  let reached = 1;
  drag("k-handle", x => set("top_k", Math.max(1, x >= data.bars + 0.4 ? 65 : Math.round(x - 0.5))));
  drag("p-handle", x => set("top_p", Math.min(1, Math.max(0, x / reached))), 1);

  const softmax = (z, t) => {
    const e = z.map(v => Math.exp((v - z[0]) / t)), sum = e.reduce((a, b) => a + b);
    return e.map(v => v / sum);
  };
  const bars = (name, heights) => polygon(name,
    heights.flatMap((_, i) => [i + 0.6, i + 0.6, i + 1.4, i + 1.4]),
    heights.flatMap(h => [0, h, h, 0]));
  const some = p => Array.from({ length: data.bars }, (_, i) => p[i] ?? 0);

  return ({ after, temperature, top_k, top_p }) => {
    const { z, names } = data.places[after], own = softmax(z, 1);
    const greedy = temperature < 1e-6;
    const p = greedy ? z.map((_, i) => +(i === 0)) : softmax(z, temperature);
    const k = greedy ? 1 : Math.min(top_k, z.length);
    reached = p.slice(0, k).reduce((a, b) => a + b);
    let kept = 0, mass = 0;
    while (kept < k && (kept === 0 || top_p === 1 || mass / reached < top_p)) mass += p[kept++];

    bars("drawn", some(p.map((v, i) => i < kept ? v / mass : 0)));
    bars("kept", some(p.map((v, i) => i < kept ? v : 0)));
    bars("cut", some(p.map((v, i) => i < kept ? 0 : v)));
    const at = some(own).map((_, i) => i + 1);
    line("own", at.flatMap(i => [i - 0.4, i + 0.4, i + 0.4]),
      some(own).flatMap(v => [v, v, NaN]));
    at.forEach(i => text(`name-${i}`, names[i - 1] ?? ""));
    text("best", (p[0] / mass).toFixed(2));
    move("best", 1.5, Math.min(p[0] / mass, 0.93));
    const edge = Math.min(top_k, data.bars) + 0.5;
    line("k-line", [edge, edge], [0, 1]);
    line("k-handle", [edge], [1]);

    rect("mass", 0, 0, mass, 1, 1);
    let sum = 0;
    const ends = some(p).map(v => sum += v);
    line("ends", ends.flatMap(x => [x, x, x]), ends.flatMap(() => [0, 1, NaN]), 1);
    const place = top_p * reached;
    line("p-line", [place, place], [0, 1], 1);
    line("p-handle", [place], [1], 1);
    const percent = `${(100 * mass).toFixed(1)}%`;
    text("words", `kept: ${kept} of ${z.length}, ${percent} of the probability`);
    alt(`After ${after}, at temperature ${temperature.toFixed(2)}, top-k ${top_k} and top-p `
      + `${top_p.toFixed(2)}: the draw is from ${kept} of ${z.length} candidates, with `
      + `${percent} of the probability; the best has ${(p[0] / mass).toFixed(2)}.`);
  };
}
