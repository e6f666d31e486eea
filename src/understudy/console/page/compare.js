/* Compare: two clips from the same start, side by side. Which policy is which is hidden until the person has chosen. */

import { Player } from "/clips.js";
import { byId, fillTable, number, percent, say } from "/dom.js";

export class Compare {
  constructor(app) {
    this.app = app;
    this.players = { left: new Player(byId("left-player"), "the left clip"), right: new Player(byId("right-player"), "the right clip") };
    this.asked = null;
    this.clips = new Map();
    byId("next-pair").addEventListener("click", () => this.app.ask("next-pair"));
    byId("play-both").addEventListener("click", () => this.playBoth());
    for (const button of document.querySelectorAll("[data-choice]")) button.addEventListener("click", () => this.prefer(button.dataset.choice));
    addEventListener("keydown", (event) => {
      if (this.app.mode !== "compare" || event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
      const choice = { Digit1: "left", Digit2: "same", Digit3: "right" }[event.code];
      if (choice) this.prefer(choice);
    });
  }

  setup() {
    this.asked = null;
  }

  clip(message) {
    this.clips.set(message.clip, message);
    this.draw();
  }

  prefer(choice) {
    const { pair } = this.app;
    if (this.app.can && pair && pair.chosen === null) this.app.ask("prefer", { pair: pair.pair, choice });
  }

  playBoth() {
    for (const player of Object.values(this.players)) {
      player.show(0);
      player.pause();
      player.start();
    }
  }

  draw() {
    const { app } = this;
    if (app.mode !== "compare") {
      for (const player of Object.values(this.players)) player.pause();
      return;
    }
    const { pair, state } = app;
    const few = state.policies.length < 2;
    say(byId("compare-hint"), few
      ? "Two policies are needed. Train two rounds under Progress."
      : "Two policies start in the same state. Say which one is more like what you meant.");
    byId("pair").hidden = !pair;
    byId("next-pair").disabled = !app.can || few || (pair !== null && pair.chosen === null);
    say(byId("next-pair"), pair ? "Next pair" : "Show a pair");
    if (pair) this.drawPair(pair);
    this.drawRates(state.comparisons);
  }

  drawPair(pair) {
    if (this.asked !== pair.pair) {
      this.asked = pair.pair;
      this.clips.clear();
      for (const side of ["left", "right"]) {
        this.players[side].load(null, 0, 1);
        this.players[side].say("one moment");
        this.app.ask("clip", { clip: pair[side].clip });
      }
    }
    const [left, right] = pair.policies ?? [null, null];
    say(byId("left-title"), left ? `Left: policy ${left}` : "Left");
    say(byId("right-title"), right ? `Right: policy ${right}` : "Right");
    for (const side of ["left", "right"]) {
      const clip = this.clips.get(pair[side].clip);
      if (clip) this.players[side].load(clip.clip, clip.pictures, clip.fps);
    }
    const ready = this.clips.size === 2;
    byId("play-both").disabled = !ready;
    const chosen = { left: `You chose left, policy ${left}.`, right: `You chose right, policy ${right}.`, same: "You said they are the same." };
    say(byId("pair-question"), pair.chosen ? `${chosen[pair.chosen]} It is saved.` : "Which is more like what you meant?");
    for (const button of document.querySelectorAll("[data-choice]")) {
      button.disabled = !this.app.can || pair.chosen !== null || !ready;
      button.setAttribute("aria-pressed", String(pair.chosen === button.dataset.choice));
    }
  }

  drawRates({ answered, rates }) {
    fillTable(byId("rates"), answered ? ["policy", "win rate (95% interval)", "wins", "ties", "losses"] : [], answered ? rates.map((one) =>
      [`policy ${one.policy}`, one.rate === null ? "–" : `${percent(one.rate)} (${percent(one.low)} to ${percent(one.high)})`,
        number(one.wins), number(one.ties), number(one.losses)]) : []);
  }
}
