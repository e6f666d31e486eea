"""A console in a process of its own, and a scripted person in a browser who sees and uses only the page."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.browser import Browser, Page

STARTED = 60.0
TRAINED = 240.0
CHUNK = 50
"""Steps that a person drives in one call."""
ADDRESS = re.compile(rb"http://\S+\?token=[0-9a-f]+")

CARTPOLE = "([x, v, angle, speed]) => angle + 0.5 * speed + 0.05 * x + 0.1 * v > 0 ? 1 : 0"
PENDULUM = """([cos, sin, speed]) => {
  const angle = Math.atan2(sin, cos), energy = speed ** 2 / 6 + 5 * (cos - 1);
  const clip = (torque) => Math.min(2, Math.max(-2, torque));
  const near = 1 / (1 + Math.exp(20 * (Math.abs(angle) - 0.7)));
  return near * clip(-8 * angle - 2 * speed) + (1 - near) * clip(-2 * energy * Math.tanh(speed / 2));
}"""
"""Rules that a person follows: from the numbers on the page to the action."""

PERSON = """
window.person = (() => {
  const byId = (id) => document.getElementById(id);
  const numbers = (id) => [...byId(id).rows].filter((row) => row.cells[0].textContent.startsWith("observation"))
    .map((row) => Number(row.cells[1].textContent.replaceAll(",", "")));
  const shown = () => byId("details-body").rows[0]?.cells[1].textContent;
  const until = async (test) => {
    while (!test()) await new Promise((resolve) => setTimeout(resolve, 2));
  };
  const choose = (pad, action) => {
    const slider = pad.querySelector("input");
    if (slider) {
      slider.value = action;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    } else pad.querySelectorAll("button")[action].dispatchEvent(new Event("pointerdown", { bubbles: true }));
  };
  /* Step by step, until the episode is over or has `most` steps. */
  const drive = async (rule, most) => {
    byId("details").open = true;
    for (let t = Number(byId("read-t").textContent); t < most && !byId("step").disabled; t += 1) {
      choose(byId("pad"), rule(numbers("details-body")));
      byId("step").click();
      await until(() => byId("step").getAttribute("aria-busy") === "false");
      await until(() => byId("read-t").textContent === String(t + 1) && shown() === String(t + 1));
    }
    return Number(byId("read-t").textContent);
  };
  const answer = async (rule) => {
    let answered = 0;
    const pending = () => Number(byId("count-pending").textContent);
    while (pending() > 0 && byId("answer-hint").textContent.includes("What would you do")) {
      const left = pending();
      choose(byId("answer-pad"), rule(numbers("question-numbers")));
      if (!byId("answer").hidden) byId("answer").click();
      await until(() => pending() !== left);
      answered += 1;
    }
    return answered;
  };
  return { drive, answer };
})()
"""


class Console:
    """`understudy console` in a process of its own, used in a `with` block."""

    def __init__(self, out: Path, *arguments: str, folder: Path | None = None):
        """`out` is relative to `folder`, the current directory of the process."""
        self.out, self._arguments, self._folder, self.port = out, arguments, folder, 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "understudy", "console", "--out", str(self.out), "--no-browser"]
        command += ["--port", str(self.port), *self._arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self._folder, start_new_session=True
        )
        text, until = b"", time.monotonic() + STARTED
        assert self.process.stdout is not None
        while (found := ADDRESS.search(text)) is None or b"\n" not in text[found.end() :]:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not chunk:
                self.kill()
                raise AssertionError(f"the console did not start: {text.decode()}")
            text += chunk
        self.address = found[0].decode()
        self.port = int(self.address.split(":")[2].split("/")[0])

    def kill(self) -> None:
        """kill -9, of the server and its helpers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STARTED)
            except subprocess.TimeoutExpired:
                self.kill()


