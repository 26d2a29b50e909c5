// One page of the site: what of it goes to paper. Nothing of it is shown or laid out;
// only the scripts of its figures are run.

async function takePage(name) {
  const answer = await fetch(`/${name}.html`);
  if (!answer.ok) return null;
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  const theme = /copybutton|styles\/(theme|bootstrap|pydata|sphinx-book)/;
  const styles = [...parsed.querySelectorAll('head link[rel="stylesheet"]')]
    .map((link) => new URL(link.getAttribute("href"), answer.url).pathname)
    .filter((path) => !theme.test(path));
  const inline = [...parsed.querySelectorAll("head style")].map((s) => s.textContent);
  return { article: parsed.querySelector("article.bd-article"), styles, inline };
}

// Called when all is in one document: a figure's script looks for the figure in it.
async function makeStill(main) {
  const figures = [...main.querySelectorAll(".qp-explorable")];
  for (const figure of figures) {
    const script = document.createElement("script");
    script.textContent = figure.nextElementSibling?.textContent || "";
    document.head.append(script);
    script.remove();
    showTelling(figure);
  }
  if (figures.length) await new Promise(requestAnimationFrame);
  figures.forEach(writeSetting);
  const nowhere = "script, .headerlink, .copybtn, .qp-controls, .qp-frame[hidden], " +
    "button, input, select, template, noscript, .qp-actions, .qp-tex, " +
    "section:has(> .qp-chapters), #three-ways-to-read";
  main.querySelectorAll(nowhere).forEach((e) => e.remove());
}

// Show an explorable at the setting that tells most, which its author named. A figure
// whose script does not know the event gets there by moving its controls.
function showTelling(figure) {
  const controls = [...figure.querySelectorAll(".qp-controls :is(input, select)")];
  const asked = (figure.dataset.telling || "").split(",").filter(Boolean).map(Number);
  figure.dispatchEvent(new CustomEvent("qp-show", { detail: "telling" }));
  asked.forEach((index, i) => {
    const control = controls[i];
    if (!control) return;
    const menu = control.tagName === "SELECT";
    if (index === (menu ? control.selectedIndex : +control.value)) return;
    if (menu) control.selectedIndex = index;
    else control.value = index;
    control.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

// The setting in words, in place of controls that paper cannot have.
function writeSetting(figure) {
  const words = [...figure.querySelectorAll(".qp-controls :is(input, select)")].map(
    (control) => {
      const name = control.labels?.[0]?.textContent.trim() || control.ariaLabel || "";
      const output = control.parentElement.querySelector("output")?.textContent;
      const value = control.selectedOptions?.[0]?.textContent ?? output ?? control.value;
      return `${name}: ${value.trim()}`;
    },
  );
  if (!words.length) return;
  const line = document.createElement("p");
  line.className = "book-setting";
  line.textContent = `Shown at ${words.join(", ")}`;
  figure.prepend(line);
}
