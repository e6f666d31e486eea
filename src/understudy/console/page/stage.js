/* Demonstrate, watch and take over: the live environment, its clock, and the attempt. */

import { byId, fillPairs, fillTable, label, make, number, plural, say } from "/dom.js";
import { Input, feedGamepad, pollGamepads } from "/input.js";
import { MappingEditor } from "/mapping.js";
import { Pad, actionText } from "/pad.js";

const SLOWEST = 0.5;
const FASTEST = 120;
const STEPS_OF_SLIDER = 100;
/** Elements that use keys themselves. */
const TYPING = "input, select, textarea, [contenteditable]";
const HINTS = {
  demonstrate: "You drive. Keep an attempt to make it a demonstration.",
  watch: "The policy drives. Take over where it goes wrong, and hand back. A kept attempt trains the policy next time.",
};
const NEEDS_POLICY = "There is no policy yet. Demonstrate, then press Train under Progress.";

export class Stage {
  constructor(app) {
    this.app = app;
    this.seq = 0;
    this.canvas = byId("picture");
    this.context = this.canvas.getContext("2d");
    this.queue = Promise.resolve();
    this.buttons();
    this.keyboard();
    this.mouse();
    pollGamepads((name, value) => this.gamepad(name, value));
  }

  get active() {
    return this.app.can && (this.app.mode === "demonstrate" || this.app.mode === "watch");
  }

  get stage() {
    return this.app.state.stage;
  }

  /** The attempt on the stage belongs to this mode, or there is none. */
  get here() {
    return this.stage.status === "idle" || this.stage.mode === this.app.mode;
  }

  setup() {
    const { env, mapping } = this.app.welcome;
    this.spec = env.action;
    this.input = new Input(env.action, mapping, { changed: () => this.resend(), used: () => this.grab() });
    this.pad = new Pad(byId("pad"), env.action, mapping, {
      press: (index, value) => this.active && this.input.fix(index, value),
      release: (index) => this.input.free(index),
    }, () => !this.stage.stepping);
    this.editor ??= new MappingEditor(this.app, (changed) => {
      this.input.setMapping(changed);
      this.pad.setMapping(changed);
    });
    this.editor.setup(mapping);
    this.canvas.setAttribute("aria-label", `Picture of ${env.name}. Focus it and use the keys to drive.`);
    this.seq = 0;
    this.resend();
  }

  /** Send the held action. */
  resend() {
    if (!this.input) return;
    this.pad.show(this.input.action());
    if (this.app.can) {
      this.seq += 1;
      this.app.post("act", { seq: this.seq, action: this.input.action() });
    }
  }

  releaseAll() {
    this.input?.releaseAll();
  }

  /** A person who uses the controls takes over, if they want that. */
  grab() {
    if (this.active && this.app.mode === "watch" && byId("grab").checked && this.stage.drive === "policy"
      && this.stage.status === "live" && !this.taking) this.take();
  }

  async take() {
    this.taking = true;
    await this.app.ask(this.stage.drive === "policy" ? "take" : "hand-back");
    this.taking = false;
  }

