// Citations and terms open in place: beside the line where there is room, else below it.
// Without this script each is a plain link to the paper or to the glossary.
(() => {
  const WAIT = 400; // milliseconds that the mouse rests before a note opens by itself
  const ROOM = 232; // pixels beside the text that a note in the margin needs
  const links = document.querySelectorAll("a[data-note]");
  let open = null; // the link whose note is open
  let note = null;
  let pinned = false; // opened by a click or a key, not by the mouse passing
  let timer;

  const close = () => {
    if (!open) return;
    const inside = note.contains(document.activeElement);
    note.remove();
    open.setAttribute("aria-expanded", "false");
    open.removeAttribute("aria-controls");
    if (inside) open.focus();
    open = note = null;
  };

  const show = (link, pin) => {
    const top = link.getBoundingClientRect().top;
    close();
    open = link;
    pinned = pin;
    note = document.createElement("span");
    note.className = "qp-note";
    note.id = "qp-note";
    note.setAttribute("role", "note");
    note.append(document.getElementById(`note-${link.dataset.note}`).content.cloneNode(true));
    // A citation's words end in the place: "Vaswani et al., 2017, §3.2.1".
    const cited = /\b\d{4}[a-z]?\)?, (.+)$/.exec(link.textContent.trim().replace(/\s+/g, " "));
    if (cited && link.dataset.note.startsWith("cite-")) {
      const line = document.createElement("span");
      line.className = "qp-note-text";
      line.textContent = `Cited: ${cited[1]}`;
      note.lastElementChild.before(line);
      note.querySelector(".qp-note-foot a").href = link.href;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "qp-note-close";
    button.setAttribute("aria-label", "Close");
    button.textContent = "×";
    button.addEventListener("click", () => {
      button.focus();
      close();
    });
    note.append(button);
    note.addEventListener("pointerenter", () => clearTimeout(timer));
    note.addEventListener("pointerleave", leave);
    link.after(note);
    place(link);
    link.setAttribute("aria-expanded", "true");
    link.setAttribute("aria-controls", note.id);
    // A note above that was closed must not move the line that is being read.
    const moved = link.getBoundingClientRect().top - top;
    if (moved) scrollBy({ top: moved, behavior: "instant" });
  };

  const place = link => {
    const article = link.closest("article").getBoundingClientRect();
    const text = link.closest("p, li, dd, td, th, figcaption, blockquote");
    const lines = link.getClientRects();
    const beside = article.right - text.getBoundingClientRect().right >= ROOM;
    if (link.closest("table") || (!beside && pinned)) {
      note.classList.add("qp-note-below");
    } else if (beside) {
      note.classList.add("qp-note-beside");
      note.style.top = `${lines[0].top - article.top}px`;
      note.style.left = `${text.getBoundingClientRect().right - article.left + 20}px`;
    } else {
      note.classList.add("qp-note-over");
      const last = lines[lines.length - 1];
      const most = article.width - note.offsetWidth - 16;
      note.style.top = `${last.bottom - article.top + 4}px`;
      note.style.left = `${Math.max(16, Math.min(last.left - article.left, most))}px`;
    }
  };

  const leave = () => {
    clearTimeout(timer);
    if (!pinned) timer = setTimeout(close, WAIT / 2);
  };

  for (const link of links) {
    link.setAttribute("role", "button");
    link.setAttribute("aria-expanded", "false");
    link.removeAttribute("title"); // it says what the note says
    link.addEventListener("click", event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      clearTimeout(timer);
      if (open === link && pinned) close();
      else show(link, true);
    });
    link.addEventListener("keydown", event => {
      if (event.key !== " ") return;
      event.preventDefault();
      link.click();
    });
    link.addEventListener("pointerenter", event => {
      if (event.pointerType !== "mouse") return;
      clearTimeout(timer);
      if (!(open && pinned) && open !== link && !link.closest("table"))
        timer = setTimeout(show, WAIT, link, false);
    });
    link.addEventListener("pointerleave", leave);
  }

  addEventListener("keydown", event => {
    if (event.key !== "Escape" || !open) return;
    const link = open, focused = pinned;
    close();
    if (focused) link.focus();
  });
  addEventListener("pointerdown", event => {
    const away = open && !open.contains(event.target) && !note.contains(event.target);
    if (away && !note.classList.contains("qp-note-below")) close();
  });
  addEventListener("resize", () => {
    if (note && !note.classList.contains("qp-note-below")) close();
  });
})();
