// One neuron of an MLP: what it makes of its input, and the point that is dragged.
({ line, text, visible, alt, set, drag }, { z, bends, ungated }) => {
  drag("point", x => set("z", Math.min(z[z.length - 1], Math.max(z[0], x))));
  return ({ kind, z: at, slope, offset }) => {
    const bent = bends[kind], gated = !ungated.includes(kind);
    const ups = z.map(v => slope * v + offset);
    const out = bent.map((v, i) => gated ? v * ups[i] : v);
    const i = Math.round((at - z[0]) / (z[1] - z[0]));
    line("product", z, out);
    ["gate", "gate-point", "up", "up-point"].forEach(name => visible(name, gated));
    line("gate", z, bent);
    line("up", z, ups);
    line("gate-point", [z[i]], [bent[i]]);
    line("up-point", [z[i]], [ups[i]]);
    line("stem", [z[i], z[i]], [0, out[i]]);
    line("point", [z[i]], [out[i]]);
    const [a, b, c] = [bent[i], ups[i], out[i]].map(v => v.toFixed(2));
    const words = gated ? `gate ${a} · up ${b} = ${c}` : `${kind}(z) = ${c}`;
    text("words", words);
    alt(`A ${kind} neuron over its input from -3 to 3. At z = ${z[i].toFixed(2)}: ${words}.`);
  };
}
