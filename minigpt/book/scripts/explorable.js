// What moves a figure on a page without a kernel. Called for each figure with its element,
// what minigpt/book/explorable.py says of it, and the script of the figure, if it has one.
(root, spec, start) => {
  const svg = root.querySelector(".qp-picture > svg");
  const inputs = [...root.querySelectorAll("[data-control]")];
  const update = start ? start(tools(), spec.data) : frames();

  const index = input => input.tagName === "SELECT" ? input.selectedIndex : +input.value;
  const show = () => {
    const values = {}, indices = [];
    inputs.forEach((input, i) => {
      const control = spec.controls[i], at = index(input);
      indices.push(at);
      const value = control.values ? control.values[at] : control.log ? 10 ** at : at;
      values[control.name] = value;
      const label = control.labels ? control.labels[at]
        : control.log ? String(+value.toPrecision(2)) : value.toFixed(control.digits);
      const output = input.parentElement.querySelector("output");
      if (output) { output.textContent = label; input.setAttribute("aria-valuetext", label); }
    });
    update(values, indices);
  };
  const put = (i, at) => {
    if (inputs[i].tagName === "SELECT") inputs[i].selectedIndex = at;
    else inputs[i].value = at;
  };

  // JupyterLab would take the arrow keys for itself.
  root.addEventListener("keydown", event => event.stopPropagation());
  root.addEventListener("qp-show", event => {
    if (event.detail === "telling") spec.telling.forEach((at, i) => put(i, at));
    else Object.entries(event.detail).forEach(([name, value]) => set(name, value));
    show();
  });
  inputs.forEach(input => { input.disabled = false; input.addEventListener("input", show); });
  // Figure.sets: words may lie over the part that is clicked.
  svg.addEventListener("click", event => {
    const hit = document.elementsFromPoint(event.clientX, event.clientY);
    const part = hit.map(node => node.closest("[data-set]")).find(Boolean);
    if (!part) return;
    Object.entries(JSON.parse(part.dataset.set)).forEach(([name, value]) => set(name, value));
    show();
  });
  let before;
  addEventListener("beforeprint", () => {
    before = inputs.map(index);
    spec.telling.forEach((at, i) => put(i, at));
    show();
  });
  addEventListener("afterprint", () => { before?.forEach((at, i) => put(i, at)); show(); });
  show();

  function set(name, value) {
    const i = spec.controls.findIndex(control => control.name === name);
    const { values, log } = spec.controls[i];
    put(i, values ? values.indexOf(value) : log ? Math.log10(value) : value);
  }

  // Frames drawn beforehand: write what this one has at each place that ever changes.
  function frames() {
    const { places, values, frames } = spec.frames;
    const targets = places.map(([way]) => way.reduce((node, i) => node.children[i], svg));
    const shown = places.map(() => 0);
    return (_, indices) => {
      const frame = indices.reduce((at, i, n) => at * spec.sizes[n] + i, 0);
      frames[frame].forEach((at, n) => {
        if (at === shown[n]) return;
        shown[n] = at;
        const [, what] = places[n], value = values[n][at];
        if (what === "inner") targets[n].innerHTML = value;
        else if (what === "text") targets[n].textContent = value;
        else if (value === null) targets[n].removeAttribute(what);
        else if (what[0] === "{") targets[n].setAttributeNS(...what.slice(1).split("}"), value);
        else targets[n].setAttribute(what, value);
      });
    };
  }

  // What the script of a figure draws with. Its parts are those that Python has named.
  function tools() {
    const parts = {};
    svg.querySelectorAll("[data-part]").forEach(part => { parts[part.dataset.part] = part; });
    const scale = (from, to, a, b, log) => {
      const f = log ? Math.log : v => v;
      return v => a + (b - a) * (f(v) - f(from)) / (f(to) - f(from));
    };
    const unscale = (from, to, a, b, log) => v => {
      const share = (v - a) / (b - a);
      return log ? from * (to / from) ** share : from + share * (to - from);
    };
    const axes = spec.axes.map(({ box: [left, top, right, bottom], x, y, log }) => ({
      x: scale(...x, left, right, log.includes("x")),
      y: scale(...y, bottom, top, log.includes("y")),
      dataX: unscale(...x, left, right, log.includes("x")),
      dataY: unscale(...y, bottom, top, log.includes("y")),
      xlim: x, ylim: y,
    }));
    const round = v => Math.round(v * 100) / 100;
    const trace = points => points.map(([x, y], i) => {
      const begins = i === 0 || Number.isNaN(points[i - 1][1]);
      return Number.isNaN(y) ? "" : `${begins ? "M" : "L"}${round(x)} ${round(y)}`;
    }).join("");
    const draw = (name, points, end = "") => {
      const group = parts[name], path = group.querySelector(":scope > path");
      path?.setAttribute("d", trace(points) + end);
      const marks = [...group.querySelectorAll("use")];
      points.forEach(([x, y], i) => {
        const mark = marks[i] ?? marks[0]?.parentElement.appendChild(marks[0].cloneNode());
        mark?.setAttribute("x", round(x));
        mark?.setAttribute("y", round(y));
      });
      marks.slice(Math.max(1, points.length)).forEach(mark => mark.remove());
    };
    const place = (xs, ys, n) => xs.map((x, i) => [axes[n].x(x), axes[n].y(ys[i])]);
    return {
      axes, parts, svg, root,
      // A line, its markers, or both, through data on axes number n.
      line: (name, xs, ys, n = 0) => draw(name, place(xs, ys, n)),
      // The same, closed and filled.
      polygon: (name, xs, ys, n = 0) => draw(name, place(xs, ys, n), "z"),
      // A bar or band, between two corners.
      rect: (name, x0, y0, x1, y1, n = 0) =>
        draw(name, place([x0, x1, x1, x0], [y0, y0, y1, y1], n), "z"),
      text: (name, words) => { parts[name].querySelector("text").textContent = words; },
      // Where a text stands, in data.
      move: (name, x, y, n = 0) => {
        const text = parts[name].querySelector("text");
        text.removeAttribute("transform");
        text.setAttribute("x", round(axes[n].x(x)));
        text.setAttribute("y", round(axes[n].y(y)));
      },
      visible: (name, on) => { parts[name].style.display = on ? "" : "none"; },
      // The words for those who do not see the figure.
      alt: words => svg.setAttribute("aria-label", words),
      // Sets a control as if the reader had moved it.
      set: (name, value) => { set(name, value); show(); },
      // Dragging a part calls act with the place in data, in axes number n.
      drag: (name, act, n = 0) => {
        const part = parts[name];
        part.style.cursor = "grab";
        part.style.touchAction = "none";
        svg.querySelectorAll("text").forEach(text => { text.style.pointerEvents = "none"; });
        const at = event => {
          const point = new DOMPoint(event.clientX, event.clientY);
          const { x, y } = point.matrixTransform(svg.getScreenCTM().inverse());
          act(axes[n].dataX(x), axes[n].dataY(y));
        };
        part.addEventListener("pointerdown", event => {
          part.setPointerCapture(event.pointerId);
          event.preventDefault();
          at(event);
          part.onpointermove = at;
        });
        const end = () => { part.onpointermove = null; };
        part.addEventListener("pointerup", end);
        part.addEventListener("pointercancel", end);
      },
      // A click on a part, for what a control does as well.
      click: (name, act) => {
        parts[name].style.cursor = "pointer";
        parts[name].addEventListener("click", act);
      },
    };
  }
}
