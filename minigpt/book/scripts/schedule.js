// The learning rate of each step: a straight rise, then a fall.
({ line, text, move, alt, set, drag }, { steps, lr, at }) => {
  const shares = {
    linear: done => done,
    cosine: done => 0.5 * (1 - Math.cos(Math.PI * done)),
  };
  drag("top", x => set("warmup", Math.min(2000, Math.max(0, Math.round(x / 10) * 10))));
  drag("end", (x, y) => set("floor", Math.min(1, Math.max(0, y / (1000 * lr)))));

  return ({ decay, warmup, floor }) => {
    const rate = step => {
      if (step < warmup) return lr * (step + 1) / (warmup + 1);
      if (step >= steps) return floor * lr;
      return lr - lr * (1 - floor) * shares[decay]((step - warmup) / (steps - warmup));
    };
    line("rate", at, at.map(step => 1000 * rate(step)));
    line("top", [warmup], [1000 * lr]);
    line("end", [steps], [1000 * floor * lr]);
    let mean = 0;
    for (let step = 0; step < steps; step++) mean += rate(step) / steps / lr;
    text("mean", `mean: ${(100 * mean).toFixed(1)}% of the top`);
    alt(`Learning rate over ${steps} steps: a rise of ${warmup} steps, then a ${decay} fall to `
      + `${(100 * floor).toFixed(0)}% of its height. Its mean is ${(100 * mean).toFixed(1)}% of it.`);
  };
}
