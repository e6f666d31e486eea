"""The console in Chromium: time from a key to the first changed pixel, pictures a second, memory over many pictures.

python benchmarks/console.py [--keys 150] [--frames 108000]

A key is pressed through DevTools, as a person presses it. Its time ends with the frame after the first picture whose
step used the action. Memory is measured while the clock runs as fast as it can (120 steps a second), in episodes of
1000 steps that are discarded.
"""

import argparse
import importlib
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from understudy.train.tables import provenance, write_csv

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
browser, support = importlib.import_module("support.browser"), importlib.import_module("support.console")
ENV = ("--env", "Pendulum-v1", "--horizon", "1000", "--algorithm", "bc", "--rounds", "100000")
HOOKS = """
(() => {
  const waiting = [], drawn = window.drawn = [], acts = window.acts = [];
  let pressed = 0;
  addEventListener("keydown", (event) => { pressed = event.timeStamp; }, { capture: true });
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    const message = JSON.parse(data);
    if (message.type === "act") acts.push({ seq: message.seq, pressed, action: message.action[0] });
    send.call(this, data);
  };
  const read = DataView.prototype.getUint32;
  DataView.prototype.getUint32 = function (offset, little) {
    const value = read.call(this, offset, little);
    if (offset === 12) waiting.push(value);
    return value;
  };
  const draw = CanvasRenderingContext2D.prototype.drawImage;
  CanvasRenderingContext2D.prototype.drawImage = function (...given) {
    draw.apply(this, given);
    const entry = { seq: waiting.shift(), drawn: performance.now(), shown: null };
    drawn.push(entry);
    requestAnimationFrame(() => setTimeout(() => { entry.shown = performance.now(); }));
  };
  window.keepGoing = () => setInterval(() => {
    const [go, discard] = ["go", "discard"].map((id) => document.getElementById(id));
    if (document.getElementById("stage-status").textContent.startsWith("The episode is over")) discard.click();
    else if (!go.disabled && !go.textContent.startsWith("Pause")) go.click();
  }, 100);
})();0
"""
"""Records when keys are pressed and pictures are drawn. Pictures are drawn in the order in which they arrive."""
GAP = """(acts.filter((act) => act.action !== 0 && act.pressed > 0).map((act) => {
  const first = drawn.find((one) => one.seq >= act.seq && one.shown !== null);
  return first ? first.shown - act.pressed : null;
}).filter((gap) => gap !== null))"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of the console from a key to a pixel.")
    parser.add_argument("--keys", type=int, default=150, help="keys that are pressed in each setting (default: 150)")
    parser.add_argument(
        "--frames", type=int, default=108_000, help="pictures of the memory measurement (default: 108000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the times between keys (default: 0)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/console-latency.csv", help="CSV file to write")
    options = parser.parse_args()
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    rows: list[list[Any]] = []

    def note(measure: str, beside: str, median: float, high: float | None, unit: str, samples: int) -> None:
        load = f"{os.getloadavg()[0]:.1f}"
        text = f"{measure}, {beside}: {median:.1f} {unit}" + ("" if high is None else f", 95th percentile {high:.1f}")
        print(f"{text} ({samples} samples, load {load})", flush=True)
        about = [
            f"python benchmarks/{made['command']}",
            options.seed,
            versions,
            f"{os.cpu_count()} cores",
            load,
            made["date"],
        ]
        rows.append([measure, beside, round(median, 2), "" if high is None else round(high, 2), unit, samples, *about])

    path = browser.find_chromium()
    if path is None:
        sys.exit(browser.NO_CHROMIUM)
    with (
        tempfile.TemporaryDirectory() as folder,
        support.Console(Path(folder) / "console", *ENV) as console,
        browser.Browser(path) as running,
    ):
        person = support.Person(running, console, support.PENDULUM)
        person.demonstrate(1, 20)
        measure_all(person, console, options, note)
    names = [
        "measure",
        "beside",
        "median",
        "p95",
        "unit",
        "samples",
        "command",
        "seed",
        "versions",
        "machine",
        "load",
        "date",
    ]
    write_csv(options.out, names, rows)


def measure_all(person: Any, console: Any, options: argparse.Namespace, note: Any) -> None:
    page = person.page
    page.run(HOOKS)
    person.start(step_by_step=False)
    size = page.run("[picture.width, picture.height].join(' × ')")
    for beside in ("nothing", "training"):
        if beside == "training":
            person.mode("progress")
            person.click("train")
            person.says("training-status", "Round 1 trains", 120)
            person.mode("demonstrate")
        for rate in (30, 120):
            set_rate(page, rate)
            if rate == 30:
                gaps = press_keys(page, options.keys, random.Random(options.seed))
                note("key to pixel at 30 steps/s", beside, statistics.median(gaps), high(gaps), "ms", len(gaps))
            counts = rates(page, 10)
            note(
                f"pictures a second at {rate} steps/s, {size}",
                beside,
                statistics.median(counts),
                None,
                "1/s",
                len(counts),
            )
    person.mode("progress")
    person.click("stop")
    person.mode("demonstrate")
    grow(page, console, options.frames, note)


def set_rate(page: Any, rate: float) -> None:
    slider = f"Math.round(100 * Math.log({rate} / 0.5) / Math.log(240))"
    page.run(f"(s => {{ s.value = {slider}; s.dispatchEvent(new Event('change')); }})(document.getElementById('rate'))")
    page.until(f"Math.abs(parseFloat(document.getElementById('rate-text').textContent) / {rate} - 1) < 0.05")
    page.run("window.going ??= keepGoing(); 0")
    page.until("document.getElementById('go').textContent.startsWith('Pause')")


def press_keys(page: Any, count: int, source: random.Random) -> list[float]:
    """Milliseconds from each key to the frame that shows its first step."""
    page.run("acts.length = drawn.length = 0")
    for number in range(count):
        page.until("document.getElementById('go').textContent.startsWith('Pause')")
        page.key(("ArrowLeft", "ArrowRight")[number % 2], up=False)
        time.sleep(source.uniform(0.1, 0.2))
        page.key(("ArrowLeft", "ArrowRight")[number % 2], down=False)
        time.sleep(source.uniform(0.05, 0.15))
    return sorted(gap for gap in page.run(GAP) if gap < 5000)  # above: the episode ended before the step


def high(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def rates(page: Any, seconds: int) -> list[float]:
    """Pictures drawn in each second in which the clock ran throughout."""
    found: list[float] = []
    while len(found) < seconds:
        state = "document.getElementById('go').textContent.startsWith('Pause')"
        before = page.run(f"[{state}, drawn.length, performance.now()]")
        time.sleep(1.0)
        after = page.run(f"[{state}, drawn.length, performance.now()]")
        t = page.run("Number(document.getElementById('read-t').textContent.replace(',', ''))")
        if before[0] and after[0] and t > 130:
            found.append(1000 * (after[1] - before[1]) / (after[2] - before[2]))
    return found


def grow(page: Any, console: Any, frames: int, note: Any) -> None:
    """Memory of the server's processes and of the page, after a tenth of the pictures and at the end."""
    page.run(
        "window.total = 0; setInterval(() => { window.total += drawn.length; drawn.length = acts.length = 0; }, 500); 0"
    )
    set_rate(page, 120)
    begun = time.monotonic()
    for share in (0.1, 0.5, 1.0):
        while page.run("window.total") < share * frames:
            time.sleep(0.5)
        count = int(page.run("window.total"))
        for name, size in zip(("the server and its helpers", "the page's heap"), memory(page, console), strict=True):
            note(f"memory of {name} after {count} pictures", "nothing", size, None, "MB", 1)
    note("pictures a second over the whole time", "nothing", count / (time.monotonic() - begun), None, "1/s", count)


def memory(page: Any, console: Any) -> list[float]:
    """Megabytes: resident memory of the console's processes, and the page's heap after a garbage collection."""
    page.call("HeapProfiler.collectGarbage")
    heap = page.call("Runtime.getHeapUsage")["usedSize"] / 1e6
    total = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == console.process.pid:
                lines = status.read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3
        except (ProcessLookupError, FileNotFoundError):  # it has ended
            continue
    return [total, heap]


if __name__ == "__main__":
    main()
