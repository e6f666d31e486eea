/* The editor of the mapping from keys, mouse and gamepad to actions. Every change is stored at once. */

import { byId, make, say } from "/dom.js";
import { asList, choices, fromList, inputName, isAnalog, sizeOf } from "/input.js";

const OFFERED = ["mouse:left", "mouse:right"];
const OFFERED_ANALOG = ["mouse:x", "mouse:y", "axis:0", "axis:1", "axis:2", "axis:3"];
const PRESS = "press";

export class MappingEditor {
  /** `changed` is called with a new mapping. */
  constructor(app, changed) {
    this.app = app;
    this.changed = changed;
    this.capturing = null;
    byId("add").addEventListener("click", () => this.add());
    byId("guess").addEventListener("click", () => this.store(this.app.welcome.guess).then(() => this.fill()));
    addEventListener("keydown", (event) => {
      if (!this.capturing) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      if (event.code === "Escape") this.stop();
      else this.captured(`key:${event.code}`);
    }, { capture: true });
    const seen = () => say(byId("gamepads"), navigator.getGamepads().some(Boolean) ? "A gamepad is connected."
      : "No gamepad is connected. Press a button on it.");
    for (const event of ["gamepadconnected", "gamepaddisconnected"]) addEventListener(event, seen);
    seen();
  }

  setup(mapping) {
    this.stop();
    this.spec = this.app.welcome.env.action;
    const offered = [[PRESS, "a key or gamepad button: press it"], ...[...OFFERED, ...(this.spec.kind === "continuous" ? OFFERED_ANALOG : [])]
      .map((input) => [input, inputName(input)])];
    byId("add-input").replaceChildren(...offered.map(([value, text]) => make("option", { value, textContent: text })));
    this.mapping = mapping;
    this.fill();
  }

  draw() {
    for (const node of byId("mapping").querySelectorAll("button, select, input")) node.disabled = !this.app.can;
  }

  async store(mapping) {
    this.mapping = structuredClone(mapping);
    this.app.welcome.mapping = this.mapping;
    this.changed(this.mapping);
    const stored = await this.app.ask("mapping", { mapping: this.mapping });
    say(byId("mapping-status"), stored ? "Saved for this environment." : "Not saved.");
  }

  change(edit) {
    const mapping = structuredClone(this.mapping);
    edit(mapping);
    return this.store(mapping);
  }

  add() {
    const input = byId("add-input").value;
    if (input === PRESS) this.capture(byId("add"), (pressed) => this.append(pressed));
    else this.append(input);
  }

  append(input) {
    const { kind, high, low } = this.spec;
    const value = kind === "continuous" ? (isAnalog(input) ? (high[0] - low[0]) / 2 : high[0]) : 0;
    this.change((mapping) => mapping.bindings.push({ input, index: 0, value }));
    this.fill();
    byId("bindings").lastElementChild.querySelector("button").focus();
  }

  /** Wait for a key or a gamepad's button; `done` gets the input. */
  capture(button, done) {
    this.stop();
    this.capturing = { button, done, before: button.textContent };
    button.textContent = "Press it now (Esc: stop)";
  }

  captured(input) {
    const { done } = this.capturing;
    this.stop();
    done(input);
  }

  gamepad(name, value) {
    if (name.startsWith("button:") && value) this.captured(name);
    else if (name.startsWith("axis:") && Math.abs(value) > 0.7) this.captured(`${name}${value > 0 ? "+" : "-"}`);
  }

  stop() {
    if (!this.capturing) return;
    this.capturing.button.textContent = this.capturing.before;
    this.capturing = null;
  }

  fill() {
    byId("bindings").replaceChildren(...this.mapping.bindings.map((binding, i) => this.row(binding, i)));
    const rest = asList(this.spec, this.mapping.rest);
    byId("rest").replaceChildren("Nothing pressed:", ...rest.map((value, index) =>
      this.value(index, value, `Action ${index} while nothing is pressed`, (changed) => this.change((mapping) => {
        const list = [...asList(this.spec, mapping.rest)];
        list[index] = changed;
        mapping.rest = fromList(this.spec, list);
      }))));
    this.draw();
  }

  row(binding, i) {
    const name = inputName(binding.input);
    const key = make("button", { type: "button", class: "input", textContent: name, "aria-label": `Change ${name}` });
    if (isAnalog(binding.input)) key.setAttribute("aria-disabled", "true");
    else {
      key.addEventListener("click", () => this.capture(key, async (input) => {
        await this.change((mapping) => { mapping.bindings[i].input = input; });
        this.fill();
      }));
    }
    const remove = make("button", { type: "button", class: "remove", textContent: "Remove", "aria-label": `Remove ${name}` });
    remove.addEventListener("click", async () => {
      await this.change((mapping) => mapping.bindings.splice(i, 1));
      this.fill();
    });
    const parts = [key];
    if (sizeOf(this.spec) > 1) parts.push(this.index(binding, i, name));
    parts.push(isAnalog(binding.input) ? "times" : "is");
    parts.push(this.value(binding.index, binding.value, `Value of ${name}`, (value) =>
      this.change((mapping) => { mapping.bindings[i].value = value; })), remove);
    return make("li", { class: "row" }, ...parts);
  }

  index(binding, i, name) {
    const { names } = this.spec;
    const select = make("select", { "aria-label": `Dimension of ${name}` }, ...names.slice(0, sizeOf(this.spec)).map((text, index) =>
      make("option", { value: index, textContent: /^\d+$/.test(text) ? `action ${text}` : text, selected: index === binding.index })));
    select.addEventListener("change", async () => {
      await this.change((mapping) => Object.assign(mapping.bindings[i], { index: Number(select.value),
        value: this.spec.kind === "continuous" ? binding.value : 0 }));
      this.fill();
    });
    return select;
  }

  value(index, value, text, store) {
    if (this.spec.kind === "continuous") {
      const field = make("input", { type: "number", step: "any", value, "aria-label": text });
      field.addEventListener("change", () => {
        if (Number.isFinite(field.valueAsNumber)) store(field.valueAsNumber);
        else field.value = value;
      });
      return field;
    }
    const names = this.spec.kind === "discrete" ? this.spec.names : [];
    const select = make("select", { "aria-label": text }, ...Array.from({ length: choices(this.spec, index) }, (_, one) =>
      make("option", { value: one, textContent: /^\d+$/.test(names[one] ?? "0") ? `action ${one}` : names[one], selected: one === value })));
    select.addEventListener("change", () => store(Number(select.value)));
    return select;
  }
}
