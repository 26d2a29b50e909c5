// What was read, and where to go on. It is kept in this browser's storage and nowhere
// else; where there is no storage, nothing is shown and nothing is missing.
//
// A section counts as seen when it was at the middle of the window for a moment. A
// chapter is read when all its sections were seen, or when the reader says so at its end.
(() => {
  const KEY = "the-quiet-parts";
  const MOMENT = 1500; // milliseconds: less is scrolling past

  const load = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY));
      if (kept.pages) return kept;
    } catch {
      // nothing kept, or no storage
    }
    return { pages: {} };
  };
  const save = change => {
    const kept = load(); // another tab may have written since
    change(kept);
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      return; // no storage: the page stays as it was built
    }
    show();
  };

  const rows = [...document.querySelectorAll(".qp-nav li[data-page]")];
  const here = document.querySelector(".qp-nav [aria-current]")?.closest("[data-page]");
  const page = here?.dataset.page;
  const end = document.querySelector(".qp-end");
  const box = end?.querySelector("input");
  const sections = [...document.querySelectorAll(".bd-article > section > section[id]")];

  const spoken = minutes => {
    const rest = minutes % 60, hours = (minutes - rest) / 60;
    return [hours && `${hours} h`, (rest || !hours) && `${rest} min`].filter(Boolean).join(" ");
  };
  const share = (kept, name) => {
    const { read, seen = [], of = 1 } = kept.pages[name] || {};
    return read ? 1 : Math.min(seen.length / of, 0.99);
  };
  const left = (kept, some) =>
    Math.round(some.reduce((sum, row) =>
      sum + row.dataset.minutes * (1 - share(kept, row.dataset.page)), 0) / 5) * 5;

  // Showing ---------------------------------------------------------------------------

  const show = () => {
    const kept = load(), any = Object.keys(kept.pages).length > 0;
    for (const row of document.querySelectorAll("li[data-page]"))
      mark(row.firstElementChild, share(kept, row.dataset.page));
    for (const time of document.querySelectorAll(".qp-left")) {
      const own = [...time.parentElement.nextElementSibling.children]
        .filter(row => row.dataset.minutes);
      const all = left({ pages: {} }, own), now = left(kept, own);
      time.dataset.built ??= time.textContent;
      time.textContent = now === all ? time.dataset.built : now ? `${spoken(now)} left` : "read";
    }
    for (const note of document.querySelectorAll(".qp-kept")) note.classList.toggle("qp-none", !any);
    if (box) box.checked = Boolean(kept.pages[page]?.read);
    const line = document.querySelector(".qp-progress");
    if (line) goOn(line, kept, any);
  };

  const mark = (link, done) => {
    let sign = link.querySelector(".qp-mark");
    if (!done) return sign?.remove();
    if (!sign) {
      sign = document.createElement("span");
      sign.className = "qp-mark";
      sign.setAttribute("role", "img");
      link.append(sign);
    }
    sign.setAttribute("aria-label", done === 1 ? "read" : "begun");
    sign.style.setProperty("--qp-done", `${Math.round(done * 100)}%`);
    sign.classList.toggle("qp-read", done === 1);
  };

  // The landing page: where to go on.
  const goOn = (line, kept, any) => {
    line.dataset.built ??= line.innerHTML;
    if (!any) {
      line.innerHTML = line.dataset.built;
      return;
    }
    const read = rows.filter(row => share(kept, row.dataset.page) === 1).length;
    const last = rows.findIndex(row => row.dataset.page === kept.at?.page);
    const open = row => share(kept, row.dataset.page) < 1;
    const next = rows.slice(Math.max(last, 0)).find(open) || rows.find(open);
    line.textContent = "";
    if (next) {
      const link = document.createElement("a");
      const own = next.querySelector("a"), same = next === rows[last];
      link.href = own.getAttribute("href") + (same && kept.at.id ? `#${kept.at.id}` : "");
      const words = own.firstChild.textContent; // the number
      link.textContent = `chapter ${words}` + (same && kept.at.id ? `, “${kept.at.title}”` : "");
      line.append("Continue with ", link, ". ");
    }
    line.append(`${read} of ${rows.length} chapters read` +
      (next ? `, ${spoken(left(kept, rows))} left.` : "."));
  };

  // Noting ----------------------------------------------------------------------------

  const note = found => save(kept => {
    const own = (kept.pages[page] ??= { seen: [] });
    own.seen = [...new Set([...own.seen, ...found.map(section => section.id)])]
      .filter(id => sections.some(section => section.id === id));
    own.of = sections.length;
    if (own.seen.length === own.of) own.read = true;
    const last = found.at(-1), title = last.querySelector("h2").cloneNode(true);
    title.querySelector(".headerlink")?.remove();
    kept.at = { page, id: last.id, title: title.textContent.trim() };
  });

  const seen = () => {
    const whole = end.getBoundingClientRect().top < innerHeight; // the last may be too
    const from = whole ? 0 : innerHeight / 2;                    // short for the middle
    const to = whole ? innerHeight : innerHeight / 2;
    return sections.filter(section => {
      const place = section.getBoundingClientRect();
      return place.top <= to && place.bottom >= from;
    });
  };

  const watch = () => {
    let timer;
    // What comes to the middle and what leaves it both start the moment anew. What is
    // seen is asked when it is over: a section that was left by then was scrolled past.
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const found = document.hidden ? [] : seen();
        if (found.length) note(found);
      }, MOMENT);
    };
    const middle = new IntersectionObserver(later, { rootMargin: "-50% 0px -50% 0px" });
    sections.forEach(section => middle.observe(section));
    new IntersectionObserver(later).observe(end);
    box.addEventListener("change", () => save(kept => {
      const own = (kept.pages[page] ??= { seen: [], of: sections.length });
      own.read = box.checked;
      if (!box.checked) own.seen = [];
      kept.at ??= { page };
    }));
  };

  for (const button of document.querySelectorAll(".qp-kept button"))
    button.addEventListener("click", () => {
      localStorage.removeItem(KEY);
      show();
      button.closest("nav, section").querySelector("li a").focus({ preventScroll: true });
    });
  addEventListener("storage", event => event.key === KEY && show());
  addEventListener("pageshow", event => event.persisted && show());
  try {
    localStorage.setItem(`${KEY}-try`, "x");
    if (!localStorage.getItem(`${KEY}-try`)) throw Error("no storage");
    localStorage.removeItem(`${KEY}-try`);
    if (box && sections.length) watch();
  } catch {
    if (box) box.parentElement.hidden = true; // nothing could be kept
  }
  show();
})();
