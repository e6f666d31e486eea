"""The attacks of `soak`: what is done to a command, and what must be true afterwards."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak_bench import EVERY_ROUND, PATIENCE, STUDY, TRAINING, Failed, Trial, digest
from support.byte_mutations import BYTES
from support.mutations import mutate_file
from understudy.core.processes import start_python
from understudy.train.resuming import command_checksum

SIMULATED = (
    "train adril --demos {demos} --env soak_env:Soak-v0 --seeds 2 --rounds 12 --round-steps 64 --frequency 32 "
    "--random-steps 16 --batch-size 16 --soft-q.hidden 8 --soft-q.gradient-steps 2 --step-timeout 3"
)
ENVIRONMENT = """
import os, random, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Soak(CartPoleEnv):
    def step(self, action):
        trouble = random.random()
        if trouble < float(os.environ.get("SOAK_HANG", 0)):
            if random.random() < 0.5:
                time.sleep(10**6)
            sum(range(10**14))
        if trouble > 1 - float(os.environ.get("SOAK_CRASH", 0)):
            os._exit(11)
        return super().step(action)

gymnasium.register("Soak-v0", Soak, max_episode_steps=200)
"""
EVIL = """
import pathlib
pathlib.Path(__file__).with_name("RAN").write_text("code of a stranger ran")
def f(*args): return None
class Evil: pass
"""
SHADOWED = ("optax", "numpy", "multiprocessing", "tempfile", "json", "evil", "tensorboardX", "wandb", "scipy", "random")
BY_ACCIDENT = [mutation.__name__ for mutation in BYTES]
"""Damage after which nothing but the same contents may be read. Others write sound files with other contents."""


def killed_training(trial: Trial, name: str = "") -> str:
    """Kill a run again and again, by SIGKILL or Ctrl-C, and resume it: the policies must be the same to the bit."""
    name = name or trial.random.choice(list(TRAINING))
    _until_finished(trial, f"{TRAINING[name]} --out run", "run")
    if _policies(trial.folder / "run" / "policies") != _reference(trial, name):
        raise Failed("lost", f"the policies of {name} differ from those of a run that was not interrupted")
    return "survived"


def _until_finished(trial: Trial, words: str, out: str, **env: str) -> None:
    run = trial.folder / out
    for attempt in range(40):
        resumes = run.with_name(f"{out}.command.json").exists()
        if run.exists() and not resumes:  # it was killed after it had saved everything
            return
        chance = trial.random.random() < 0.8 and attempt < 30
        kill = trial.random.uniform(1.5, 9) if chance else None
        how = trial.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        line = f"train --resume {out}{' --import soak_env' if 'soak_env' in words else ''}" if resumes else words
        ended = trial.command(line, EVERY_ROUND, kill, how, **env)
        if ended.status == 0:
            left = [path.name for path in trial.folder.glob(f".{out}.*") if path.name != ".run.notes"]
            left += [path.name for path in trial.folder.glob(f"{out}.*")]
            if left:
                raise Failed("lost", f"files were left behind: {left}")
            return
        stopped = ended.one_line and "resume" in ended.err  # a simulator that hung too often
        if ended.status not in (130, 143, -how) and not stopped:
            raise Failed("lost", f"{line} ended with status {ended.status}: {ended.err[-600:]}")
    raise Failed("hung", "the run did not finish after 40 attempts")


def simulator(trial: Trial) -> str:
    """Train in a simulator that hangs and crashes now and then, in a process that is killed now and then."""
    (trial.folder / "soak_env.py").write_text(ENVIRONMENT)
    shutil.copy(trial.bench.folder / "cartpole.npz", trial.folder / "demos.npz")
    words = f"{SIMULATED.format(demos='demos.npz')} --workers {trial.random.choice([1, 2])} --out run"
    trouble = {"SOAK_HANG": str(trial.random.choice([0, 0.002])), "SOAK_CRASH": str(trial.random.choice([0, 0.002]))}
    _until_finished(trial, words, "run", **trouble)
    if len(_policies(trial.folder / "run" / "policies")) != 2:
        raise Failed("lost", "policies are missing")
    return "survived"


def killed_study(trial: Trial) -> str:
    """Kill a study again and again: stored cells never change, and in the end all are there."""
    shutil.copy(trial.bench.folder / "soak.toml", trial.folder / "soak.toml")
    cells = trial.folder / "study" / "cells"
    stored: dict[str, str] = {}
    for attempt in range(30):
        chance = trial.random.random() < 0.8 and attempt < 20
        kill = trial.random.uniform(2, 14) if chance else None
        how = trial.random.choice([signal.SIGKILL, signal.SIGINT])
        ended = trial.command(f"study run soak.toml --out study --jobs {trial.random.choice([1, 2])}", "", kill, how)
        now = {path.name: digest(path) for path in cells.glob("*") if not path.name.startswith(".")}
        changed = [name for name, digest in stored.items() if now.get(name) != digest and name.endswith(".json")]
        if changed:
            raise Failed("lost", f"stored cells changed: {changed}")
        stored = now
        if ended.status == 0:
            expected = {path.stem for path in (trial.bench.folder / "study" / "cells").glob("*.json")}
            if {Path(name).stem for name in now if name.endswith(".json")} != expected:
                raise Failed("lost", f"{len(now)} cells of {len(expected)} are stored")
            if _policies(cells) != _policies(trial.bench.folder / "study" / "cells"):
                raise Failed("lost", "the policies of the cells differ from those of a study that was not interrupted")
            return "survived"
        if ended.status not in (130, 143, -how):
            raise Failed("lost", f"study run ended with status {ended.status}: {ended.err[-600:]}")
    raise Failed("hung", "the study did not finish after 30 attempts")


def damaged_file(trial: Trial) -> str:
    """Damage a file and read it: an error in one line, or the same output as from the undamaged file."""
    name = trial.random.choice(list(TRAINING))
    kind = trial.random.choice(["demos", "policy", "run", "study", "weights"])
    if kind == "demos":
        path, words = trial.folder / "demos.npz", "demos inspect demos.npz"
        shutil.copy(trial.bench.folder / "cartpole.npz", path)
    elif kind in ("policy", "run"):
        shutil.copytree(trial.bench.runs[name], trial.folder / "run")
        files = sorted(path for path in (trial.folder / "run").rglob("*") if path.is_file())
        path = trial.random.choice([file for file in files if (file.suffix == ".npz") == (kind == "policy")])
        words = "evaluate run --episodes 1 --workers 1"
    elif kind == "study":
        shutil.copytree(trial.bench.folder / "study", trial.folder / "study")
        path = trial.random.choice(sorted((trial.folder / "study" / "cells").glob("*")))
        words = "study status study"
    else:
        path, words = (
            trial.folder / "expert.npz",
            "demos record Pendulum --out new.npz --episodes 1 --expert expert.npz",
        )
        _write_weights(path)
    before = trial.command(words)
    (trial.folder / "new.npz").unlink(missing_ok=True)
    damage = mutate_file(path, trial.random.randrange(2**32))
    after = trial.command(words)
    if after.one_line:
        return "refused"
    another = kind in ("demos", "weights") and damage not in BY_ACCIDENT  # a sound file with other contents
    if after.status == 0 and (another or after.out == before.out or path.name in after.out + after.err):
        return "survived"
    verdict = "accepted" if after.status == 0 else "lost"
    said = f"{after.out[-300:]}{after.err[-300:]}"
    raise Failed(verdict, f"{words} after {damage} of {path.name}: status {after.status}: {said}")


def damaged_checkpoint(trial: Trial) -> str:
    """Kill a run, damage its newest checkpoint, and resume: the same policies, or an error in one line."""
    name = trial.random.choice(list(TRAINING))
    trial.command(f"{TRAINING[name]} --out run", EVERY_ROUND, trial.random.uniform(4, 9))
    checkpoint = trial.folder / "run.checkpoint.npz"
    if not checkpoint.exists():  # it was killed early, or not at all
        return killed_training(trial, name) if not (trial.folder / "run").exists() else "survived"
    mutate_file(checkpoint, trial.random.randrange(2**32))
    ended = trial.command("train --resume run", EVERY_ROUND)
    if ended.one_line:
        return "refused"
    if ended.status != 0 or _policies(trial.folder / "run" / "policies") != _policies(
        trial.bench.runs[name] / "policies"
    ):
        raise Failed("lost", f"resuming from a damaged checkpoint: status {ended.status}: {ended.err[-400:]}")
    return "survived"


def full_disk(trial: Trial) -> str:
    """Train on a disk that is nearly full: one line, no lost files; with space again, the run finishes."""
    disk, name = trial.folder / "disk", trial.random.choice(list(TRAINING))
    disk.mkdir()
    size = trial.random.choice([8, 40, 120, 300])
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        return _file_size_limit(trial, name)
    try:
        (disk / "mine.txt").write_text("mine")
        ended = trial.command(f"{TRAINING[name]} --out disk/run", EVERY_ROUND)
        if (disk / "mine.txt").read_text() != "mine":
            raise Failed("touched", "a file on the full disk was changed")
        if ended.status == 0:
            same = _policies(disk / "run" / "policies") == _reference(trial, name)
            if not same:
                raise Failed("lost", "a run on a nearly full disk has other policies")
            return "survived"
        if not ended.one_line:
            raise Failed("lost", f"status {ended.status} on a full disk: {ended.err[-400:]}")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True, capture_output=True)
        resumes = (disk / "run.command.json").exists()
        words = "train --resume disk/run" if resumes else f"{TRAINING[name]} --out disk/run"
        again = trial.command(words, EVERY_ROUND)
        if again.status != 0 or _policies(disk / "run" / "policies") != _reference(trial, name):
            raise Failed("lost", f"after the disk was full: status {again.status}: {again.err[-400:]}")
        return "survived"
    finally:
        subprocess.run(["umount", disk], capture_output=True)


def _file_size_limit(trial: Trial, name: str) -> str:
    """In place of a full disk, if none can be mounted: files may have 20 kB."""
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, -1))\n{EVERY_ROUND}"
    ended = trial.command(f"{TRAINING[name]} --out run", code)
    if not ended.one_line and ended.status != 0:
        raise Failed("lost", f"status {ended.status} with limited files: {ended.err[-400:]}")
    return "refused"


def two_writers(trial: Trial) -> str:
    """Start a second run on the same output: refused at once, and the first one is not disturbed."""
    name = trial.random.choice(list(TRAINING))
    first = start_python(
        ["-c", EVERY_ROUND, *TRAINING[name].split(), "--out", "run"],
        cwd=trial.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + PATIENCE
    while not (trial.folder / "run.lock").exists() and time.monotonic() < until and first.poll() is None:
        time.sleep(0.05)
    second = trial.command(f"{TRAINING[name]} --out run", EVERY_ROUND)
    status = first.wait(PATIENCE)
    if status != 0 or _policies(trial.folder / "run" / "policies") != _reference(trial, name):
        raise Failed("lost", f"the first of two runs on one directory ended with status {status}")
    if not second.one_line:
        raise Failed("lost", f"the second of two runs on one directory: status {second.status}: {second.err[-300:]}")
    return "refused"


def hostile_folder(trial: Trial) -> str:
    """Work in a folder of a stranger, full of modules: none of them runs."""
    for name in SHADOWED:
        (trial.folder / f"{name}.py").write_text(EVIL)
    kind = trial.random.choice(["resume", "study", "work"])
    if kind == "resume":
        words = TRAINING["bc"].split()[1:]
        attack = trial.random.choice(["algorithm", "expert", "env"])
        if attack == "algorithm":
            words[0] = "evil:Evil"
        else:
            words = ["dagger", "--env", "Forest", "--expert", "scripted", "--rounds", "2"]
            words[words.index(f"--{attack}") + 1] = "evil:f"
        content = {"command": words, "directory": ".", "checksum": command_checksum(words, ".")}
        (trial.folder / "run.command.json").write_text(json.dumps(content))
        ended, refused = trial.command("train --resume run"), True
    elif kind == "study":
        text = STUDY.format().replace('"bc"', '"evil:Evil"') if trial.random.random() < 0.5 else STUDY.format()
        (trial.folder / "soak.toml").write_text(text.replace("rounds = 20", "rounds = 2"))
        ended, refused = trial.command("study run soak.toml --jobs 2 --out study"), "evil" in text
    else:
        shutil.copytree(trial.bench.runs["bc"], trial.folder / "run")
        ended, refused = trial.command("evaluate run --episodes 1 --env Pendulum-v1 --workers 2"), False
    if (trial.folder / "RAN").exists():
        raise Failed("lost", f"code of a stranger ran ({kind})")
    if refused and not ended.one_line:
        raise Failed("accepted", f"{kind}: status {ended.status}: {ended.err[-300:]}")
    if not refused and ended.status != 0:
        raise Failed("lost", f"{kind}: status {ended.status}: {ended.err[-300:]}")
    return "refused" if refused else "survived"


def users_folder(trial: Trial) -> str:
    """Write to folders and files of the user: refused, and nothing is touched."""
    words = trial.random.choice(
        [
            f"{TRAINING['bc']} --out paper",
            "expert train Pendulum --out paper --steps 100",
            "demos record Pendulum --out notes.txt --episodes 1",
            "study run soak.toml --out paper",
            "demo --out paper",
            "evaluate run --episodes 1 --out paper",
        ]
    )
    shutil.copytree(trial.bench.runs["bc"], trial.folder / "run")
    (trial.folder / "soak.toml").write_text(STUDY.format())
    ended = trial.command(words)
    if not ended.one_line:
        raise Failed("accepted", f"{words}: status {ended.status}: {ended.err[-300:]}")
    return "refused"


TRIALS: dict[str, Callable[[Trial], str]] = {
    "killed-training": killed_training,
    "simulator": simulator,
    "killed-study": killed_study,
    "damaged-file": damaged_file,
    "damaged-checkpoint": damaged_checkpoint,
    "full-disk": full_disk,
    "two-writers": two_writers,
    "hostile-folder": hostile_folder,
    "users-folder": users_folder,
}
QUICK = ("damaged-file", "damaged-checkpoint", "hostile-folder", "users-folder")


def _reference(trial: Trial, name: str) -> dict[str, list[Any]]:
    """The policies of a run that was left alone."""
    return _policies(trial.bench.runs[name] / "policies")


def _policies(folder: Path) -> dict[str, list[Any]]:
    """The arrays of the policies in a folder, as bytes."""
    import jax

    from understudy.policies.saved import load_policy

    return {
        path.name: [(str(x.dtype), x.shape, x.tobytes()) for x in jax.tree.leaves(load_policy(path).policy)]
        for path in sorted(folder.glob("*.npz"))
    }


def _write_weights(path: Path) -> None:
    import numpy as np

    source = np.random.default_rng(0)
    layers = {"w0": source.normal(size=(3, 8)), "b0": np.zeros(8), "w1": source.normal(size=(8, 1)), "b1": np.zeros(1)}
    np.savez(path, **layers, activation="tanh", squash=True)
