/* Answer: states of the policy's episodes come up, the person says what to do there. */

import { Player } from "/clips.js";
import { byId, fillPairs, make, number, say } from "/dom.js";
import { Pad, actionText } from "/pad.js";

const LEAD = 1.5;

export class Answer {
  constructor(app) {
    this.app = app;
    this.current = null;
    this.player = new Player(byId("answer-player"), "the policy's episode");
    const on = (id, act) => byId(id).addEventListener("click", act);
    on("answer", () => this.answer(this.chosen));
    on("agree", () => this.answer(this.question.learner));
    on("skip", () => this.settle("skip"));
    on("reopen", () => this.app.ask("reopen", { question: this.current }));
    on("previous", () => this.move(-1));
    on("next", () => this.move(1));
    on("next-pending", () => this.nextPending());
    on("replay", () => this.replay());
    on("finish", () => this.app.ask("finish"));
    byId("question-list").addEventListener("click", (event) => {
      const { question } = event.target.dataset;
      if (question) this.open(question);
    });
    this.keyboard();
  }

  get all() {
    return this.app.questions?.questions ?? [];
  }

  get question() {
    return this.all.find((one) => one.question === this.current) ?? null;
  }

  get open_() {
    return this.app.can && this.app.mode === "answer" && Boolean(this.app.questions?.open);
  }

  setup() {
    const { env, mapping } = this.app.welcome;
    this.spec = env.action;
    this.discrete = env.action.kind === "discrete";
    this.pad = new Pad(byId("answer-pad"), env.action, mapping, {
      press: (index, value) => this.choose(index, value),
      release: () => undefined,
    });
    this.current = null;
  }

  /** A dimension of the answer. A discrete action is the whole answer, so it is sent. */
  choose(index, value) {
    if (!this.open_ || !this.question) return;
    if (this.discrete) {
      this.answer(value);
      return;
    }
    this.chosen = [...this.chosen ?? (this.question.learner)];
    this.chosen[index] = value;
    this.drawChosen();
  }

  /** A key of the mapping chooses what it stands for. False: it is not in the mapping. */
  key(input) {
    const bindings = this.app.welcome.mapping.bindings.filter((one) => one.input === input);
    for (const { index, value } of bindings) this.choose(index, value);
    return bindings.length > 0;
  }

  async answer(action) {
    const { question } = this;
    if (!question || action === null || action === undefined) return;
    this.advance();
    await this.app.ask("answer", { question: question.question, action });
  }

  async settle(type) {
    const { question } = this;
    if (!question) return;
    this.advance();
    await this.app.ask(type, { question: question.question });
  }

  /** Go to the next question that is pending, after the current one; stay if there is none. */
  advance() {
    const at = this.all.findIndex((one) => one.question === this.current);
    const later = [...this.all.slice(at + 1), ...this.all.slice(0, Math.max(0, at))];
    const next = later.find((one) => one.status === "pending");
    if (next) this.open(next.question);
  }

  nextPending() {
    this.advance();
  }

  move(by) {
    const at = this.all.findIndex((one) => one.question === this.current);
    const next = this.all[at + by];
    if (next) this.open(next.question);
  }

  open(id) {
    this.current = id;
    const { question } = this;
    this.chosen = question?.action ?? null;
    if (question) {
      const episode = this.app.questions.episodes[question.episode];
      this.player.load(episode.clip, episode.steps + 1, this.app.welcome.env.fps, question.t);
      if (this.player.at !== question.t) this.player.show(question.t);
      this.player.pause();
    }
    this.draw();
  }

  keyboard() {
    addEventListener("keydown", (event) => {
      if (!this.open_ || event.ctrlKey || event.metaKey || event.altKey || event.repeat || byId("confirm").open) return;
      if (event.target.matches("input, select")) {
        if (event.code === "Enter" && event.target.closest("#answer-pad")) this.answer(this.chosen);
        return;
      }
      if (event.target.matches("button, summary, a") && ["Space", "Enter"].includes(event.code)) return;
      if (this.key(`key:${event.code}`)) {
        event.preventDefault();
        return;
      }
      const button = byId({ Enter: "answer", KeyB: "skip", KeyN: "next-pending", Space: "replay" }[event.code] ?? "");
      if (button && !button.disabled && !button.hidden) {
        event.preventDefault();
        button.click();
      }
    });
  }

