"""What the attacks of `soak` work with: reference runs, and a directory in which commands are watched."""

import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from understudy.core.processes import start_python

GOOD = ("survived", "refused")
PATIENCE = 240.0
"""Seconds after which a command counts as hung."""
# The command line with a checkpoint after each round, and not every 30 seconds.
EVERY_ROUND = """
import sys
sys.argv[0] = "understudy"
from understudy.cli.main import main
from understudy.train.checkpoints import Checkpoint
Checkpoint.due = True
main()
"""
TRAINING = {
    "bc": "train bc --demos Pendulum --episodes 5 --seeds 2 --rounds 60 --gradient-steps 100 --hidden 16",
    "dagger": "train dagger --env Forest --expert scripted --episodes 2 --seeds 2 --rounds 6 --gradient-steps 100 "
    "--hidden 16 --episodes-per-round 2",
    "adril": "train adril --env Pendulum --episodes 2 --seeds 2 --rounds 40 --round-steps 64 --frequency 32 "
    "--random-steps 32 --batch-size 16 --sac.hidden 16 --sac.gradient-steps 8",
}
"""Runs in JAX, which must end with the same policies whatever happens to them."""
STUDY = """
[[task]]
env = "Pendulum"
trajectories = [2, 5]

[[algorithm]]
name = "bc"
settings = {{ rounds = 20, gradient_steps = 100, hidden = [16] }}

[[algorithm]]
name = "advil"
settings = {{ rounds = 10, gradient_steps = 20, hidden = [16] }}

[protocol]
seeds = 2
eval_episodes = 2
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int | None
    """None: it hung."""
    out: str
    err: str

    @property
    def one_line(self) -> bool:
        """Whether it was refused: status 1 or 2, and an error in one line."""
        errors = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return self.status in (1, 2) and len(errors) == 1


class Bench:
    """Finished work that trials copy, damage and compare with."""

    def __init__(self, folder: Path):
        self.folder = folder
        maker = Trial("bench", 0, folder, self)
        self.runs: dict[str, Path] = {}
        for name, words in TRAINING.items():
            self.runs[name] = folder / name
            self._check(maker.command(f"{words} --out {name}", EVERY_ROUND))
        self._check(maker.command("demos record CartPole-v1 --out cartpole.npz --episodes 5 --expert bundled"))
        (folder / "soak.toml").write_text(STUDY.format())
        self._check(maker.command("study run soak.toml --out study --jobs 1"))

    def _check(self, ended: Ended) -> None:
        if ended.status != 0:
            raise RuntimeError(f"the reference work failed ({ended.status}): {ended.err[-2000:]}")


class Failed(Exception):
    """A trial that ended badly."""

    def __init__(self, verdict: str, detail: str):
        super().__init__(detail)
        self.verdict = verdict


class Trial:
    """One attack, in an empty directory."""

    def __init__(self, name: str, seed: int, folder: Path, bench: Bench):
        self.name, self.seed, self.folder, self.bench = name, seed, folder, bench
        self.random = random.Random(seed)
        self.kills = self.commands = 0
        self.token = f"{os.getpid()}-{seed}-{id(self)}"
        self.canary: dict[str, str] = {}

    def run(self, attack: Callable[["Trial"], str]) -> tuple[str, str]:
        """The verdict of an attack, and its reason."""
        try:
            self._plant()
            verdict = attack(self)
            self._check_canary()
            return verdict, ""
        except Failed as failed:
            return failed.verdict, str(failed)

    def command(
        self, words: str | list[str], code: str = "", kill: float | None = None, how: int = signal.SIGKILL, **env: str
    ) -> Ended:
        """Run a command of understudy; after `kill` seconds it gets a signal."""
        words = words.split() if isinstance(words, str) else words
        self.commands += 1
        with (self.folder / ".out").open("w+") as out, (self.folder / ".err").open("w+") as err:
            process = start_python(
                ["-c", code, *words] if code else ["-m", "understudy", *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={"SOAK_TOKEN": self.token, **env},
            )
            status: int | None = None
            try:
                if kill is not None:
                    try:
                        process.wait(kill)
                    except subprocess.TimeoutExpired:
                        self.kills += 1
                        process.send_signal(how)
                status = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for file in (out, err):
                file.seek(0)
            ended = Ended(status, out.read(), err.read())
        if status is None:
            raise Failed("hung", f"{words} did not end within {PATIENCE:g} s: {ended.err[-300:]}")
        if "Traceback (most recent call last)" in ended.err:
            raise Failed("traceback", f"{words}: {ended.err[-600:]}")
        self._check_processes(words)
        return ended

    def _check_processes(self, words: list[str]) -> None:
        """Raise if processes of the command are still there ten seconds later."""
        until = time.monotonic() + 10
        while left := self._processes():
            if time.monotonic() > until:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise Failed("hung", f"{words} left processes behind: {left}")
            time.sleep(0.1)

    def _processes(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and f"SOAK_TOKEN={self.token}\0".encode() in (entry / "environ").read_bytes():
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [] if state == "Z" else [int(entry.name)]
            except OSError:  # it has ended
                continue
        return found

    def _plant(self) -> None:
        """Put files of a user beside the work."""
        (self.folder / "paper" / ".git").mkdir(parents=True)
        for name in ("paper/manuscript.tex", "paper/.git/HEAD", "notes.txt", ".run.notes", "config.json"):
            (self.folder / name).write_text(f"{name} {self.random.random()}")
            self.canary[name] = digest(self.folder / name)

    def _check_canary(self) -> None:
        for name, before in self.canary.items():
            path = self.folder / name
            if not path.exists() or digest(path) != before:
                raise Failed("touched", f"{name} was changed or removed")


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
