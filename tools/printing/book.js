// Puts the pages together as one document for paper. `buildBook(book)` is called once and
// returns what keeps it from being whole; `numberPages(pages)` is called again after each printing, with the page of every anchor.

const make = (tag, name = "", text = "") => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text) element.textContent = text;
  return element;
};
const link = (anchor, text) => {
  const element = make("a", "", text);
  element.href = `#${anchor}`;
  return element;
};
// A place for a page number, as wide with the number as without: filling it in moves
// nothing. `before` is printed with it.
const pageOf = (anchor, before = "→ ") => {
  const element = make("span", "book-page");
  element.append(before);
  const number = make("b", "", "000");
  number.dataset.anchor = anchor;
  element.append(number);
  return element;
};
const inBook = (name, fragment) => (fragment ? `${name}.${fragment}` : name);

async function buildBook(book) {
  const main = document.querySelector("main");
  const taken = await Promise.all(book.pages.map((page) => takePage(page.name)));
  const missing = book.pages.filter((_, i) => !taken[i]).map((page) => page.name);
  if (missing.length) return [`the site has no page ${missing.join(", ")}; build it anew`];
  await addStyles(taken);
  await loadFonts(taken.map((page) => page.article.textContent).join(""));
  const articles = taken.map((page) => {
    const chapter = make("article", "bd-article book-chapter");
    chapter.append(...page.article.childNodes);
    main.append(chapter);
    return chapter;
  });
  await makeStill(main);
  const chapters = book.pages.map((page, i) => nameChapter(articles[i], page, book));
  const back = { hints: new Map(), quizzes: new Map(), solutions: new Map() };
  for (const chapter of chapters) {
    takeQuizzes(chapter, back.quizzes);
    takeFolds(chapter, back, book.allCode);
  }
  const answers = [
    ["hints", "Hints", "What helps with an exercise, in steps. Read the first, try again."],
    ["quizzes", "Answers to the quizzes", "What is right, and why the others are not."],
    ["solutions", "Solutions", "One way to do each exercise; yours may be as right."],
  ].map(([name, title, lead]) => addAnswers(main, name, title, lead, back[name]));
  chapters.forEach((chapter) => addAddresses(chapter, book));
  addContents(book, [...chapters, ...answers]);
  addRunningHeads([...chapters, ...answers], book);
  return deadLinks().map((anchor) => `a link leads nowhere: ${anchor}`);
}

// The site's styles, before the book's own.
async function addStyles(taken) {
  const own = document.querySelector("#book-style");
  const loads = [...new Set(taken.flatMap((page) => page.styles))].map((path) => {
    const sheet = make("link");
    sheet.rel = "stylesheet";
    sheet.href = path;
    own.before(sheet);
    return new Promise((done) => { sheet.onload = sheet.onerror = done; });
  });
  for (const css of new Set(taken.flatMap((page) => page.inline)))
    own.before(make("style", "", css));
  await Promise.all(loads);
}

// Every part of a font that the text needs, before the text is there: each that came
// later would set the whole book anew. What the site leaves to the system's fonts fails.
async function loadFonts(text) {
  const letters = [...new Set(text)].join("");
  const names = new Set([...document.fonts].map(
    (font) => `${font.style} ${font.weight.split(" ")[0]} 16px ${font.family}`));
  for (const name of names) await document.fonts.load(name, letters).catch(() => 0);
  await document.fonts.ready;
}

// One page of the site as a chapter, its anchors made unique in the book -------------

function nameChapter(chapter, page, book) {
  chapter.id = page.name;
  chapter.dataset.label = page.number ? `Chapter ${page.number}` : "";
  for (const element of chapter.querySelectorAll("[id]"))
    if (!element.closest("svg")) element.id = inBook(page.name, element.id);
  for (const element of chapter.querySelectorAll("[aria-labelledby]"))
    element.setAttribute("aria-labelledby",
      inBook(page.name, element.getAttribute("aria-labelledby")));
  const title = chapter.querySelector("h1");
  if (chapter.dataset.label)
    title.before(make("p", "book-label", chapter.dataset.label));
  chapter.title_ = page.title || title.textContent.trim();
  chapter.number_ = page.number;
  chapter.part_ = page.part;
  chapter.sections_ = page.sections;
  title.textContent = page.title || title.textContent;
  chapter.querySelectorAll("a[href]").forEach((a) => readdress(a, page, book));
  return chapter;
}

