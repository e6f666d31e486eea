"""Draw the pictures of docs/console.md: the real page in Chromium, used by the scripted person of the tests.

python tools/console_pictures.py [--out docs/images]
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import NO_CHROMIUM, Browser, find_chromium  # noqa: E402
from support.console import CARTPOLE, PENDULUM, Console, Person  # noqa: E402

WIDTH, HEIGHT = 1000, 820
LEARN = ("--algorithm", "dagger", "--preset", "quick", "--budget", "100")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/console.md.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images", help="directory (default: docs/images)")
    out = parser.parse_args().out
    path = find_chromium()
    if path is None:
        sys.exit(NO_CHROMIUM)
    # The directory's name is on the page.
    with tempfile.TemporaryDirectory() as folder, Browser(path) as browser:
        with Console(Path("runs/mine"), "--env", "Pendulum", *LEARN, folder=Path(folder)) as console:
            draw(Person(browser, console, PENDULUM, width=WIDTH, height=HEIGHT), out)
        with Console(Path("runs/cart"), "--env", "CartPole-v1", *LEARN, folder=Path(folder)) as console:
            person = Person(browser, console, CARTPOLE, width=400, height=800, dark=True)
            person.start()
            person.drive(12)
            person.page.run(
                "scrollTo(0, 0); document.activeElement.blur(); document.getElementById('details').open = false"
            )
            person.page.screenshot(out / "console-narrow.png", whole=False)


def draw(person: Person, out: Path) -> None:
    page = person.page
    person.demonstrate(9, 20)
    person.start()
    person.drive(20)
    shot(person, out / "console-demonstrate.png")
    person.keep()
    person.train()
    person.mode("progress")
    person.click("train")
    page.until("document.getElementById('training-status').textContent.includes(' asks')", 240)
    person.mode("answer")
    for _ in range(4):
        left = person.text("count-pending")
        person.click("agree")
        page.until(f"document.getElementById('count-pending').textContent !== '{left}'")
    page.until("document.querySelector('#answer-player canvas').dataset.shown", 240)
    shot(person, out / "console-answer.png")
    page.run(f"person.answer({person.rule})")
    person.mode("progress")
    person.says("training-status", "Round 2 is done", 240)
    for _ in range(2):
        person.train()
    page.until("parseInt(document.querySelector('#newest-player canvas').dataset.shown?.split('/')[1]) > 20", 240)
    shot(person, out / "console-progress.png")
    person.mode("watch")
    person.start()
    for _ in range(12):
        person.step()
    person.click("take")
    person.says("who", "you drive")
    person.drive(18)
    shot(person, out / "console-watch.png")
    person.click("discard")
    person.mode("compare")
    person.click("next-pair")
    for side in ("left", "right"):
        page.until(f"document.querySelector('#{side}-player canvas').dataset.shown", 240)
        timeline = f"document.querySelector('#{side}-player input')"
        page.run(f"{timeline}.value = 40; {timeline}.dispatchEvent(new Event('input'))")
        page.until(f"document.querySelector('#{side}-player canvas').dataset.shown.endsWith('/40')", 240)
    shot(person, out / "console-compare.png")


def shot(person: Person, file: Path) -> None:
    """Write the window, as a person sees it at the top of the page."""
    person.page.run("scrollTo(0, 0); document.activeElement.blur(); document.getElementById('details').open = false")
    person.page.screenshot(file, whole=False)
    person.page.run("document.getElementById('details').open = true")


if __name__ == "__main__":
    main()
