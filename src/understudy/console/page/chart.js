/* Charts in the style of the study report, drawn as SVG. */

import { make, number, say } from "/dom.js";

const SVG = "http://www.w3.org/2000/svg";
const SPAN = 1000;
const TICKS = 4;

const svg = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

/** Round numbers from low to high, about `TICKS` of them. */
export function ticks(low, high) {
  const raw = (high - low) / TICKS;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * size).find((one) => one >= raw * 0.999) ?? 10 * size;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/** A figure of curves; `draw` shows other data in it. */
export class Chart {
  constructor(title, unit) {
    this.unit = unit;
    this.y = make("div", { class: "y", "aria-hidden": "true" });
    this.svg = svg("svg", { viewBox: `0 0 ${SPAN} ${SPAN}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    this.cursor = make("div", { class: "cursor", hidden: true });
    this.area = make("div", { class: "area" }, this.svg, this.cursor);
    this.x = make("div", { class: "x", "aria-hidden": "true" });
    this.legend = make("div", { class: "legend" });
    this.readout = make("output", { class: "readout" });
    this.plot = make("div", { class: "plot" }, this.y, this.area, this.x);
    this.node = make("figure", { class: "chart" }, make("figcaption", { textContent: title }), this.legend, this.plot,
      make("p", { class: "axis", textContent: unit }), this.readout);
    this.area.addEventListener("pointermove", (event) => this.point(event));
    this.area.addEventListener("pointerleave", () => {
      this.cursor.hidden = true;
      say(this.readout, this.newest);
    });
  }

  /** `series`: `{name, colour, points: [{x, y, low, high}]}`; `expert`: a number or null; `floor`: y starts there at most. */
  draw({ series, expert = null, floor = null }) {
    this.series = series.filter((one) => one.points.length);
    this.node.hidden = this.series.length === 0;
    if (this.node.hidden) return;
    const xs = this.series.flatMap((one) => one.points.map((point) => point.x));
    const ys = this.series.flatMap((one) => one.points.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]));
    this.left = Math.min(...xs);
    this.right = Math.max(...xs, this.left + 1);
    [this.low, this.high] = padded([...ys, ...(expert === null ? [] : [expert]), ...(floor === null ? [] : [floor])]);
    if (floor !== null) this.low = Math.min(floor, ...ys);
    this.newest = this.series.map((one) => `${one.name}: ${number(one.points.at(-1).y)}`).join("; ");
    say(this.readout, this.newest);
    this.axes();
    const paths = this.yTicks.map((y) => svg("path", { class: "grid", d: `M0 ${this.toY(y)}H${SPAN}` }));
    if (expert !== null) paths.push(svg("path", { class: "expert", d: `M0 ${this.toY(expert)}H${SPAN}` }));
    for (const one of this.series) paths.push(this.curve(one));
    this.svg.replaceChildren(...paths);
    this.keys(expert !== null);
  }

  toX(x) {
    return (SPAN * (x - this.left) / (this.right - this.left)).toFixed(1);
  }

  toY(y) {
    return (SPAN * (this.high - y) / (this.high - this.low)).toFixed(1);
  }

  curve({ colour, points }) {
    const group = svg("g", { class: `series ${colour}` });
    const band = points.filter((point) => point.low !== undefined && point.low !== null);
    const place = (x, y) => `${this.toX(x)} ${this.toY(y)}`;
    if (band.length > 1) {
      const edge = [...band.map((point) => place(point.x, point.high)), ...band.map((point) => place(point.x, point.low)).reverse()];
      group.append(svg("path", { class: "band wide", d: `M${edge.join("L")}Z` }));
    } else if (band.length) group.append(svg("path", { class: "bar", d: `M${place(band[0].x, band[0].low)}L${place(band[0].x, band[0].high)}` }));
    group.append(svg("path", { class: "mean", d: `M${points.map((point) => place(point.x, point.y)).join("L")}` }));
    if (points.length <= 30) group.append(svg("path", { class: "dot", d: points.map((point) => `M${place(point.x, point.y)}h.01`).join("") }));
    return group;
  }

  axes() {
    this.yTicks = ticks(this.low, this.high);
    const xTicks = ticks(this.left, this.right).filter(Number.isInteger);
    this.y.replaceChildren(...this.yTicks.map((value) => placed(number(value), "bottom", (value - this.low) / (this.high - this.low))));
    this.x.replaceChildren(...xTicks.map((value) => placed(number(value), "left", (value - this.left) / (this.right - this.left))));
    this.plot.style.setProperty("--gutter", `${Math.max(...this.yTicks.map((value) => number(value).length))}ch`);
  }

  keys(expert) {
    const names = [...this.series.map((one) => [one.name, one.colour]), ...(expert ? [["you", "expert"]] : [])];
    const signature = JSON.stringify(names);
    this.legend.hidden = names.length === 1;
    if (this.legend.dataset.signature === signature) return;
    this.legend.dataset.signature = signature;
    this.legend.replaceChildren(...names.map(([name, colour]) => make("span", { class: `key ${colour}` }, make("i"), name)));
  }

  point(event) {
    const box = this.area.getBoundingClientRect();
    const at = this.left + (event.clientX - box.left) / box.width * (this.right - this.left);
    const xs = this.series.flatMap((one) => one.points.map((point) => point.x));
    const x = xs.reduce((best, other) => Math.abs(other - at) < Math.abs(best - at) ? other : best);
    this.cursor.hidden = false;
    this.cursor.style.left = `${100 * (x - this.left) / (this.right - this.left)}%`;
    const values = this.series.flatMap((one) => one.points.filter((point) => point.x === x).map((point) => `${one.name}: ${number(point.y)}`
      + (point.low === undefined || point.low === null ? "" : ` (${number(point.low)} to ${number(point.high)})`)));
    say(this.readout, `${this.unit} ${number(x)}. ${values.join("; ")}`);
  }
}

function padded(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

function placed(text, side, share) {
  const node = make("span", { textContent: text });
  node.style[side] = `${100 * share}%`;
  return node;
}
