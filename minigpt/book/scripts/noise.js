// Dropout of sixteen values: the mean of some draws, and how far the formula lets it stray.
({ line, polygon, text, visible, alt }, { x, coins }) => ({ p, draws, mode }) => {
  const on = mode === "train" ? Math.round(100 * p) : 0, keep = 1 - on / 100;
  const mean = x.map((v, i) => {
    const kept = coins.slice(0, draws).filter(row => row[i] >= on).length;
    return v * kept / draws / keep;
  });
  const spread = x.map(v => v * Math.sqrt(on / 100 / keep / draws));
  const root = values => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / x.length);
  const units = x.map((_, i) => i);
  polygon("band", [...units, ...units.toReversed()],
    [...x.map((v, i) => v - spread[i]), ...x.map((v, i) => v + spread[i]).toReversed()]);
  visible("band", on > 0);
  line("dots", units, mean);
  const off = root(mean.map((v, i) => v - x[i])).toFixed(2), formula = root(spread).toFixed(2);
  const loud = (1 / Math.sqrt(keep)).toFixed(2);
  text("noise", `off by ${off}, formula ${formula}`);
  text("loud", `one pass: ${loud} times as loud`);
  alt(`Sixteen values and the mean of ${draws} draws of dropout, p = ${p.toFixed(2)}, in `
    + `${mode}. The mean is off by ${off}, the formula says ${formula}; one pass is ${loud} `
    + "times as loud as the values.");
}
