// Paths through residual layers by their length: how many there are, what they carry.
({ line, polygon, rect, text, move, alt, set, drag, parts }, data) => {
  let layers;
  drag("area", x => set("length", Math.floor(x * (layers + 1))), 1);
  parts.area.style.touchAction = "pan-y";

  const small = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const count = v => {
    if (v < 1e6) return String(v).replace(/\B(?=(\d{3})+$)/g, ",");
    const [digits, power] = v.toExponential(1).split("e+");
    return `${digits} · 10${[...power].map(c => small[c]).join("")}`;
  };
  const percent = share => {
    const p = 100 * share;
    return p < 0.1 ? "under 0.1%" : `${p.toFixed(p < 10 ? 1 : 0)}%`;
  };
  const binomials = n => {
    const found = [1];
    for (let k = 0; k < n; k++) found.push(Math.round(found[k] * (n - k) / (k + 1)));
    return found;
  };

  return values => {
    layers = values.layers;
    const { shares, grown } = data[values.writes][layers / 2 - 1];
    const k = Math.min(values.length, layers), n = layers + 1;
    const number = binomials(layers), all = 2 ** layers;
    const peak = Math.max(...shares, ...number.map(v => v / all));
    const tops = shares.map(share => share / peak);

    // A path of this length: the layers it passes through are spread evenly.
    const at = Array.from({ length: layers }, (_, i) => (i + 0.5) / layers);
    const passed = i => Math.floor((2 * i * k + layers) / (2 * layers));
    const through = at.map((_, i) => passed(i + 1) - passed(i));
    line("layers", at, at.map(() => 1));
    line("path", [0, ...at, 1], [0, ...through, 0]);

    const edges = tops.flatMap((_, i) => [i / n, (i + 1) / n]);
    polygon("gradient", [0, ...edges, 1], [0, ...tops.flatMap(v => [v, v]), 0], 1);
    line("paths", number.map((_, i) => (i + 0.5) / n), number.map(v => v / all / peak), 1);
    rect("cursor", k / n, 0, (k + 1) / n, tops[k], 1);
    text("length", `a path through ${k} of ${layers} layers`);
    text("number", `${count(number[k])} of ${count(all)} paths`);
    text("share", `${percent(shares[k])} of the gradient`);
    text("grown", `gradient at the bottom: ${count(grown)} × that at the top`);
    text("peak", percent(peak));
    [0, layers / 2, layers].forEach((at, i) => {
      text(`tick-${i}`, String(at));
      move(`tick-${i}`, (at + 0.5) / n, -0.085, 1);
    });
    alt(`${layers} layers, writes ${values.writes}: of all paths ${count(number[k])} of ` +
      `${count(all)} have the length ${k}, and carry ${percent(shares[k])} of the ` +
      `gradient. At the bottom it is ${count(grown)} times that at the top.`);
  };
}