// Links inside the book lead to its pages; others to the site, or away.
function readdress(a, page, book) {
  const url = new URL(a.getAttribute("href"), `${location.origin}/${page.name}.html`);
  if (url.origin !== location.origin) return;
  const name = url.pathname.slice(1).replace(/\.html$/, "");
  if (!book.names.includes(name)) {
    a.href = new URL(url.pathname.slice(1) + url.hash, book.address).href;
    return;
  }
  const anchor = inBook(name, decodeURIComponent(url.hash.slice(1)));
  a.setAttribute("href", `#${anchor}`);
  const quiet = a.matches(".qp-term, .qp-evidence") || a.closest(".qp-badges, .qp-ladder");
  if (name !== page.name && !quiet) a.after(pageOf(anchor));
}

// What is folded on the site ---------------------------------------------------------

function takeQuizzes(chapter, found) {
  const entries = [];
  for (const quiz of chapter.querySelectorAll(".quiz")) {
    let options = null;
    for (const child of [...quiz.children]) {
      if (child.tagName !== "DETAILS") { options = null; continue; }
      const question = child.previousElementSibling;
      if (!options) {
        options = make("ol", "book-options");
        child.before(options);
        entries.push(newAnswer(chapter, question, entries.length, "quiz"));
      }
      const summary = child.querySelector("summary");
      const option = make("li");
      option.append(...summary.cloneNode(true).childNodes);
      options.append(option);
      summary.remove();
      const why = make("li");
      why.append(...child.childNodes);
      if (/^\s*Right\./.test(why.textContent)) why.className = "book-right";
      entries.at(-1).body.append(why);
      child.remove();
    }
  }
  if (entries.length) found.set(chapter, entries);
}

// A question, and where its answer will stand; each has a link to the other.
function newAnswer(chapter, question, count, kind) {
  const anchor = `${chapter.id}.${kind}-${count + 1}`;
  question.id ||= `${anchor}-asked`;
  const asked = question.cloneNode(true);
  asked.removeAttribute("id");
  const where = make("span", "book-where");
  where.append(" ", link(anchor, "answer"), pageOf(anchor));
  question.append(where);
  return { anchor, back: question.id, asked, body: make("ol", "book-options") };
}

function takeFolds(chapter, back, allCode) {
  for (const fold of [...chapter.querySelectorAll("details")]) {
    const words = fold.querySelector("summary").textContent.trim();
    if (fold.matches(".qp-fold")) openCode(fold, words, chapter, allCode);
    else if (/^Hint/.test(words)) moveAway(fold, words, chapter, back.hints, "hint");
    else if (/^(Solution|After)/.test(words))
      moveAway(fold, words, chapter, back.solutions, "solution");
    else box(fold, words);
  }
}

function box(fold, words) {
  const element = make("div", "book-box");
  fold.querySelector("summary").remove();
  element.append(make("p", "book-box-title", words), ...fold.childNodes);
  fold.replaceWith(element);
}

// Code that draws a figure stays in its notebook; other folded code is opened.
function openCode(fold, words, chapter, allCode) {
  const cell = fold.closest(".cell");
  if (words === "Code" && !allCode) {
    const figure = cell.querySelector("figure, .qp-table, .output");
    if (figure) { fold.remove(); return; }
  }
  fold.querySelector("summary").remove();
  fold.replaceWith(...fold.childNodes);
}

// A hint or a solution goes to the end of the book, with the cells that belong to it.
function moveAway(fold, words, chapter, found, kind) {
  const entries = found.get(chapter) || found.set(chapter, []).get(chapter);
  const place = fold.closest("section");
  let entry = entries.find((e) => e.place === place);
  if (!entry) {
    const heading = place.querySelector(":is(h1, h2, h3, h4)");
    const anchor = `${chapter.id}.${kind}-${entries.length + 1}`;
    entry = { place, anchor, back: place.id, heading: heading.textContent,
      body: make("div") };
    entries.push(entry);
    const where = make("p", "book-where");
    where.append(link(anchor, words.replace(/ \d+$|:.*/g, "")), pageOf(anchor));
    (fold.closest(".cell") || fold).before(where);
  }
  if (kind === "hint" || /:/.test(words))
    entry.body.append(make("p", "book-box-title", words));
  const after = [];
  for (let next = fold.nextElementSibling; next?.matches(".tag_hide-cell");
    next = next.nextElementSibling) after.push(next);
  fold.querySelector("summary").remove();
  entry.body.append(...fold.childNodes, ...after);
  const cell = fold.closest(".cell");
  fold.remove();
  if (cell && !cell.textContent.trim()) cell.remove();
}

