// The map of stability: a ring around the chosen cell, and the runs behind it.
({ line, text, visible, alt }, data) => {
  const show = (name, on, draw) => { visible(name, on); if (on) draw(); };
  return ({ order, blocks, learning_rate, warm_up }) => {
    const cell = data.cells[[order, blocks, learning_rate, warm_up].join()];
    const column = 3 * data.rates.indexOf(learning_rate) + data.depths.indexOf(blocks);
    const left = data.places[column];
    const row = -data.orders.indexOf(order);
    const xs = [0.02, 0.98, 0.98, 0.02, 0.02].map(x => left + x);
    const ys = [-0.47, -0.47, 0.47, 0.47, -0.47].map(y => row + y);
    [0, 100].forEach((steps, n) =>
      show(`ring-${n}`, steps === warm_up, () => line(`ring-${n}`, xs, ys, n)));
    cell.runs.forEach((losses, seed) => {
      const steps = losses.map((_, i) => 10 * i + 5);
      ["learns", "fails"].forEach((kind, i) => {
        const name = `${kind}-${seed}`;
        show(name, cell.fails[seed] === i, () => line(name, steps, losses, 2));
      });
    });
    text("verdict", cell.says);
    alt(`Two maps of validation losses. Chosen: ${order}, ${blocks} blocks, learning `
      + `rate ${learning_rate}, a warm-up of ${warm_up} steps. ${cell.says}.`);
  };
}
