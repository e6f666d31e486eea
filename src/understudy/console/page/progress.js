/* See it learn: training's status, live curves, the newest policy's clip; start another round, stop, save, end. */

import { Chart } from "/chart.js";
import { Player } from "/clips.js";
import { byId, confirm, fillTable, label, make, number, percent, say } from "/dom.js";

const WORKING = ["starting", "training", "asking", "saving"];
const COLOURS = ["c0", "c1", "c2", "c3", "c4", "c5"];

export class Progress {
  constructor(app) {
    this.app = app;
    this.player = new Player(byId("newest-player"), "the newest policy's episode");
    this.charts = { return: new Chart("Return", "policy"), training: new Chart("Training loss", "update"), payoff: new Chart("Held-out payoff", "policy"),
      interventions: new Chart("Share of steps by you, %", "policy"), answers: new Chart("Answers spent", "policy") };
    byId("charts").append(...Object.values(this.charts).map((chart) => chart.node));
    byId("train").addEventListener("click", () => app.ask("train"));
    byId("stop").addEventListener("click", () => app.ask("stop"));
    byId("save").addEventListener("click", () => app.ask("save"));
    byId("end").addEventListener("click", async () => {
      if (await confirm("End the console? Training is finished and everything is saved. The server then stops.")) app.ask("end");
    });
  }

  setup() {
    this.asked = null;
  }

  clip(message) {
    if (message.clip !== this.asked) return;
    this.player.load(message.clip, message.pictures, message.fps);
    this.player.say("");
    say(byId("clip-note"), [`Return ${number(message.return)}${message.terminal ? ", it ended early" : ""}.`, message.note].filter(Boolean).join(" "));
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches && this.app.mode === "progress") this.player.start();
  }

  draw() {
    if (this.app.mode !== "progress") {
      this.player.pause();
      return;
    }
    this.drawButtons();
    this.drawNumbers();
    this.drawClip();
    if (this.drawn !== this.app.curves) {
      this.drawn = this.app.curves;
      this.drawCurves();
    }
    this.drawPolicies();
  }

  drawButtons() {
    const { can, welcome, state } = this.app;
    const { status, round, message, needs, new_data } = state.training;
    const texts = {
      idle: needs ? `Before training: ${needs}.` : "Ready to train.",
      starting: "Training starts.",
      training: `Round ${round} trains.`,
      asking: `Round ${round} asks: answer its questions under Answer.`,
      waiting: `Round ${round} is done.${new_data ? " There are episodes that it has not seen." : ""}`,
      saving: "Saving.",
      failed: "Training failed.",
    };
    say(byId("training-status"), welcome.algorithm === null ? "There is no algorithm. Start the console with --algorithm dagger to train."
      : [texts[status], message].filter(Boolean).join(" "));
    const working = WORKING.includes(status);
    label(byId("train"), status === "waiting" ? "Train another round" : status === "failed" ? "Train again" : "Train");
    byId("train").disabled = !can || working || needs !== "" || welcome.algorithm === null;
    byId("stop").disabled = !can || !["starting", "training", "asking"].includes(status);
    byId("save").disabled = !can || status === "saving";
    byId("end").disabled = !can;
    say(byId("saved"), state.saved ? `Saved in ${state.saved}.` : "");
  }

  drawNumbers() {
    const newest = this.app.curves?.rounds.at(-1);
    const { policies, questions, episodes } = this.app.state;
    const expert = this.app.curves?.expert;
    const numbers = [["policies", number(policies.length)], ["newest return", number(newest?.return)], ["your return", number(expert?.mean)],
      ["gap", number(newest?.gap)], ["answers", questions.budget === null ? number(questions.spent) : `${number(questions.spent)} of ${number(questions.budget)}`],
      ["episodes", number(episodes.kept + episodes.given)]];
    byId("progress-numbers").replaceChildren(...numbers.map(([name, text]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: text }))));
  }

  drawClip() {
    const newest = this.app.state.policies.at(-1);
    say(byId("clip-title"), newest ? `The newest policy, ${newest.id}` : "The newest policy");
    if (!newest) {
      this.player.load(null, 0, 1);
      this.player.say("no policy yet");
    } else if (this.asked !== newest.clip && !this.app.lost) {
      this.asked = newest.clip;
      this.player.load(null, 0, 1);
      this.player.say("one moment");
      this.app.ask("clip", { clip: this.asked }).then((done) => done || this.player.say("no clip"));
    }
  }

  drawCurves() {
    const { rounds, steps, expert } = this.app.curves ?? { rounds: [], steps: [], expert: null };
    const line = (field, scale = 1, interval = false) => rounds.filter((one) => one[field] !== null && one[field] !== undefined)
      .map((one) => ({ x: one.policy, y: scale * one[field], ...(interval ? { low: one.low, high: one.high } : {}) }));
    this.charts.return.draw({ series: [{ name: "policy", colour: "c0", points: line("return", 1, true) }], expert: expert?.mean ?? null });
    this.charts.payoff.draw({ series: [{ name: "payoff", colour: "c1", points: line("payoff") }] });
    this.charts.interventions.draw({ series: [{ name: "you", colour: "c2", points: line("interventions", 100) }], floor: 0 });
    const spent = line("answers");
    this.charts.answers.draw({ series: [{ name: "answers", colour: "c4", points: spent.some((one) => one.y) ? spent : [] }], floor: 0 });
    const names = [...new Set(steps.flatMap((one) => Object.keys(one.metrics)))].filter((name) => name.endsWith("loss")).slice(0, COLOURS.length);
    this.charts.training.draw({ series: names.map((name, i) => ({ name, colour: COLOURS[i], points: steps.map((one, x) => ({ x: x + 1, y: one.metrics[name] }))
      .filter((point) => Number.isFinite(point.y)) })) });
  }

  drawPolicies() {
    const { policies } = this.app.state;
    const rounds = new Map((this.app.curves?.rounds ?? []).map((one) => [one.policy, one]));
    fillTable(byId("policies"), policies.length ? ["policy", "round", "return (95% interval)", "gap", "episodes", "answers", "steps by you"] : [],
      [...policies].reverse().map((one) => [`policy ${one.id}`, number(one.round),
        one.return ? `${number(one.return.mean)} (${number(one.return.low)} to ${number(one.return.high)})` : "–",
        number(rounds.get(one.id)?.gap), number(one.episodes), number(one.answers), percent(rounds.get(one.id)?.interventions)]));
  }
}
