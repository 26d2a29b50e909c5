// Makes everything fit the width of the paper: code is wrapped and the place marked,
// tables get smaller letters, drawings are not taller than a page.

const WRAP = "↩";

function columnsOf(pre) {
  const probe = document.createElement("span");
  probe.textContent = "0".repeat(100);
  probe.style.cssText = "position:absolute;visibility:hidden;white-space:pre";
  pre.append(probe);
  const letter = probe.getBoundingClientRect().width / 100;
  probe.remove();
  const style = getComputedStyle(pre);
  const room = pre.clientWidth - parseFloat(style.paddingLeft) -
    parseFloat(style.paddingRight);
  return Math.floor(room / letter + 0.01);
}

// How many columns a character takes: Korean and its neighbours take two.
const wide = (letter) => /[ᄀ-ᇿ⺀-꓏가-힣豈-﫿︰-﹏＀-｠]|\p{Extended_Pictographic}/u
  .test(letter);

// Break each line that is too long, after a space if there is one not far back.
function wrapCode(pre) {
  if (pre.scrollWidth <= pre.clientWidth + 1) return 0;
  const limit = columnsOf(pre) - 2;
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  let column = 0;
  let marks = 0;
  for (const node of nodes) {
    const pieces = document.createDocumentFragment();
    let run = "";
    for (const letter of node.data) {
      const width = wide(letter) ? 2 : 1;
      if (letter === "\n") column = 0;
      else if (column + width > limit) {
        pieces.append(run, wrapMark());
        [run, column, marks] = ["", 2, marks + 1];
      }
      run += letter;
      if (letter !== "\n") column += width;
    }
    pieces.append(run);
    node.replaceWith(pieces);
  }
  return marks;
}

function wrapMark() {
  const mark = document.createElement("span");
  mark.className = "book-wrap";
  mark.textContent = `${WRAP}\n  `;
  return mark;
}

function fitTable(table, width) {
  for (let size = 9.5; size >= 6 && table.scrollWidth > width + 1; size -= 0.5)
    table.style.fontSize = `${size}px`;
  if (table.scrollWidth > width + 1) table.style.overflowWrap = "anywhere";
}

function fitFormula(formula, width) {
  const wide = formula.scrollWidth;
  if (wide > width + 1) formula.style.fontSize = `${Math.floor((100 * width) / wide)}%`;
}

// Short code stays on one page; long code may go over, some lines on each side.
function keepTogether(pre) {
  if (pre.textContent.split("\n").length <= 24) pre.style.breakInside = "avoid";
}

function fitBook() {
  const wraps = [...document.querySelectorAll("main pre")].map((pre) => {
    keepTogether(pre);
    return wrapCode(pre);
  });
  for (const table of document.querySelectorAll("main table")) {
    fitTable(table, table.closest("article").clientWidth);
    if (table.rows.length <= 16) table.style.breakInside = "avoid";
  }
  for (const formula of document.querySelectorAll("main div.math"))
    fitFormula(formula, formula.closest("article").clientWidth);
  return { wraps: wraps.reduce((a, b) => a + b, 0), cut: tooWide() };
}

// What is still wider than the paper; nothing should be.
function tooWide() {
  const edge = document.querySelector("main").getBoundingClientRect().right + 1;
  return [...document.querySelectorAll("main :is(p, pre, td, th, svg, li)")]
    .filter((e) => e.getBoundingClientRect().right > edge)
    .map((e) => `${e.closest("article")?.id}: ${e.tagName} ${e.textContent.slice(0, 50)}`);
}
