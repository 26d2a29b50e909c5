// Two sentences in tokens, and how many there are, for any size of the vocabulary.
({ line, text, alt, set, drag }, { sizes, gone }) => {
  ["at-0", "at-1", "now"].forEach(name => drag(name, x => {
    const far = sizes.map(size => Math.abs(Math.log(size / x)));
    set("vocabulary", sizes[far.indexOf(Math.min(...far))]);
  }, 1));

  return ({ vocabulary }) => {
    const at = sizes.indexOf(vocabulary);
    const counts = gone.map((edges, n) => {
      const stay = edges.flatMap(([place, until], i) => i > 0 && at < until ? [place] : []);
      const low = 3 - 3 * n;
      line(`cuts-${n}`, stay.flatMap(x => [x, x, x]), stay.flatMap(() => [low, low + 1, NaN]));
      const count = edges.filter(([, until]) => at < until).length;
      text(`count-${n}`, `${count} tokens`);
      line(`at-${n}`, [vocabulary], [count], 1);
      return count;
    });
    line("now", [vocabulary, vocabulary], [0, 36], 1);
    alt(`Two sentences cut into tokens of a vocabulary of ${vocabulary}: the English one into `
      + `${counts[0]}, the Korean one into ${counts[1]}.`);
  };
}
