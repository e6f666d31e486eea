/* Helpers, and line charts with linear or logarithmic axes. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SPAN = 1000;

/** An element with attributes and children; `svg` makes those of a drawing. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A number as text: 2,048, 0.125, 6.1e-5. */
function number(value, digits = 4) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1).replace("-", "−").replace(".0e", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits }).replace("-", "−");
}

/** A group of radio buttons; `changed` gets the value of the new choice. */
function choices(id, options, changed) {
  byId(id).replaceChildren(...options.map(([value, text], index) => {
    const input = make("input", { type: "radio", name: id, value });
    input.checked = index === 0;
    input.addEventListener("change", () => changed(value));
    return make("label", {}, input, text);
  }));
}

/** A slider over positions of a list. `show` gives its text, which is read aloud too. */
function slide(id, show, changed) {
  const input = byId(id);
  const update = () => {
    const text = show(Number(input.value));
    byId(`${id}-value`).textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => {
    changed(Number(input.value));
    update();
  });
  return (value, last) => {
    input.max = String(last);
    input.value = String(value);
    update();
  };
}

/** Linear: round numbers. Logarithmic: powers of ten, as many as have room. */
function ticks([low, high], log) {
  const found = [];
  if (log) {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const step = Math.max(1, Math.ceil((last - first) / 6));
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found;
  }
  const raw = (high - low) / 5, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= raw * 0.999);
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-9); k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

class Chart {
  constructor(figure, title) {
    this.y = make("div", { class: "y", "aria-hidden": "true" });
    this.svg = svg("svg", { viewBox: `0 0 ${SPAN} ${SPAN}`, preserveAspectRatio: "none", role: "img" });
    this.cursor = make("div", { class: "cursor" });
    this.area = make("div", { class: "area" }, this.svg, this.cursor);
    this.x = make("div", { class: "x", "aria-hidden": "true" });
    this.legend = make("div", { class: "legend" });
    this.plot = make("div", { class: "plot" }, this.y, this.area, this.x);
    this.axis = make("p", { class: "axis" });
    this.title = make("figcaption", {}, title);
    figure.append(this.title, this.legend, this.plot, this.axis);
  }

  /** `series`: {name, style, points: [[x, y]]}. `at`: x of the cursor. `range`: [x, y] as [low, high] each. */
  draw({ series, at, range, log, xTicks, unit, text }) {
    this.log = log;
    [this.xRange, this.yRange] = range;
    const yTicks = ticks(this.yRange, log);
    const lines = yTicks.map((y) => svg("path", { class: "grid", d: `M0 ${this.toY(y)}H${SPAN}` }));
    this.svg.replaceChildren(...lines, ...series.map((one) => this.curve(one, at)));
    this.svg.setAttribute("aria-label", text);
    this.y.replaceChildren(...yTicks.map((y) => this.label("bottom", 1 - this.toY(y) / SPAN, number(y))));
    this.x.replaceChildren(...this.apart(xTicks).map(([x, name]) => this.label("left", this.toX(x) / SPAN, name)));
    this.plot.style.setProperty("--gutter", `${Math.max(...yTicks.map((y) => number(y).length))}ch`);
    this.cursor.style.left = `${this.toX(at) * 100 / SPAN}%`;
    this.axis.textContent = unit;
    this.legend.replaceChildren(...series.map((one) => make("span", { class: `key ${one.style}` }, make("i"), one.name)));
  }

  /** Labels that are not too close to the one before. */
  apart(all) {
    let last = -Infinity;
    return all.filter(([x]) => {
      const free = this.toX(x) - last >= 55;
      if (free) last = this.toX(x);
      return free;
    });
  }

  label(side, share, text) {
    return make("span", { style: `${side}:${(100 * share).toFixed(2)}%` }, text);
  }

  curve({ style, points }, at) {
    const place = ([x, y]) => `${this.toX(x).toFixed(1)} ${this.toY(y).toFixed(1)}`;
    const dots = (some) => some.map((one) => `M${place(one)}h.01`).join("");
    const group = svg("g", { class: `series ${style}` });
    if (points.length) group.append(svg("path", { class: "mean", d: `M${points.map(place).join("L")}` }));
    if (points.length <= 15 && !style.includes("limit")) group.append(svg("path", { class: "dot", d: dots(points) }));
    const now = points.filter(([x]) => x === at);
    if (!style.includes("limit")) group.append(svg("path", { class: "now", d: dots(now) }));
    return group;
  }

  share(value, [low, high]) {
    const scale = this.log ? (x) => Math.log(Math.max(x, 1e-300)) : (x) => x;
    return (scale(value) - scale(low)) / (scale(high) - scale(low));
  }

  toX(x) {
    return SPAN * this.share(x, this.xRange);
  }

  toY(y) {
    return SPAN * Math.min(Math.max(1 - this.share(y, this.yRange), -2), 2);
  }
}
