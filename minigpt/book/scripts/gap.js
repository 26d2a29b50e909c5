// The gap between seen and unseen text, at a moment of a recorded run that is dragged.
({ line, polygon, text, alt, set, drag }, { reads, runs }) => {
  const first = reads[0], last = reads[reads.length - 1];
  drag("moment", x => set("times_read", Math.min(last, Math.max(first, x))));
  return ({ p, times_read }) => {
    const { seen, unseen } = runs[p.toFixed(1)];
    const at = Math.round(times_read / first) - 1;
    polygon("gap", [...reads, ...reads.toReversed()], [...seen, ...unseen.toReversed()]);
    line("seen", reads, seen);
    line("unseen", reads, unseen);
    line("best", [reads[unseen.indexOf(Math.min(...unseen))]], [Math.min(...unseen)]);
    line("moment", [reads[at], reads[at]], [seen[at], unseen[at]]);
    const [a, b] = [seen[at].toFixed(2), unseen[at].toFixed(2)];
    const gap = (unseen[at] - seen[at]).toFixed(2);
    text("words", `unseen ${b} − seen ${a}`);
    text("size", `gap ${gap}`);
    alt(`Losses on seen and unseen text against reads, at p = ${p}. After `
      + `${reads[at].toFixed(1)} reads unseen text has ${b}, seen text ${a}: a gap of ${gap}.`);
  };
}