  picture(picture) {
    // One after the other, so that an older picture never covers a newer one.
    const decoded = createImageBitmap(picture.image);
    this.queue = this.queue.then(() => decoded).then((bitmap) => {
      if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height) {
        this.canvas.width = bitmap.width;
        this.canvas.height = bitmap.height;
      }
      this.context.drawImage(bitmap, 0, 0);
      bitmap.close();
      this.app.post("seen", { frame: picture.frame });
      say(byId("read-t"), number(picture.t));
      say(byId("read-return"), number(picture.total));
      byId("step").setAttribute("aria-busy", "false");
      if (picture.over) byId("step").disabled = true; // the state that says so comes a little later
    }, () => this.app.post("seen", { frame: picture.frame }));
  }

  stepped(step) {
    say(byId("read-fps"), step.fps ? step.fps.toFixed(0) : "–");
    if (!byId("details").open) return;
    const { observation, action } = this.app.welcome.env;
    fillPairs(byId("details-body"), [["step", number(step.t)], ["reward", number(step.reward)], ["action taken", actionText(action, step.action)],
      ["policy's action", actionText(action, step.policy_action)], ["your action", actionText(action, step.person_action)],
      ...step.observation.map((value, i) => [`observation ${observation.names[i] ?? i}`, number(value)])]);
  }

  buttons() {
    const on = (id, act) => byId(id).addEventListener("click", (event) => {
      act();
      if (event.detail > 0) this.canvas.focus({ preventScroll: true }); // after a mouse click the keys drive
    });
    on("go", () => this.go());
    on("step", () => this.oneStep());
    on("take", () => this.take());
    on("undo", () => this.undo());
    on("keep", () => this.finish("keep"));
    on("discard", () => this.finish("discard"));
    on("real-time", () => this.clock({ rate: Math.min(FASTEST, Math.max(SLOWEST, this.app.welcome.env.fps)) }));
    byId("rate").addEventListener("change", () => this.clock({ rate: rateOf(byId("rate").valueAsNumber) }));
    byId("rate").addEventListener("input", () => say(byId("rate-text"), rateText(rateOf(byId("rate").valueAsNumber))));
    byId("stepping").addEventListener("change", () => this.clock({ running: false, stepping: byId("stepping").checked }));
    byId("success").addEventListener("change", (event) => this.app.ask("success", { success: JSON.parse(event.target.value) }));
  }

  go() {
    const { status, stepping } = this.stage;
    if (status === "idle" || status === "failed") {
      const policy = this.app.mode === "watch" ? Number(byId("policy").value) || null : null;
      this.releaseAll();
      this.app.ask("start", { policy });
    } else if (status === "live") this.clock({ running: false });
    else if (status === "paused") this.clock(stepping ? { running: true, stepping: false } : { running: true });
  }

  /** One step; a click while one is being taken changes nothing. */
  async oneStep() {
    if (byId("step").getAttribute("aria-busy") === "true") return;
    byId("step").setAttribute("aria-busy", "true");
    if (!await this.app.ask("step")) byId("step").setAttribute("aria-busy", "false");
  }

  clock(fields) {
    this.app.ask("clock", { running: this.stage.status === "live", ...fields });
  }

  undo() {
    const amount = byId("undo-amount").valueAsNumber;
    if (!(amount > 0)) this.app.problem("write how much to undo, a number above 0");
    else if (byId("undo-unit").value === "seconds") this.app.ask("undo", { seconds: amount });
    else this.app.ask("undo", { steps: Math.max(1, Math.round(amount)) });
  }

  async finish(what) {
    if (await this.app.ask(what)) this.app.announce(what === "keep" ? "The episode is saved." : "The attempt is discarded.");
  }

  keyboard() {
    const shortcuts = { Space: "go", Enter: "step", Backspace: "undo", KeyT: "take", KeyK: "keep", KeyX: "discard" };
    addEventListener("keydown", (event) => {
      if (!this.active || event.ctrlKey || event.metaKey || event.altKey || this.editor?.capturing || byId("confirm").open) return;
      const { target } = event;
      if (target.matches(TYPING) || (target.matches("button, summary, a") && ["Space", "Enter"].includes(event.code))) return;
      if (this.input.bound(`key:${event.code}`)) {
        event.preventDefault();
        this.input.press(`key:${event.code}`);
        return;
      }
      const button = byId(shortcuts[event.code] ?? "");
      if (button && !button.disabled && !button.hidden && (!event.repeat || event.code === "Enter")) {
        event.preventDefault();
        button.click();
      }
    });
    addEventListener("keyup", (event) => this.input?.release(`key:${event.code}`));
    addEventListener("blur", () => this.releaseAll());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) return;
      this.releaseAll();
      if (this.active && this.stage.status === "live") this.clock({ running: false });
    });
  }

  mouse() {
    const names = { 0: "mouse:left", 2: "mouse:right" };
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.active) return;
      const box = this.canvas.getBoundingClientRect();
      this.input.move("mouse:x", 2 * (event.clientX - box.left) / box.width - 1);
      this.input.move("mouse:y", 1 - 2 * (event.clientY - box.top) / box.height);
    });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.focus({ preventScroll: true });
      if (this.active && names[event.button]) this.input.press(names[event.button]);
    });
    addEventListener("pointerup", (event) => names[event.button] && this.input?.release(names[event.button]));
    this.canvas.addEventListener("pointerleave", () => {
      if (!this.input) return;
      this.input.move("mouse:x", 0);
      this.input.move("mouse:y", 0);
    });
    this.canvas.addEventListener("contextmenu", (event) => this.input?.bound("mouse:right") && event.preventDefault());
  }

  gamepad(name, value) {
    if (this.editor?.capturing) this.editor.gamepad(name, value);
    else if (this.active) feedGamepad(this.input, name, value);
  }

  draw() {
    const { app, stage } = this;
    if (app.mode !== "demonstrate" && app.mode !== "watch") return;
    const watch = app.mode === "watch";
    say(byId("stage-title"), watch ? "Watch and take over" : "Demonstrate");
    say(byId("stage-hint"), HINTS[app.mode]);
    this.drawStatus(watch);
    this.drawButtons(watch);
    this.drawEpisodes();
    this.editor.draw();
  }

  drawStatus(watch) {
    const { stage, app } = this;
    const noPolicy = watch && app.state.policies.length === 0;
    const texts = {
      idle: noPolicy ? NEEDS_POLICY : "Press Start. The first picture comes and the clock waits for you.",
      live: watch && stage.drive === "person" ? "You drive. Hand back when it goes well again." : "It runs.",
      paused: stage.stepping ? "Step by step: hold an action and press One step." : "Paused.",
      ended: "The episode is over. Keep or discard it.",
      busy: "One moment.",
      failed: stage.note,
    };
    const text = this.here ? texts[stage.status]
      : `There is an unfinished attempt in the mode ${stage.mode}. Keep or discard it there first.`;
    say(byId("stage-status"), [text, stage.status !== "failed" ? stage.note : ""].filter(Boolean).join(" "));
    const empty = stage.status === "idle" || !this.here;
    this.canvas.classList.toggle("empty", empty);
    if (empty) this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const over = { idle: noPolicy ? "no policy yet" : "press Start", paused: "paused", ended: "over", busy: "one moment", failed: "failed" };
    say(byId("overlay"), this.here ? over[stage.status] ?? "" : "");
    byId("overlay").hidden = !byId("overlay").textContent;
    byId("who").hidden = !watch || empty;
    say(byId("who"), stage.drive === "person" ? "you drive" : `policy ${stage.policy ?? ""} drives`);
    byId("screen").dataset.drive = watch && !empty && stage.drive === "person" ? "person" : "";
    if (empty) for (const [id, text_] of [["read-t", "0"], ["read-return", "0"], ["read-fps", "–"]]) say(byId(id), text_);
    byId("read-taken").hidden = !watch;
    say(byId("read-interventions"), number(stage.interventions));
  }

  drawButtons(watch) {
    const { stage, app } = this;
    const can = app.can && this.here;
    const { status } = stage;
    const running = status === "live" || status === "paused";
    const set = (id, enabled) => {
      byId(id).disabled = !(can && enabled);
    };
    label(byId("go"), status === "live" ? "Pause" : status === "paused" ? (stage.t ? "Go on" : "Run") : "Start");
    set("go", running || ((status === "idle" || status === "failed") && !(watch && app.state.policies.length === 0)));
    set("step", status === "paused");
    byId("take").hidden = !watch;
    label(byId("take"), stage.drive === "policy" ? "Take over" : "Hand back");
    set("take", running);
    set("undo", (running || status === "ended") && stage.t > 0);
    set("keep", (running || status === "ended") && stage.t > 0);
    set("discard", running || status === "ended" || status === "failed");
    for (const id of ["rate", "real-time", "stepping"]) byId(id).disabled = !app.can;
    if (!byId("rate").matches(":active")) {
      byId("rate").value = sliderOf(stage.rate);
      say(byId("rate-text"), rateText(stage.rate));
    }
    byId("stepping").checked = stage.stepping;
    byId("grab-row").hidden = !watch;
    for (const radio of byId("success").querySelectorAll("input")) {
      radio.disabled = !(can && (running || status === "ended"));
      radio.checked = radio.value === String(stage.success);
    }
    this.pad.disable(!this.active);
    byId("policy-row").hidden = !watch || app.state.policies.length === 0;
    if (watch) this.drawPolicies();
  }

  drawPolicies() {
    const select = byId("policy");
    const ids = this.app.state.policies.map((policy) => policy.id).reverse();
    if (select.dataset.ids !== String(ids)) {
      select.dataset.ids = String(ids);
      select.replaceChildren(...ids.map((id, i) => make("option", { value: id, textContent: i ? `policy ${id}` : `policy ${id}, the newest` })));
    }
    select.disabled = !this.app.can || this.stage.status !== "idle";
  }

  drawEpisodes() {
    const { kept, steps, successes, discarded, corrections, given, newest } = this.app.state.episodes;
    say(byId("episode-counts"), [`${plural(kept, "episode")} kept (${plural(steps, "step")})`, `${number(successes)} marked as success`,
      `${plural(corrections, "correction")}`, `${number(discarded)} discarded`, given ? `${number(given)} given with --demos` : ""]
      .filter(Boolean).join(" · "));
    const word = { true: "success", false: "failure", null: "" };
    fillTable(byId("episodes"), newest.length ? ["episode", "kind", "steps", "return", "marked", "steps by you"] : [],
      newest.map((one) => [String(one.id), one.kind + (one.policy ? ` of policy ${one.policy}` : ""), number(one.steps),
        number(one.return), word[one.success], one.kind === "correction" ? number(one.interventions) : "all"]));
  }
}

const rateOf = (slider) => Number((SLOWEST * (FASTEST / SLOWEST) ** (slider / STEPS_OF_SLIDER)).toPrecision(2));
const sliderOf = (rate) => Math.round(STEPS_OF_SLIDER * Math.log(rate / SLOWEST) / Math.log(FASTEST / SLOWEST));
const rateText = (rate) => `${number(rate)} steps/s`;
