/* Buttons or sliders for an action: they show the held action, and set it. */

import { asList, choices, inputsFor, sizeOf } from "/input.js";
import { make, number, say } from "/dom.js";

export class Pad {
  /** `on` has press(index, value) and release(index); `springs()` says whether a slider goes back when it is let go. */
  constructor(root, spec, mapping, on, springs = () => false) {
    this.spec = spec;
    this.on = on;
    this.springs = springs;
    this.sliders = [];
    this.buttons = [];
    const rows = Array.from({ length: sizeOf(spec) }, (_, index) =>
      spec.kind === "continuous" ? this.slider(root.id, index) : this.row(index));
    root.replaceChildren(...rows);
    this.setMapping(mapping);
  }

  slider(prefix, index) {
    const { low, high, names } = this.spec;
    const id = `${prefix}-${index}`;
    const range = make("input", { type: "range", id, min: low[index], max: high[index], step: "any" });
    const output = make("output", { for: id });
    const keys = make("span", { class: "note keys" });
    range.addEventListener("input", () => {
      say(output, number(range.valueAsNumber));
      this.on.press(index, range.valueAsNumber);
    });
    const let_go = () => {
      if (this.springs()) this.on.release(index);
    };
    range.addEventListener("pointerup", let_go);
    range.addEventListener("pointercancel", let_go);
    range.addEventListener("blur", let_go);
    this.sliders.push({ range, output, keys });
    const text = /^\d+$/.test(names[index]) ? `action ${names[index]}` : names[index];
    return make("div", { class: "slider" }, make("label", { for: id, textContent: text }), range, output, keys);
  }

  row(index) {
    const { names, kind } = this.spec;
    const buttons = Array.from({ length: choices(this.spec, index) }, (_, value) => {
      const button = make("button", { type: "button", class: "choice", "aria-pressed": "false" });
      const keys = make("kbd");
      const name = kind === "discrete" ? names[value] ?? String(value) : String(value);
      button.append(make("span", { textContent: /^\d+$/.test(name) ? `action ${name}` : name }), keys);
      button.addEventListener("pointerdown", () => this.on.press(index, value));
      for (const event of ["pointerup", "pointerleave", "pointercancel", "keyup", "blur"]) {
        button.addEventListener(event, () => this.on.release(index));
      }
      button.addEventListener("keydown", (event) => {
        if (event.code === "Space" || event.code === "Enter") this.on.press(index, value);
      });
      return { button, keys };
    });
    this.buttons[index] = buttons;
    const title = kind === "discrete" ? [] : [make("span", { class: "note", textContent: names[index] })];
    return make("div", { class: "row choices" }, ...title, ...buttons.map((one) => one.button));
  }

  setMapping(mapping) {
    this.sliders.forEach(({ keys }, index) => {
      const [low, high] = [this.spec.low[index], this.spec.high[index]].map((value) => inputsFor(mapping, index, value));
      say(keys, low || high ? `${number(this.spec.low[index])}: ${low || "–"} · ${number(this.spec.high[index])}: ${high || "–"}` : "");
    });
    this.buttons.forEach((row, index) => row.forEach(({ keys }, value) => {
      say(keys, inputsFor(mapping, index, value));
      keys.hidden = !keys.textContent;
    }));
  }

  /** Show an action; null shows none. */
  show(action) {
    const list = action === null ? [] : asList(this.spec, action);
    this.sliders.forEach(({ range, output }, index) => {
      if (!range.matches(":active")) range.value = list[index] ?? (this.spec.low[index] + this.spec.high[index]) / 2;
      say(output, number(list[index]));
    });
    this.buttons.forEach((row, index) => row.forEach(({ button }, value) =>
      button.setAttribute("aria-pressed", String(list[index] === value))));
  }

  disable(disabled) {
    for (const { range } of this.sliders) range.disabled = disabled;
    for (const row of this.buttons) for (const { button } of row) button.disabled = disabled;
  }
}

/** An action for people. */
export function actionText(spec, action) {
  if (action === null || action === undefined) return "–";
  if (spec.kind === "discrete") return /^\d+$/.test(spec.names[action] ?? "0") ? `action ${action}` : spec.names[action];
  return asList(spec, action).map(number).join(", ");
}

