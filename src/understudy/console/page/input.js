/* Keys, mouse and gamepad become an action, by a mapping. docs/console.md, "Mapping", has the rules. */

const DEAD_ZONE = 0.1;
const BEYOND = 0.5;

/** The number of dimensions of an action; a discrete one has one. */
export const sizeOf = (spec) => spec.kind === "continuous" ? spec.low.length : spec.kind === "discrete" ? 1 : spec.nvec.length;
export const asList = (spec, action) => spec.kind === "discrete" ? [action] : action;
export const fromList = (spec, list) => spec.kind === "discrete" ? list[0] : list;
export const choices = (spec, index) => spec.kind === "discrete" ? spec.n : spec.nvec[index];
export const isAnalog = (input) => /^(axis:\d+|mouse:[xy])$/.test(input);

export class Input {
  /** `changed` is called with the action whenever it changes, and `used` when a bound input is pressed. */
  constructor(spec, mapping, { changed, used }) {
    this.spec = spec;
    this.mapping = mapping;
    this.changed = changed;
    this.used = used;
    this.held = new Map();
    this.analog = new Map();
    this.fixed = new Map();
    this.count = 0;
    this.last = JSON.stringify(this.action());
  }

  setMapping(mapping) {
    this.mapping = mapping;
    this.update();
  }

  bound(input) {
    return this.mapping.bindings.some((binding) => binding.input === input);
  }

  press(input) {
    if (this.held.has(input)) return;
    this.count += 1;
    this.held.set(input, this.count);
    if (this.bound(input)) this.used(input);
    for (const binding of this.mapping.bindings) if (binding.input === input) this.fixed.delete(binding.index);
    this.update();
  }

  release(input) {
    if (this.held.delete(input)) this.update();
  }

  move(input, value) {
    const before = this.analog.get(input) ?? 0;
    this.analog.set(input, value);
    if (this.bound(input) && Math.abs(value) > DEAD_ZONE && Math.abs(before) <= DEAD_ZONE) this.used(input);
    this.update();
  }

  /** Set a dimension from the screen; it stays until `free`, or until a key for this dimension is pressed. */
  fix(index, value) {
    this.fixed.set(index, value);
    this.used("screen");
    this.update();
  }

  free(index) {
    if (this.fixed.delete(index)) this.update();
  }

  releaseAll() {
    this.held.clear();
    this.analog.clear();
    this.fixed.clear();
    this.update();
  }

  action() {
    const { spec, mapping } = this;
    const rest = asList(spec, mapping.rest);
    const list = spec.kind === "continuous" ? this.continuous(rest) : this.whole(rest);
    for (const [index, value] of this.fixed) list[index] = value;
    return fromList(spec, list);
  }

  continuous(rest) {
    const { low, high } = this.spec;
    const list = [...rest];
    for (const { input, index, value } of this.mapping.bindings) {
      if (isAnalog(input)) {
        const at = this.analog.get(input) ?? 0;
        if (Math.abs(at) > DEAD_ZONE) list[index] += value * at;
      } else if (this.held.has(input)) list[index] += value - rest[index];
    }
    return list.map((value, i) => Math.min(high[i], Math.max(low[i], value)));
  }

  whole(rest) {
    const list = [...rest];
    const newest = list.map(() => 0);
    for (const { input, index, value } of this.mapping.bindings) {
      const order = this.held.get(input) ?? 0;
      if (order > newest[index]) {
        newest[index] = order;
        list[index] = value;
      }
    }
    return list;
  }

  update() {
    const action = this.action();
    const text = JSON.stringify(action);
    if (text === this.last) return;
    this.last = text;
    this.changed(action);
  }
}

/** Calls `seen(input, value)` for gamepad buttons (0 or 1) and axes (−1 to 1) that change, while one is connected. */
export function pollGamepads(seen) {
  const known = new Map();
  const note = (input, value) => {
    if (known.get(input) === value) return;
    known.set(input, value);
    seen(input, value);
  };
  let polling = false;
  const poll = () => {
    const pads = navigator.getGamepads().filter((pad) => pad && pad.connected);
    for (const pad of pads.slice(0, 1)) {
      pad.buttons.forEach((button, i) => note(`button:${i}`, Number(button.pressed)));
      pad.axes.forEach((axis, i) => note(`axis:${i}`, Math.round(axis * 100) / 100));
    }
    polling = pads.length > 0;
    if (polling) requestAnimationFrame(poll);
    else for (const [input, value] of known) if (value) note(input, 0);
  };
  const start = () => {
    if (polling) return;
    polling = true;
    requestAnimationFrame(poll);
  };
  addEventListener("gamepadconnected", start);
  addEventListener("gamepaddisconnected", start);
}

/** Send a gamepad's value to an input: an axis is also the two held inputs beyond ±0.5. */
export function feedGamepad(input, name, value) {
  if (name.startsWith("button:")) {
    if (value) input.press(name);
    else input.release(name);
    return;
  }
  input.move(name, value);
  for (const [sign, held] of [["+", value > BEYOND], ["-", value < -BEYOND]]) {
    if (held) input.press(`${name}${sign}`);
    else input.release(`${name}${sign}`);
  }
}

const NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", "mouse:left": "left mouse button",
  "mouse:right": "right mouse button", "mouse:x": "mouse, left and right", "mouse:y": "mouse, up and down" };

/** An input for people. */
export function inputName(input) {
  if (NAMES[input]) return NAMES[input];
  const [kind, rest] = [input.slice(0, input.indexOf(":")), input.slice(input.indexOf(":") + 1)];
  if (kind === "key") return NAMES[rest] ?? rest.replace(/^(Key|Digit)(?=.$)/, "");
  if (kind === "button") return `gamepad button ${rest}`;
  return `gamepad axis ${rest}`;
}

/** The inputs that give an action, for people: "←, A". */
export function inputsFor(mapping, index, value) {
  const keys = mapping.bindings.filter((one) => one.index === index && one.value === value && one.input.startsWith("key:"));
  return keys.map((one) => inputName(one.input)).join(", ");
}
