// Where the parameters of a GPT are: learned positions, LayerNorm, biases, a tied head.
({ rect, text, move, alt }, { context, parts }) => ({ d_model, n_layers, vocab_size }) => {
  const D = d_model, N = n_layers;
  const counts = [
    vocab_size * D,
    context * D,
    N * (4 * D * D + 4 * D),
    N * (8 * D * D + 5 * D),
    (2 * N + 1) * 2 * D,
  ];
  const total = counts.reduce((a, b) => a + b);
  const millions = n => (n / 1e6).toFixed(2);
  counts.forEach((n, i) => {
    const share = 100 * n / total;
    rect(`bar-${i}`, 0, i - 0.31, share, i + 0.31);
    text(`says-${i}`, `${share.toFixed(1)}%, ${millions(n)} M`);
    move(`says-${i}`, share + 1.5, i + 0.14);
  });
  text("total", `${millions(total)} million parameters`);
  const largest = counts.indexOf(Math.max(...counts));
  alt(`Of ${millions(total)} million parameters most are in: ${parts[largest]}.`);
}