class Person:
    """Someone in front of the page."""

    def __init__(self, browser: Browser, console: Console, rule: str, **look: Any):
        self.page: Page = browser.page(console.address, **look)
        self.rule = rule
        self.ready()

    def ready(self, word: str = "You have control") -> None:
        """Wait until the page is connected."""
        self.page.until(f"document.getElementById('connection').textContent === {json.dumps(word)}", STARTED)
        self.page.until("!document.querySelector('main > section:not([hidden])').hidden")
        self.page.run(PERSON + ";0")

    def text(self, id_: str) -> str:
        return self.page.run(f"document.getElementById({json.dumps(id_)}).textContent")

    def number(self, id_: str) -> float:
        return float(self.text(id_).replace(",", ""))

    def says(self, id_: str, start: str, seconds: float = 30.0) -> None:
        """Wait until a text of the page starts so."""
        self.page.until(
            f"document.getElementById({json.dumps(id_)}).textContent.startsWith({json.dumps(start)})", seconds
        )

    def click(self, id_: str) -> None:
        """Click a button once it can be clicked."""
        self.page.until(f"!document.getElementById({json.dumps(id_)}).disabled")
        self.page.click(f"#{id_}")

    def mode(self, name: str) -> None:
        self.page.until(f"!document.querySelector('[data-mode={name}]').disabled")
        self.page.click(f"[data-mode={name}]")
        self.page.until(f"document.querySelector('[data-mode={name}]').getAttribute('aria-current') === 'page'")

    def start(self, step_by_step: bool = True) -> None:
        """Start an attempt. It is paused at its first state."""
        if self.page.run("document.getElementById('stepping').checked") != step_by_step:
            self.click("stepping")
            self.page.until(f"document.getElementById('stepping').checked === {json.dumps(step_by_step)}")
        self.says("go", "Start")
        self.page.run("document.getElementById('details').open = true")
        self.click("go")
        self.says("stage-status", "Step by step" if step_by_step else "Paused")
        self.page.until("document.querySelector('#details-body td')?.textContent === '0'")

    def drive(self, steps: int = 10_000) -> int:
        """Drive step by step. Returns the steps of the attempt."""
        t = self.number("read-t")
        while t < steps and not self.page.run("document.getElementById('step').disabled"):
            t = self.page.run(f"person.drive({self.rule}, {min(steps, t + CHUNK)})")
        return int(t)

    def step(self) -> None:
        """Take one step with the held action, whoever drives."""
        t = int(self.number("read-t"))
        self.click("step")
        self.page.until(f"document.getElementById('read-t').textContent === '{t + 1}'")
        self.page.until(f"document.querySelector('#details-body td')?.textContent === '{t + 1}'")

    def keep(self) -> None:
        before = self.kept
        self.click("keep")
        self.says("episode-counts", f"{before + 1} episode")
        self.says("go", "Start")

    @property
    def kept(self) -> int:
        return int(self.text("episode-counts").split()[0])

    def demonstrate(self, episodes: int, steps: int) -> list[int]:
        """Drive and keep episodes of at most this many steps; their lengths."""
        lengths = []
        for _ in range(episodes):
            self.start()
            lengths.append(self.drive(steps))
            self.keep()
        return lengths

    def train(self) -> None:
        """Do a round, and answer what it asks."""
        self.mode("progress")
        before = len(self.policies)
        self.click("train")
        rows = "document.getElementById('policies').rows.length"
        asks = "document.getElementById('training-status').textContent.includes(' asks')"
        trained = (
            f"({rows} > {before + 1} && document.getElementById('training-status').textContent.includes(' is done'))"
        )
        failed = "document.getElementById('training-status').textContent.startsWith('Training failed')"
        self.page.until(f"{trained} || {asks} || {failed}", TRAINED)
        if self.page.run(asks):
            self.mode("answer")
            self.page.until("document.getElementById('question-list').children.length > 0")
            self.page.run(f"person.answer({self.rule})")
            self.mode("progress")
            self.page.until(f"{trained} || {failed}", TRAINED)
        assert not self.page.run(failed), self.text("training-status")

    @property
    def policies(self) -> list[dict[str, Any]]:
        """Number and mean return of every policy in the table of the progress, the oldest first."""
        rows = self.page.run(
            "[...document.querySelectorAll('#policies tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        found = [
            {"id": int(row[0].split()[1]), "return": float(row[2].split(" (")[0].replace(",", ""))} for row in rows
        ]
        return sorted(found, key=lambda one: one["id"])
