// A polynomial applied again and again to a singular value between 0 and 1.
({ line, text, alt, set, drag }, { xs, coefficients: [a, b, c] }) => {
  drag("value", x => set("singular_value", Math.min(1, Math.max(0, x))));
  const after = (x, steps) => {
    for (let n = 0; n < steps; n++) x = a * x + b * x ** 3 + c * x ** 5;
    return x;
  };

  return ({ steps, singular_value }) => {
    const end = after(singular_value, steps);
    line("curve", xs, xs.map(x => after(x, steps)));
    line("value", [singular_value], [end]);
    line("up", [singular_value, singular_value], [0, end]);
    const words = `${singular_value.toFixed(2)} becomes ${end.toFixed(2)}`;
    text("words", words);
    alt(`Singular values before and after ${steps} steps of the polynomial: ${words}.`);
  };
}
