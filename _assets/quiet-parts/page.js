// What the frame of a page does: light and dark, the search field, the menus of narrow
// screens, the place in "On this page". The names are those of pydata-sphinx-theme, whose
// script this replaces: that one lays the page out again for every piece of code.

const root = document.documentElement;
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// Light and dark ------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");

function setMode(mode) {
  const auto = dark.matches ? "dark" : "light";
  root.dataset.mode = mode;
  root.dataset.theme = mode === "auto" ? auto : mode;
  localStorage.setItem("mode", mode);
  localStorage.setItem("theme", root.dataset.theme);
}

function nextMode() {
  const modes = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
  setMode(modes[(modes.indexOf(root.dataset.mode) + 1) % modes.length]);
}

all(".theme-switch-button").forEach(button => button.addEventListener("click", nextMode));
dark.addEventListener("change", () => {
  if (root.dataset.mode === "auto") setMode("auto");
});

// Search --------------------------------------------------------------------------------

const dialog = document.getElementById("pst-search-dialog");
const field = document.querySelector(":not(#pst-search-dialog) > form.bd-search input");
const mac = /^(Mac|iP)/.test(navigator.platform);

function openSearch() {
  if (field) {
    field.focus();
    field.select();
  } else if (dialog.open) dialog.close();
  else dialog.showModal();
}

all(".search-button__button").forEach(b => b.addEventListener("click", openSearch));
addEventListener("keydown", event => {
  const held = mac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
  if (!held || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  openSearch();
}, true);
if (mac) all(".kbd-shortcut__modifier").forEach(key => { key.textContent = "⌘"; });

// A dialog closes when what lies around it is pressed.
function closeAround(event) {
  const {left, right, top, bottom} = event.currentTarget.getBoundingClientRect();
  const {clientX: x, clientY: y, detail} = event;
  if (!detail) return; // pressed by a key, which has no place
  if (x < left || x > right || y < top || y > bottom) event.currentTarget.close();
}
dialog?.addEventListener("click", closeAround);

// Menus ---------------------------------------------------------------------------------

// On narrow screens a sidebar's content moves into a dialog while that is open.
function swap(from, to) {
  to.append(...from.childNodes);
  const names = [...from.classList];
  from.classList.remove(...names);
  to.classList.add(...names);
}

function menu(side) {
  const button = document.querySelector(`.${side}-toggle`);
  const sidebar = document.getElementById(`pst-${side}-sidebar`);
  const modal = document.getElementById(`pst-${side}-sidebar-modal`);
  if (!button || !sidebar || !modal) return;
  button.addEventListener("click", () => {
    swap(sidebar, modal);
    modal.showModal();
  });
  modal.addEventListener("click", event => {
    closeAround(event);
    // A place on this page has been chosen: show it.
    if (event.target.closest("a[href^='#']")) modal.close();
  });
  modal.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    modal.close();
  });
  modal.addEventListener("close", () => {
    swap(modal, sidebar);
    button.focus();
  });
}
menu("primary");
menu("secondary");

// The page's own line in the list of chapters, where that is longer than the window.
addEventListener("load", () => {
  const list = document.getElementById("pst-primary-sidebar");
  const line = list?.querySelector("[aria-current]");
  if (!line) return;
  const below = line.getBoundingClientRect().bottom - list.getBoundingClientRect().bottom;
  if (below > 0) list.scrollTop += below + 40;
});

// Where the reader is -------------------------------------------------------------------

const entries = new Map();
for (const link of all("#pst-page-toc-nav a[href^='#']")) {
  const place = document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (place) entries.set(place.querySelector("h1, h2, h3, h4") || place, link);
}

function mark(here) {
  for (const link of entries.values()) {
    link.classList.toggle("active", link === here);
    if (link === here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

const watcher = new IntersectionObserver(seen => {
  const last = seen.filter(entry => entry.isIntersecting).pop();
  if (last) mark(entries.get(last.target));
}, {rootMargin: "0px 0px -70% 0px"});
entries.forEach((link, place) => watcher.observe(place));

// Code and outputs that scroll sideways are reached by the keyboard ----------------------

const SCROLLS = "pre, .cell_output > .output, div.math";
const sizes = new ResizeObserver(seen => {
  // All sizes are read before anything is changed: the page is laid out once.
  const wide = seen.map(({target}) => target.scrollWidth > target.clientWidth);
  seen.forEach(({target}, i) => {
    if (wide[i]) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  });
});
all(SCROLLS, document.querySelector("main")).forEach(part => sizes.observe(part));
