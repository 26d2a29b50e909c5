// One query in the plane: its scores with the keys, the mask, and the softmax.
({ line, polygon, rect, text, move, alt, set, drag }, { keys, circle, limits }) => {
  const within = (v, n) => Math.min(limits[n], Math.max(-limits[n], v));
  drag("tip", (x, y) => { set("query_x", within(x, 0)); set("query_y", within(y, 1)); });

  return ({ token, query_x, query_y }) => {
    line("query", [0, query_x], [0, query_y]);
    line("tip", [query_x], [query_y]);
    const scores = keys.map(([x, y]) => (query_x * x + query_y * y) / Math.SQRT2);
    const top = Math.max(...scores.slice(0, token + 1));
    const e = scores.map((s, i) => i <= token ? Math.exp(s - top) : 0);
    const sum = e.reduce((a, b) => a + b);
    keys.forEach(([x, y], i) => {
      const weight = e[i] / sum, r = 0.01 + Math.sqrt(weight), seen = i <= token, c = seen ? 0 : 0.2;
      polygon(`halo-${i}`, circle.map(([cos]) => x + r * cos), circle.map(([, sin]) => y + r * sin));
      line(`hidden-${i}`, [x - c, x + c, x, x - c, x + c], [y - c, y + c, NaN, y + c, y - c]);
      rect(`score-${i}`, i - 0.4, 0, i + 0.4, seen ? scores[i] : 0, 1);
      text(`says-${i}`, seen ? scores[i].toFixed(1) : "−∞");
      rect(`weight-${i}`, i - 0.4, 0, i + 0.4, weight, 2);
      text(`is-${i}`, weight.toFixed(2));
      move(`is-${i}`, i, weight + 0.06, 2);
    });
    const best = e.indexOf(Math.max(...e));
    alt(`Token ${token} asks with the query (${query_x.toFixed(2)}, ${query_y.toFixed(2)}). `
      + `It looks most at token ${best}, with weight ${(e[best] / sum).toFixed(2)}.`);
  };
}