  /** Show how the policy got to the state in question. */
  replay() {
    if (!this.question) return;
    this.player.show(Math.max(0, this.question.t - Math.round(LEAD * this.app.welcome.env.fps)));
    this.player.start();
  }

  draw() {
    const { app } = this;
    if (app.mode !== "answer") {
      this.player.pause();
      return;
    }
    const counts = app.state.questions;
    for (const name of ["answered", "skipped", "pending"]) say(byId(`count-${name}`), number(counts[name]));
    say(byId("count-budget"), counts.budget === null ? `${number(counts.spent)} spent, no limit` : `${number(counts.spent)} of ${number(counts.budget)}`);
    byId("answer-body").hidden = this.all.length === 0;
    say(byId("answer-hint"), this.hint());
    if (this.all.length === 0) return;
    if (!this.question) {
      const first = this.all.find((one) => one.status === "pending") ?? this.all[0];
      this.open(first.question);
      return;
    }
    this.drawQuestion();
    this.drawList();
  }

  hint() {
    const { algorithm } = this.app.welcome;
    const { questions } = this.app;
    if (!algorithm) return "There is no algorithm to answer. Start the console with --algorithm dagger.";
    if (!algorithm.asks) return `${algorithm.title} asks nothing. Start the console with --algorithm dagger to answer questions.`;
    if (!questions || this.all.length === 0) {
      const { status } = this.app.state.training;
      return ["starting", "training"].includes(status) ? "Training runs. Questions come up when it needs answers."
        : "There are no questions yet. Press Train under Progress; the first round learns from the demonstrations, the next ones ask.";
    }
    const text = questions.open ? "What would you do here?" : "This round is closed: it trains, or is done.";
    return questions.reason ? `Round ${questions.round}. ${text} Asked: ${questions.reason}.` : `Round ${questions.round}. ${text}`;
  }

  drawQuestion() {
    const { question, all, spec } = this;
    const at = all.indexOf(question);
    const episode = this.app.questions.episodes[question.episode];
    const state = { pending: "pending", answered: `answered: ${actionText(spec, question.action)}`, skipped: "skipped" }[question.status];
    say(byId("question-title"), `Question ${at + 1} of ${all.length}, ${state}`);
    say(byId("question-reason"), [`Step ${question.t} of ${episode.steps}, episode ${question.episode + 1} (return ${number(episode.return)}).`,
      question.reason ? `Why: ${question.reason}.` : "", `The policy did ${actionText(spec, question.learner)}.`].filter(Boolean).join(" "));
    const { names } = this.app.welcome.env.observation;
    fillPairs(byId("question-numbers"), question.observation.map((value, i) => [`observation ${names[i] ?? i}`, number(value)]));
    const marks = all.filter((one) => one.episode === question.episode)
      .map((one) => ({ at: one.t, status: one.status, current: one === question }));
    this.player.mark(marks);
    const open = this.open_;
    byId("answer").hidden = this.discrete;
    byId("answer").disabled = !open || this.chosen === null;
    byId("agree").disabled = !open;
    byId("skip").disabled = !open || question.status === "skipped";
    byId("reopen").disabled = !open || question.status === "pending";
    byId("finish").disabled = !open;
    byId("previous").disabled = at === 0;
    byId("next").disabled = at === all.length - 1;
    byId("next-pending").disabled = !all.some((one) => one.status === "pending" && one !== question);
    this.pad.disable(!open);
    this.drawChosen();
  }

  drawChosen() {
    this.pad.show(this.chosen ?? this.question.action);
    byId("answer").disabled = !this.open_ || this.chosen === null;
  }

  drawList() {
    const list = byId("question-list");
    if (list.children.length !== this.all.length || list.dataset.round !== String(this.app.questions.round)) {
      list.dataset.round = this.app.questions.round;
      list.replaceChildren(...this.all.map(() => make("button", { type: "button", class: "dot-button" })));
    }
    this.all.forEach((one, i) => {
      const button = list.children[i];
      const text = `Question ${i + 1}, ${one.status}`;
      if (button.dataset.question === one.question && button.title === text && button.dataset.current === String(one === this.question)) return;
      button.title = text;
      button.setAttribute("aria-label", text);
      Object.assign(button.dataset, { question: one.question, status: one.status, current: one === this.question });
      button.setAttribute("aria-current", String(one === this.question));
    });
  }
}

