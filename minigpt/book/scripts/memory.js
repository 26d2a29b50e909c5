// A question in the plane: which keys it matches, and which value the sum is nearest to.
({ line, polygon, text, rect, alt, set, drag }, { keys, values, circle }) => {
  drag("question", (x, y) => {
    const turn = Math.atan2(y, x) * 180 / Math.PI;
    set("angle", Math.round((turn + 360) % 360));
  });
  const dot = ([a, b], [c, d]) => a * c + b * d;
  const largest = numbers => numbers.indexOf(Math.max(...numbers));
  const ask = (asked, bend, threshold) => {
    const match = keys.map(key => dot(asked, key));
    const fired = match.map(z => bend === "relu" ? Math.max(0, z - threshold) : z - threshold);
    const sum = [0, 1].map(n => fired.reduce((s, a, i) => s + a * values[i][n], 0));
    const near = values.map(value => dot(sum, value));
    return { fired, sum, near, closest: largest(match), nearest: largest(near) };
  };

  return ({ bend, threshold, angle }) => {
    const turn = angle * Math.PI / 180, asked = [Math.cos(turn), Math.sin(turn)];
    const { fired, sum, near, closest, nearest } = ask(asked, bend, threshold);
    const right = keys.filter((key, i) => ask(key, bend, threshold).nearest === i).length;
    line("arm", [0, asked[0]], [0, asked[1]]);
    line("question", [asked[0]], [asked[1]]);
    line("sum", [0, sum[0]], [0, sum[1]], 1);
    line("found", [values[nearest][0]], [values[nearest][1]], 1);
    fired.forEach((a, i) => {
      const r = 0.01 + 0.5 * Math.sqrt(Math.abs(a)), [x, y] = keys[i];
      polygon(`halo-${i}`, circle.map(([cos]) => x + r * cos), circle.map(([, sin]) => y + r * sin));
      rect(`unit-${i}`, i - 0.4, 0, i + 0.4, a, 2);
      rect(`near-${i}`, i - 0.4, 0, i + 0.4, near[i], 3);
    });
    const verdict = `${nearest}, ${nearest === closest ? "right" : "wrong"}`;
    text("verdict", `back: ${verdict}`);
    text("count", `of all six: ${right} right`);
    alt(`A question at ${angle} degrees, nearest to key ${closest}. The value that comes back is `
      + `number ${verdict}. Each key asked exactly: ${right} of 6 right.`);
  };
}
