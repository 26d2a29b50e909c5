// The ladder of the landing page. Without this file every rung shows what it did; with it
// one rung does: the one that was last focused or tapped, or, where there is room for it at
// the side, so that nothing moves under the pointer, hovered.
const ladder = document.querySelector(".qp-ladder");
const beside = window.matchMedia("(min-width: 1320px)");
const rungs = [...ladder.querySelectorAll("li[data-rung]")];

function open(chosen) {
  for (const rung of rungs) {
    rung.classList.toggle("qp-open", rung === chosen);
    const button = rung.querySelector("button");
    button.setAttribute("aria-expanded", String(rung === chosen));
  }
}

// On a narrow page the part that closes may stand above the rung that was chosen. The rung
// stays where the reader sees it, and the page below it moves.
function openHere(rung) {
  const before = rung.getBoundingClientRect().top;
  open(rung);
  scrollBy({ top: rung.getBoundingClientRect().top - before, behavior: "instant" });
}

for (const rung of rungs) {
  const button = rung.querySelector("button");
  button.setAttribute("aria-controls", rung.querySelector(".qp-rung-more").id);
  button.addEventListener("click", () => openHere(rung));
  button.addEventListener("focus", () => openHere(rung));
  // Neither a finger that scrolls nor a page that scrolls below a pointer at rest has
  // chosen a rung.
  rung.querySelector(".qp-rung").addEventListener("pointermove", (event) => {
    const moved = event.movementX !== 0 || event.movementY !== 0;
    if (beside.matches && moved && event.pointerType === "mouse") open(rung);
  });
}

open(ladder.querySelector(".qp-open"));
