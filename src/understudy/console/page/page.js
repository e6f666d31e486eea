/* The console's page. It draws what the last message of each type says, so a reload or a lost connection changes nothing. */

import { Answer } from "/answer.js";
import { Compare } from "/compare.js";
import { byId, plural, say } from "/dom.js";
import { Progress } from "/progress.js";
import { Connection } from "/socket.js";
import { Stage } from "/stage.js";

const PANELS = { demonstrate: "panel-stage", watch: "panel-stage", answer: "panel-answer", compare: "panel-compare",
  progress: "panel-progress" };

const app = {
  welcome: null, state: null, curves: null, questions: null, pair: null, role: "watch", lost: null,
  /** True if this page has control and a connection. */
  get can() {
    return this.lost === null && this.welcome !== null && this.role === "control";
  },
  get mode() {
    return this.state?.mode ?? null;
  },
  /** Send a request; a refusal is shown. Resolves to true if it was done. */
  async ask(type, fields) {
    try {
      await connection.request(type, fields);
      return true;
    } catch (refusal) {
      this.problem(refusal.message);
      return false;
    }
  },
  post: (type, fields) => connection.post(type, fields),
  announce: (text) => say(byId("announce"), text),
  problem(text) {
    say(byId("alert").querySelector("p"), `${text[0].toUpperCase()}${text.slice(1)}`);
    byId("alert").hidden = false;
  },
};

const stage = new Stage(app);
const panels = [stage, new Answer(app), new Compare(app), new Progress(app)];

const receive = {
  welcome(message) {
    app.welcome = message;
    app.role = message.role;
    app.lost = null;
    app.questions = null;
    app.pair = null;
    document.title = `${message.env.name} · understudy console`;
    say(byId("name"), message.env.name);
    const learner = message.algorithm ? message.algorithm.title : "demonstrations only";
    const notes = [message.env.note, message.algorithm?.note].filter(Boolean);
    say(byId("about"), [learner, message.out, ...notes].join(" · "));
    for (const panel of panels) panel.setup();
  },
  role(message) {
    app.role = message.role;
    app.announce(message.role === "control" ? "You have control." : "Another page has control. This one watches.");
    stage.resend();
  },
  state(message) {
    app.state = message;
  },
  curves(message) {
    app.curves = message;
  },
  questions(message) {
    app.questions = message.questions === null || message.questions === undefined ? null : message;
  },
  question(message) {
    const { type: _, ...question } = message;
    const all = app.questions?.questions ?? [];
    const at = all.findIndex((one) => one.question === question.question);
    if (at >= 0) all[at] = question;
  },
  pair(message) {
    app.pair = message;
  },
  clip(message) {
    for (const panel of panels) panel.clip?.(message);
  },
  step(message) {
    stage.stepped(message);
  },
  error(message) {
    app.problem(message.message);
  },
};

function draw() {
  const { state, can, mode } = app;
  drawConnection();
  for (const button of byId("modes").children) {
    button.setAttribute("aria-current", button.dataset.mode === mode ? "page" : "false");
    button.disabled = !can;
  }
  const pending = app.questions?.open ? app.questions.questions.filter((one) => one.status === "pending").length : 0;
  badge("answer", pending ? String(pending) : "", "questions are pending");
  const status = state?.training.status;
  badge("progress", ["starting", "training", "saving"].includes(status) ? "●" : "", "training runs");
  for (const id of new Set(Object.values(PANELS))) byId(id).hidden = mode === null || PANELS[mode] !== id;
  if (state && app.welcome) for (const panel of panels) panel.draw();
}

function badge(name, text, meaning) {
  const node = document.querySelector(`[data-badge=${name}]`);
  node.hidden = text === "";
  say(node, text);
  node.title = meaning;
}

function drawConnection() {
  const { lost, welcome, role } = app;
  const [word, text] = lost?.ended
    ? ["Ended", `The console has ended. ${app.state?.saved ? `Everything is saved in ${app.state.saved}. ` : ""}You can close this page.`]
    : lost
      ? ["No connection", `There is no connection to the server. What the page confirmed is saved. Trying again in ${lost.delay / 1000} s.`
        + (welcome ? "" : " If this stays, open the address that the terminal printed.")]
      : welcome === null ? ["Connecting", ""]
        : role === "control" ? ["You have control", ""]
          : ["You watch", "Another page has control. This one watches."];
  say(byId("connection"), word);
  byId("connection").dataset.state = lost ? "lost" : role;
  byId("banner").hidden = text === "";
  say(byId("banner").querySelector("p"), text);
  byId("retry").hidden = !lost || lost.ended;
  byId("take-control").hidden = Boolean(lost) || welcome === null || role === "control";
}

const connection = new Connection({
  message(message) {
    receive[message.type]?.(message);
    if (message.type !== "step") draw();
  },
  picture: (picture) => stage.picture(picture),
  status(lost) {
    app.lost = lost;
    stage.releaseAll();
    draw();
  },
});

byId("modes").addEventListener("click", async (event) => {
  const mode = event.target.closest("button")?.dataset.mode;
  if (mode && mode !== app.mode && await app.ask("mode", { mode })) {
    const pending = mode === "answer" && app.questions?.open ? app.state.questions.pending : 0;
    app.announce(`Mode ${mode}.${pending ? ` ${plural(pending, "question")} pending.` : ""}`);
  }
});
byId("retry").addEventListener("click", () => connection.retry());
byId("take-control").addEventListener("click", () => app.ask("take-control"));
byId("dismiss").addEventListener("click", () => {
  byId("alert").hidden = true;
});
addEventListener("online", () => connection.retry());
draw();
