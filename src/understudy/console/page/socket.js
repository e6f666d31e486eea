/* The connection to the server: requests with answers, pictures, and connecting again after it was lost. */

const DELAYS = [500, 1000, 2000, 4000];
const ENDED = 4000;
/** Requests that may be sent twice without harm: they are repeated if the connection was lost before the answer. */
const REPEATABLE = new Set(["answer", "skip", "reopen", "success", "mapping"]);

export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export class Connection {
  /** `on` has the functions message(object), picture(object) and status(object). */
  constructor(on) {
    this.on = on;
    this.number = 0;
    this.waiting = new Map();
    this.failures = 0;
    this.open();
  }

  get connected() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  open() {
    clearTimeout(this.timer);
    this.welcomed = false;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket`);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", (event) => this.receive(event.data));
    socket.addEventListener("close", (event) => {
      if (socket === this.socket) this.closed(event.code);
    });
    this.socket = socket;
  }

  /** Connect at once, without waiting for the next attempt. */
  retry() {
    if (this.socket.readyState === WebSocket.CLOSED && !this.ended) this.open();
  }

  receive(data) {
    if (typeof data !== "string") {
      this.on.picture(parsePicture(data));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "done" || message.type === "error") this.answered(message);
    else {
      if (message.type === "welcome") {
        this.failures = 0;
        this.welcomed = true;
      }
      this.on.message(message);
      if (message.type === "welcome") this.repeat(message.role);
    }
  }

  answered(message) {
    const request = this.waiting.get(message.ref);
    this.waiting.delete(message.ref);
    if (message.type === "done") request?.resolve();
    else if (request) request.reject(new Refusal(message.code, message.message));
    else this.on.message(message);
  }

  closed(code) {
    this.ended = code === ENDED;
    for (const [id, request] of this.waiting) {
      if (this.ended || !REPEATABLE.has(request.message.type)) {
        this.waiting.delete(id);
        request.reject(new Refusal("lost", this.ended ? "the console has ended"
          : `the connection was lost before "${request.message.type}" was confirmed: look whether it was done`));
      }
    }
    const delay = DELAYS[Math.min(this.failures, DELAYS.length - 1)];
    this.failures += 1;
    this.on.status({ ended: this.ended, failures: this.failures, delay });
    if (!this.ended) this.timer = setTimeout(() => this.open(), delay);
  }

  repeat(role) {
    for (const request of [...this.waiting.values()]) {
      if (role === "control") this.socket.send(JSON.stringify(request.message));
      else {
        this.waiting.delete(request.message.id);
        request.reject(new Refusal("watching", `"${request.message.type}" was not stored: another page has control now`));
      }
    }
  }

  /** Send a request. The promise resolves once its effect is on the server's disk. */
  request(type, fields = {}) {
    this.number += 1;
    const message = { type, ...fields, id: this.number };
    return new Promise((resolve, reject) => {
      if (!this.connected) {
        reject(new Refusal("lost", "there is no connection to the server"));
        return;
      }
      this.waiting.set(message.id, { message, resolve, reject });
      this.socket.send(JSON.stringify(message));
    });
  }

  /** Send a message that is not answered. */
  post(type, fields) {
    if (this.connected && this.welcomed) this.socket.send(JSON.stringify({ type, ...fields }));
  }
}

function parsePicture(buffer) {
  const view = new DataView(buffer);
  const flags = view.getUint16(2, true);
  return {
    running: Boolean(flags & 1), person: Boolean(flags & 2), over: Boolean(flags & 4),
    frame: view.getUint32(4, true), t: view.getUint32(8, true), seq: view.getUint32(12, true),
    total: view.getFloat64(16, true),
    image: new Blob([new Uint8Array(buffer, 24)], { type: view.getUint8(1) === 2 ? "image/png" : "image/jpeg" }),
  };
}
