/* Clips: pictures of an episode with a timeline to scrub. */

import { make, say } from "/dom.js";

const KEPT = 90;
const AHEAD = 8;
const BUSY = 503;
const TRIES = 20;

/** The pictures of one clip, fetched when needed; a limited number stays decoded. */
class Pictures {
  constructor(clip) {
    this.clip = clip;
    this.kept = new Map();
  }

  get(number) {
    let picture = this.kept.get(number);
    this.kept.delete(number);
    picture ??= this.fetch(number);
    this.kept.set(number, picture);
    if (this.kept.size > KEPT) this.drop(this.kept.keys().next().value);
    return picture;
  }

  drop(number) {
    this.kept.get(number)?.then((bitmap) => bitmap.close(), () => undefined);
    this.kept.delete(number);
  }

  clear() {
    for (const number of [...this.kept.keys()]) this.drop(number);
  }

  async fetch(number) {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const answer = await fetch(`/frames/${encodeURIComponent(this.clip)}/${number}`);
      if (answer.ok) return createImageBitmap(await answer.blob());
      if (answer.status !== BUSY) throw new Error(`picture ${number} is not there (${answer.status})`);
    }
    throw new Error(`picture ${number} is not there yet`);
  }
}

export class Player {
  /** `marks(list)` draws ticks on the timeline; `moved(number)` is called when another picture is shown. */
  constructor(root, name, moved = () => undefined) {
    this.moved = moved;
    this.name = name;
    this.clip = null;
    this.canvas = make("canvas", { width: 320, height: 240, role: "img", "aria-label": name });
    this.message = make("p", { class: "overlay", hidden: true });
    this.play = make("button", { type: "button", textContent: "Play" });
    this.range = make("input", { type: "range", min: 0, max: 0, step: 1, value: 0, id: `${root.id}-time`, "aria-label": `Timeline of ${name}` });
    this.time = make("output", { for: this.range.id });
    this.ticks = make("div", { class: "ticks", "aria-hidden": "true" });
    root.replaceChildren(make("div", { class: "screen" }, this.canvas, this.message),
      make("div", { class: "row timeline" }, this.play, make("div", { class: "track" }, this.ticks, this.range), this.time));
    this.play.addEventListener("click", () => (this.timer ? this.pause() : this.start()));
    this.range.addEventListener("input", () => {
      this.pause();
      this.show(this.range.valueAsNumber);
    });
  }

  /** Show a clip, or nothing (null). The same clip again changes nothing. */
  load(clip, pictures, fps, at = 0) {
    if (clip === this.clip && pictures === this.count) return;
    this.pause();
    this.pictures?.clear();
    this.clip = clip;
    this.count = pictures;
    this.fps = fps;
    this.pictures = clip === null ? null : new Pictures(clip);
    this.range.max = Math.max(0, pictures - 1);
    this.ticks.replaceChildren();
    for (const node of [this.play, this.range]) node.disabled = clip === null;
    delete this.canvas.dataset.shown;
    if (clip === null) this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height);
    else this.show(at);
  }

  /** Show a picture, unless a newer wish comes first. */
  async show(number) {
    const { pictures } = this;
    if (!pictures) return;
    const wanted = Math.min(Math.max(0, number), this.count - 1);
    this.at = wanted;
    this.range.value = wanted;
    say(this.time, `${wanted} / ${this.count - 1}`);
    this.moved(wanted);
    try {
      const bitmap = await pictures.get(wanted);
      if (pictures !== this.pictures || this.at !== wanted) return;
      if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height) Object.assign(this.canvas, { width: bitmap.width, height: bitmap.height });
      this.canvas.getContext("2d").drawImage(bitmap, 0, 0);
      this.canvas.dataset.shown = `${this.clip}/${wanted}`;
      this.message.hidden = true;
      for (let next = wanted + 1; this.timer && next < Math.min(this.count, wanted + AHEAD); next += 1) pictures.get(next).catch(() => undefined);
    } catch (error) {
      pictures.kept.delete(wanted);
      if (pictures === this.pictures && this.at === wanted) this.say(error.message);
    }
  }

  say(text) {
    say(this.message, text);
    this.message.hidden = text === "";
  }

  /** Play from here, or from the start at the end. */
  start() {
    if (!this.pictures) return;
    let at = this.at >= this.count - 1 ? 0 : this.at;
    const begun = performance.now() - 1000 * at / this.fps;
    const tick = async () => {
      at = Math.min(this.count - 1, Math.floor((performance.now() - begun) * this.fps / 1000));
      await this.show(at);
      if (at >= this.count - 1) this.pause();
      else if (this.timer) this.timer = requestAnimationFrame(tick);
    };
    say(this.play, "Pause");
    this.timer = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.timer);
    this.timer = null;
    say(this.play, "Play");
  }

  /** Ticks on the timeline: `{at, status, current}`. */
  mark(marks) {
    this.ticks.replaceChildren(...marks.map(({ at, status, current }) => {
      const tick = make("i", { class: `tick ${status}${current ? " current" : ""}` });
      tick.style.left = `${100 * at / Math.max(1, this.count - 1)}%`;
      return tick;
    }));
  }
}

