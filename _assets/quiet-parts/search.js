// The search page: MiniSearch finds sections in search.json, and each is shown with the
// line in which the words stand. `_ext/quiet_parts/search.py` says what a record holds.

import MiniSearch from "../vendor/minisearch/dist/es/index.js";

const WORD = /[\p{L}\p{N}_]+(?:[-.'’][\p{L}\p{N}_]+)*/gu;
const PARTICLE =
  /(?:에서|에게|으로|부터|까지|처럼|보다|을|를|이|가|은|는|의|에|로|와|과|도)$/;
// Names that the field has for what the book calls otherwise.
const OTHER_NAMES = {
  prenorm: "preln", prelayernorm: "preln", postnorm: "postln", postlayernorm: "postln",
  nucleus: "topp", kvcache: "cache", skip: "residual", normalization: "normalisation",
  feedforward: "mlp", ffn: "mlp", ppl: "perplexity", optimizer: "optimiser",
};

// Words ---------------------------------------------------------------------------------

// How a word is compared: without case, hyphens, plural, or a Korean particle.
function fold(word) {
  let term = word.normalize("NFC").toLowerCase().replace(/[-_.'’]/g, "");
  if (/[가-힣]{3,}$/.test(term)) term = term.replace(PARTICLE, "");
  if (/^[a-z]{4,}s$/.test(term) && !/(ss|us|is)$/.test(term)) term = term.slice(0, -1);
  return OTHER_NAMES[term] ?? term;
}

// What a word of the text is found by: itself, and the parts of a name.
function termsOf(word) {
  const parts = word
    .replace(/(\p{Ll}|\d)(?=\p{Lu})/gu, "$1 ")
    .replace(/(\p{Lu})(?=\p{Lu}\p{Ll})/gu, "$1 ")
    .split(/[\s\-_.'’]+/)
    .filter(Boolean);
  return [...new Set([word, ...(parts.length > 1 ? parts : [])].map(fold))];
}

const wordsOf = (text) => text.match(WORD) ?? [];
const indexTerms = (text) => wordsOf(text).flatMap(termsOf);
const queryTerms = (text) => [...new Set(wordsOf(text).map(fold))].filter(Boolean);

// Finding -------------------------------------------------------------------------------

const FIELDS = ["names", "terms", "title", "heading", "text", "code"];
const BOOST = { names: 9, terms: 8, title: 6, heading: 4, text: 1, code: 0.5 };

async function load(address) {
  const [pages, rows] = await (await fetch(address)).json();
  const records = rows.map(([page, anchor, heading, text, code, names, terms], id) => {
    const [url, title, number] = pages[page];
    return { id, page, url, title, number, anchor, heading, text, code, names, terms };
  });
  const index = new MiniSearch({
    fields: FIELDS, tokenize: indexTerms, processTerm: (term) => term,
  });
  index.addAll(records);
  return { index, records };
}

// Sections with all words; else with words spelled nearly so; else with some of them.
function find({ index, records }, query) {
  const common = {
    boost: BOOST,
    tokenize: queryTerms,
    prefix: (term) => term.length > 2,
    weights: { prefix: 0.5, fuzzy: 0.3 },
    boostDocument: (id) => (records[id].number ? 1 : 0.6), // chapters first
  };
  const ways = [
    ["", { combineWith: "AND" }],
    ["spelled alike", { combineWith: "AND", fuzzy: (t) => (t.length > 4 ? 0.25 : false) }],
    ["with some of the words", { combineWith: "OR" }],
  ];
  for (const [how, options] of ways) {
    const hits = index.search(query, { ...common, ...options });
    if (hits.length) return { how, hits };
  }
  return { how: "", hits: [] };
}

// The hits by page; a page stands where its best section does, and shows three.
function group(hits, records) {
  const pages = new Map();
  for (const hit of hits) {
    const record = records[hit.id];
    if (!pages.has(record.page)) pages.set(record.page, []);
    pages.get(record.page).push({ record, terms: new Set(hit.terms) });
  }
  return [...pages.values()];
}

// Showing -------------------------------------------------------------------------------

function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

// The text as words and what is between them, each word with whether it was sought.
function pieces(text, terms) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(WORD)) {
    found.push({ text: text.slice(end, match.index), sought: false });
    const sought = termsOf(match[0]).some((term) => terms.has(term));
    found.push({ text: match[0], sought, word: match[0] });
    end = match.index + match[0].length;
  }
  return [...found, { text: text.slice(end), sought: false }];
}

// From a text the stretch with the most different words that were sought.
function excerpt(text, terms, length = 64) {
  const all = pieces(text, terms);
  let best = { from: 0, count: 0 };
  all.forEach((piece, at) => {
    if (!piece.sought) return;
    const count = kinds(all.slice(at, at + length / 2).map((p) => p.text).join(""), terms);
    if (count > best.count) best = { from: at, count };
  });
  let from = Math.max(0, best.from - 20);
  for (let at = best.from; at > from; at--) // at the beginning of the sentence, if near
    if (/[.?!:]\s$/.test(all[at].text)) from = at + 1;
  const shown = all.slice(from, from + length);
  const start = from > 1 && !/[.?!:]\s$/.test(all[from - 1]?.text ?? "") ? "… " : "";
  const rest = from + length < all.length ? " …" : "";
  return [start, ...shown.map((p) => (p.sought ? element("mark", "", p.text) : p.text)), rest];
}

const kinds = (text, terms) =>
  new Set(wordsOf(text).flatMap(termsOf).filter((term) => terms.has(term))).size;

// Where most of the words stand: in the prose, a line of code, or the chapter's terms.
function snippet({ record, terms }) {
  const { text, code, terms: taught } = record;
  const lines = code.split("\n").map((line) => line.trim());
  const best = (all) => all.reduce((a, b) => (kinds(b, terms) > kinds(a, terms) ? b : a));
  const line = best(lines);
  const named = taught.split(" · ").filter((t) => kinds(t, terms)).join(" · ");
  const found = best([text, line, named]);
  if (!kinds(found, terms)) {
    const opening = text.split(" ").slice(0, 28).join(" ");
    return element("p", "qp-found", opening, text.length > opening.length ? " …" : "");
  }
  const words = excerpt(found, terms);
  if (found === text) return element("p", "qp-found", ...words);
  if (found === line) return element("p", "qp-found", element("code", "", ...words));
  return element("p", "qp-found", "Here: ", ...words);
}

function link(href, words) {
  const anchor = element("a", "", words);
  anchor.href = href;
  return anchor;
}

function showPage(sections) {
  const [{ record }] = sections;
  const title = element("h2", "");
  if (record.number) title.append(element("span", "qp-number", record.number), " ");
  title.append(link(record.url, record.title));
  const list = element("ul", "");
  for (const section of sections.slice(0, 3)) {
    const words = section.record.heading || section.record.anchor;
    const first = words === section.record.title; // the page's own link is enough
    const name = element("h3", "", link(`${record.url}#${section.record.anchor}`, words));
    list.append(element("li", "", ...(first ? [] : [name]), snippet(section)));
  }
  const more = sections.length - 3;
  const item = element("li", "qp-result", title, list);
  if (more > 0) item.append(element("p", "qp-more", `and ${more} more on this page`));
  return item;
}

function show(data, query) {
  const status = document.querySelector("#search-status");
  const results = document.querySelector("#search-results");
  const help = document.querySelector("#search-help");
  document.title = document.title.replace(/^.*?(?=Search\b)/, query ? `${query} · ` : "");
  if (!queryTerms(query).length) {
    status.textContent = "";
    results.replaceChildren();
    help.hidden = false;
    return;
  }
  const { how, hits } = find(data, query);
  const pages = group(hits, data.records);
  help.hidden = hits.length > 0;
  results.replaceChildren();
  if (!hits.length) {
    status.textContent = `Nothing holds “${query}”. Try another word, or fewer.`;
    return;
  }
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const kind = how && ` ${how}`;
  status.textContent = `${count(hits.length, "section")} on ${count(pages.length, "page")}${kind}`;
  results.append(element("ol", "", ...pages.map(showPage)));
}

// The page ------------------------------------------------------------------------------

const container = document.querySelector(".bd-search-container");
const form = container.querySelector("form");
const field = form.querySelector("input");
field.value = new URLSearchParams(location.search).get("q") ?? "";
if (!field.value) {
  document.querySelector("#search-help").hidden = false; // it need not wait for the index
  field.focus();
}

const data = await load(container.dataset.index);
show(data, field.value);

function search() {
  const query = field.value.trim();
  history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : "?");
  show(data, query);
}
let timer;
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  search();
});
