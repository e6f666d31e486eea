"""Fuzzing of the formats of demonstrations, whole directories too.

A format needs a function that writes valid files into a folder. `format_target(name, make)` is then a target of
`tests/support/fuzzing.py` and `tools/fuzz.py`, and `fuzz_format(target, folder, seeds)` is a test: each damaged copy is
refused in one line that names it, or read as valid demonstrations, whether its format is named or recognised.

    TARGET = format_target("csv", make_csv)

    def test_damaged_csv_files_are_read_or_refused_by_name(tmp_path):
        assert fuzz_format(TARGET, tmp_path, range(200))["refused"] > 100
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

import understudy as us
from support.fuzzing import Target, attack, check_demonstrations
from support.mutations import loaded
from understudy.data.details import Details

LENGTHS = np.array([4, 3, 5])
STEPS = int(LENGTHS.sum())


def format_target(name: str, make: Callable[[Path], list[Path]], checksums: bool = False) -> Target:
    """A target for a format. `make` writes valid files or directories into a folder and returns them."""

    def load(path: Path) -> us.Demonstrations:
        recognised = loaded(lambda: us.load(path), path.name)
        if recognised is not None:
            check_demonstrations(recognised)
        return us.load(f"{name}:{path}")

    return Target(make, load, check_demonstrations, checksums)


def fuzz_format(target: Target, folder: Path, seeds: Iterable[int]) -> collections.Counter[str]:
    """Damage copies of valid files. Returns how many were "refused" and "valid"; anything else is an assertion."""
    (folder / "valid").mkdir()
    (folder / "damaged").mkdir()
    valid = target.make(folder / "valid")
    for path in valid:
        target.check(target.load(path))
    outcomes = collections.Counter[str]()
    for seed in seeds:
        try:
            _, was_read = attack(target, valid, folder / "damaged", seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        outcomes["valid" if was_read else "refused"] += 1
    return outcomes


def assert_same_facts(
    one: us.Demonstrations, other: us.Demonstrations, lost: Sequence[str] = (), lost_details: Sequence[str] = ()
) -> None:
    """Compare all facts but the lost ones, bit for bit."""
    for field in dataclasses.fields(us.Demonstrations):
        if field.name not in (*lost, "details"):
            a, b = np.asarray(getattr(one, field.name)), np.asarray(getattr(other, field.name))
            assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), field.name
    for field in dataclasses.fields(Details):
        if field.name not in lost_details:
            a, b = getattr(one.details, field.name), getattr(other.details, field.name)
            np.testing.assert_array_equal(a, b, field.name)


def demonstrations(discrete: bool) -> us.Demonstrations:
    """Demonstrations with every fact that there is."""
    rng = np.random.default_rng(0)
    return us.Demonstrations.from_arrays(
        rng.normal(size=(STEPS, 3)),
        np.arange(STEPS) % 3 if discrete else rng.uniform(-1, 1, (STEPS, 2)),
        LENGTHS,
        last_observations=rng.normal(size=(3, 3)),
        terminals=np.isin(np.arange(STEPS), (3, 11)),
        rewards=rng.normal(size=STEPS),
        action_space=us.Discrete(4) if discrete else us.Continuous((-2.0, -3.0), (2.0, 1.0)),
        horizon=8,
        env="Somewhere-v0",
        obs_parts=(("arm.joints", 2), ("goal", 1)),
        details=Details(
            successes=(True, False, True),
            tasks=("lift, slowly", 'say "x"', "lift, slowly"),
            interventions=np.arange(STEPS) % 4 == 0,
            action_names=("push",) if discrete else ("push", "pull"),
            action_units="N",
            fps=30.0,
            origin="somewhere/data-v0",
        ),
    )


def make_csv(folder: Path) -> list[Path]:
    paths = [folder / "discrete.csv", folder / "continuous.csv", folder / "plain.csv"]
    for path, discrete in zip(paths[:2], (True, False), strict=True):
        demonstrations(discrete).save(path)
    plain = demonstrations(False)
    us.Demonstrations.from_arrays(plain.observations, plain.actions, LENGTHS, terminals=plain.terminals).save(paths[2])
    return paths


def make_arrays(folder: Path) -> list[Path]:
    """Two npz files with other names, one of whole episodes, and a directory."""
    d = demonstrations(False)
    np.savez(folder / "flat.npz", obs=d.observations, acts=d.actions, dones=d.terminals, timeouts=np.zeros(STEPS, bool))
    rng = np.random.default_rng(1)
    batch = {"states": rng.normal(size=(3, 6, 2)), "actions": rng.normal(size=(3, 5, 1)), "episode_lengths": LENGTHS}
    np.savez_compressed(folder / "batch.npz", **batch)
    d.save(f"arrays:{folder / 'directory'}")
    return [folder / "flat.npz", folder / "batch.npz", folder / "directory"]


FORMAT_TARGETS = {"csv": format_target("csv", make_csv), "arrays": format_target("arrays", make_arrays)}
"""The formats that `tools/fuzz.py` attacks, by name."""