function addAnswers(main, name, title, lead, found) {
  const chapter = make("article", "bd-article book-chapter book-answers");
  chapter.id = name;
  chapter.title_ = title;
  chapter.sections_ = true;
  chapter.part_ = "Answers";
  chapter.append(make("h1", "", title), make("p", "", lead));
  for (const [source, entries] of found) {
    const section = make("section");
    section.id = `${name}.${source.id}`;
    const number = source.number_ ? `${source.number_} · ` : "";
    section.append(make("h2", "", number + source.title_.split(":")[0]));
    entries.forEach((entry) => section.append(answer(entry)));
    chapter.append(section);
  }
  main.append(chapter);
  return chapter;
}

function answer(entry) {
  const section = make("section", "book-answer");
  section.id = entry.anchor;
  const way = make(entry.asked ? "span" : "p", "book-where");
  way.append(entry.asked ? " " : "", link(entry.back, "asked"), pageOf(entry.back));
  const head = entry.asked || make("h3", "", entry.heading);
  head.querySelectorAll?.(".book-where").forEach((e) => e.remove());
  section.append(head, entry.body);
  if (entry.asked) head.append(way);
  else head.after(way);
  return section;
}

// Addresses, contents, running heads -------------------------------------------------

// Addresses that the references do not print stand at the end of the chapter.
function addAddresses(chapter, book) {
  if (chapter.id === "references") {
    for (const a of chapter.querySelectorAll(".qp-sources > li a[href^=http]"))
      a.closest("p").append(" ", make("span", "book-address", a.href));
    return;
  }
  const list = make("ol", "book-addresses");
  const known = new Map();
  for (const a of chapter.querySelectorAll("a[href^=http]")) {
    const works = book.works.some((url) => a.href.replace(/#.*/, "") === url);
    if (works || a.href.startsWith(book.repository) || a.textContent === a.href) continue;
    if (!known.has(a.href)) {
      known.set(a.href, known.size + 1);
      const item = make("li");
      item.id = `${chapter.id}.address-${known.size}`;
      item.append(make("span", "book-address", a.href));
      list.append(item);
    }
    const note = make("sup", "book-note");
    const number = known.get(a.href);
    note.append(link(`${chapter.id}.address-${number}`, String(number)));
    a.after(note);
  }
  if (!known.size) return;
  const section = make("section", "book-address-list");
  section.append(make("p", "book-box-title", "Addresses"), list);
  chapter.append(section);
}

function addContents(book, chapters) {
  const list = document.querySelector("#contents-list");
  let part = null;
  for (const chapter of chapters) {
    if (chapter.part_ && chapter.part_ !== part)
      list.append(make("p", "book-part", (part = chapter.part_)));
    const number = chapter.number_ ? `${chapter.number_}` : "";
    list.append(contentsLine(chapter.id, number, chapter.title_, "book-line"));
    if (!chapter.sections_) continue;
    for (const heading of chapter.querySelectorAll("h2")) {
      const section = heading.closest("section");
      const text = heading.textContent.trim();
      list.append(contentsLine(section.id, "", text, "book-line book-section"));
    }
  }
}

function contentsLine(anchor, number, text, name) {
  const line = link(anchor, "");
  line.className = name;
  line.append(make("span", "book-number", number), make("span", "", text));
  line.append(make("i"), pageOf(anchor, ""));
  return line;
}

// Chromium has no running strings, but a page style of its own for each chapter.
function addRunningHeads(chapters, book) {
  const quote = (text) => JSON.stringify(text).replace(/</g, "\\3c ");
  const rules = chapters.map((chapter, i) => {
    chapter.style.page = `chapter${i}`;
    const number = chapter.number_ ? `${chapter.number_} · ` : "";
    const head = number + chapter.title_.split(":")[0];
    return `@page chapter${i} {
      @top-left { content: ${quote(book.title)}; }
      @top-right { content: ${quote(head)}; }
    }`;
  });
  document.head.append(make("style", "", rules.join("\n")));
}

function deadLinks() {
  return [...document.querySelectorAll('a[href^="#"]')]
    .map((a) => decodeURIComponent(a.getAttribute("href").slice(1)))
    .filter((anchor) => !document.getElementById(anchor));
}

function numberPages(pages) {
  const missing = [];
  for (const slot of document.querySelectorAll("[data-anchor]")) {
    const number = pages[slot.dataset.anchor];
    if (number) slot.textContent = number;
    else missing.push(slot.dataset.anchor);
  }
  return missing;
}
