"""A study on Ray: every cell comes back once, whatever happens to a node, and Ray keeps its words to itself."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from understudy.cli.main import main as cli
from understudy.core.errors import ExtraError, RunError
from understudy.studies import Store, Study, on_ray
from understudy.studies.on_ray import run_on_ray
from understudy.studies.running import Plan

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'understudy[ray]'")

TEXT = """
[protocol]
seeds = 2
episodes = 2
holdout = 0.0
[hardware]
cpus = 1
[[task]]
env = "Pendulum"
trajectories = 1
[[algorithm]]
name = "bc"
label = "one"
settings = { rounds = 1, steps = 1, hidden = [4] }
[[algorithm]]
name = "bc"
label = "two"
settings = { rounds = 1, steps = 1, hidden = [4], lr = 1e-4 }
"""


def study(place: Path, text: str = TEXT) -> Study:
    (place / "s.toml").write_text(text)
    return Study.load(place / "s.toml")


def test_a_dead_node_loses_nothing_and_nothing_is_there_twice(tmp_path, monkeypatch, capfd):
    """Two nodes with a CPU each, so a group each. One is killed while its group is there; it goes to the other."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": soon}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(num_cpus=1)
        killed, starts = [], tmp_path / "starts.txt"
        starts.touch()

        class Watched(on_ray._Run):
            def _started(self) -> bool:
                busy = super()._started()
                if not killed and len(starts.read_text().splitlines()) == 2:
                    cluster.remove_node(second, allow_graceful=False)
                    killed.append(len(Plan.of(planned).missing(self.store)))
                return busy

        def slow(*given: Any) -> Any:  # inside, so that it travels by value
            from time import sleep

            from understudy.studies import on_ray

            with starts.open("a") as file:
                file.write(f"{on_ray.__file__}\n")
            sleep(2.0)
            return on_ray.task(*given)

        planned = study(tmp_path)
        monkeypatch.setattr(on_ray, "_Run", Watched)
        monkeypatch.setattr(on_ray, "task", slow)
        outcome = run_on_ray(planned, tmp_path / "out", cluster.address)
    finally:
        cluster.shutdown()
    assert killed == [4]
    assert starts.read_text().splitlines() == 3 * [on_ray.__file__]
    said = capfd.readouterr()
    assert said.out == ""
    assert all("cells stored" in line for line in said.err.splitlines())
    assert (outcome.stored, outcome.failed) == (4, {})
    store = Store(tmp_path / "out")
    assert sorted(record["key"] for record in store.all()) == sorted(cell.key for cell in Plan.of(planned).cells)
    assert len(list(store.cells.glob("*.policy.npz"))) == 4


def test_the_command_runs_a_local_ray_without_its_words(tmp_path, monkeypatch, capfd):
    study(tmp_path, TEXT[: TEXT.rindex("[[algorithm]]")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["understudy", "study", "run", "s.toml", "--ray", "local", "--no-report"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capfd.readouterr()
    assert not stopped.value.code
    assert said.out == "s: 2 of 2 cells, 2 of them new. Kept in runs/s\n"
    assert said.err == "one on Pendulum: 2 cells stored; 2 of 2 cells\n"
    assert not ray.is_initialized()


def test_a_failing_group_on_ray_is_one_line(tmp_path, monkeypatch):
    """In one process: what Ray would call is called."""
    fake = Fake()
    monkeypatch.setattr(on_ray, "_ray", lambda: fake)
    planned = study(tmp_path, TEXT.replace("gpus", "").replace("cpus = 1", "cpus = 3\ngpus = 0.5"))
    monkeypatch.setattr(on_ray, "task", _other_version)
    outcome = run_on_ray(planned, tmp_path / "out", "head:6379")
    assert fake.options["num_cpus"] == 3
    assert fake.options["num_gpus"] == 0.5
    assert fake.options["max_retries"] >= 3
    assert outcome.stored == 0
    assert list(outcome.failed) == ["one on Pendulum", "two on Pendulum"]
    assert "install the same on all nodes" in outcome.failed["one on Pendulum"]
    assert "\n" not in outcome.failed["one on Pendulum"]


def _other_version(plain: Any, number: int, keys: list[str], shown: Any, version: str) -> Any:
    return _task(plain, number, [*keys, "0" * 16] if number else keys, shown, "9.9" if number == 0 else version)


_task = on_ray.task


class Fake:
    """As much of Ray as a study uses, in this process."""

    class exceptions:
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause: Exception):
                self.cause = cause

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}}]

    def remote(self, **options: Any) -> Any:
        self.options = options

        def wrapped(function: Any) -> Any:
            class Remote:
                @staticmethod
                def remote(*given: Any) -> Any:
                    return lambda: function(*given)

            return Remote

        return wrapped

    def wait(self, waiting: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, done: Any) -> Any:
        try:
            return done()
        except RunError as error:
            raise self.exceptions.RayTaskError(error) from error


def test_a_local_ray_that_lacks_what_is_asked_says_so():
    class Small(Fake):
        def nodes(self):
            return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 9.0, "GPU": 9.0}}]

    hardware = Study.from_dict({**_plain(), "hardware": {"gpus": 1, "cpus": 2}}).hardware
    with pytest.raises(RunError, match="has the 2 CPUs and 1 GPUs of a group: ask for less"):
        on_ray._check_nodes(Small(), hardware, "local")


def test_a_cluster_that_lacks_what_is_asked_is_waited_for(capsys):
    class Small(Fake):
        def nodes(self):
            return [{"Alive": True, "Resources": {"CPU": 2.0}}]

    hardware = Study.from_dict({**_plain(), "hardware": {"gpus": 1, "cpus": 2}}).hardware
    on_ray._check_nodes(Small(), hardware, "head:6379")
    assert "waiting for one to join it" in capsys.readouterr().err


def _plain() -> dict[str, Any]:
    return {"name": "s", "tasks": [{"env": "Pendulum"}], "algorithms": [{"name": "bc"}], "protocol": {}, "hardware": {}}


def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path):
    began = time.monotonic()
    with pytest.raises(RunError, match=r"no Ray cluster at '127\.0\.0\.1:9'"):
        run_on_ray(study(tmp_path), tmp_path / "out", "127.0.0.1:9")
    assert time.monotonic() - began < 20


def test_without_ray_the_command_to_install_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraError, match=r"pip install 'understudy\[ray\]'"):
        run_on_ray(study(tmp_path), tmp_path / "out", "local")
    assert not os.path.exists(tmp_path / "out")
