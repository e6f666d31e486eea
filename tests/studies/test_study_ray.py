"""A study on Ray. Tests that start Ray are slow; the others replace it by a few lines in this process."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.sockets import is_loopback, listening_addresses
from understudy.cli.main import main
from understudy.core.errors import ExtraError, RunError
from understudy.studies import Hardware, Store, Study, on_ray
from understudy.studies.on_ray import run_on_ray
from understudy.studies.running import Plan

TEXT = """
[protocol]
seeds = 2
eval_episodes = 2
holdout = 0.0
[hardware]
cpus = 1
[[task]]
env = "Pendulum"
trajectories = 1
[[algorithm]]
name = "bc"
label = "one"
settings = { rounds = 1, gradient_steps = 1, hidden = [4] }
[[algorithm]]
name = "bc"
label = "two"
settings = { rounds = 1, gradient_steps = 1, hidden = [4], lr = 1e-4 }
"""
run_task = on_ray.run_task


def make_study(folder: Path, text: str = TEXT) -> Study:
    (folder / "s.toml").write_text(text)
    return Study.load(folder / "s.toml")


def check_all_stored(study: Study, directory: Path) -> None:
    store = Store(directory)
    assert sorted(record["key"] for record in store.read_all()) == sorted(cell.key for cell in Plan.load(study).cells)
    assert len(list(store.cells.glob("*.policy.npz"))) == 4


class FakeRay:
    """The part of Ray that a study uses, in this process."""

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

        def wrap(function: Any) -> Any:
            class Remote:
                @staticmethod
                def remote(*given: Any) -> Any:
                    return lambda: function(*given)

            return Remote

        return wrap

    def wait(self, pending: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return pending[:1], pending[1:]

    def get(self, task: Any) -> Any:
        try:
            return task()
        except RunError as error:
            raise self.exceptions.RayTaskError(error) from error


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(on_ray, "_import_ray", lambda address: fake)
    return fake


def test_cells_of_tasks_are_stored_once(tmp_path, fake_ray):
    study = make_study(tmp_path)
    summary = run_on_ray(study, tmp_path / "out", "head:6379")
    assert (summary.stored, summary.failed) == (4, {})
    check_all_stored(study, tmp_path / "out")
    again = run_on_ray(study, tmp_path / "out", "head:6379")
    assert (again.stored, again.failed) == (0, {})


def test_tasks_request_the_studys_hardware_and_failures_are_one_line(tmp_path, fake_ray, monkeypatch):
    def other_version(study: Any, number: int, keys: list[str], demos: Any, version: str) -> Any:
        return run_task(study, number, [*keys, "0" * 16] if number else keys, demos, "9.9" if number == 0 else version)

    monkeypatch.setattr(on_ray, "run_task", other_version)
    study = make_study(tmp_path, TEXT.replace("cpus = 1", "cpus = 3\ngpus = 0.5"))
    summary = run_on_ray(study, tmp_path / "out", "head:6379")
    assert (fake_ray.options["num_cpus"], fake_ray.options["num_gpus"]) == (3, 0.5)
    assert fake_ray.options["max_retries"] >= 3
    assert summary.stored == 0
    assert list(summary.failed) == ["one on Pendulum", "two on Pendulum"]
    assert "9.9" in summary.failed["one on Pendulum"]
    assert not any("\n" in error for error in summary.failed.values())


def test_a_node_that_died_too_often_fails_its_group_only(tmp_path, fake_ray, monkeypatch):
    def dying(study: Any, number: int, *given: Any) -> Any:
        if number == 0:
            raise FakeRay.exceptions.RayError("node died")
        return run_task(study, number, *given)

    monkeypatch.setattr(on_ray, "run_task", dying)
    summary = run_on_ray(make_study(tmp_path), tmp_path / "out", "head:6379")
    assert summary.stored == 2
    assert list(summary.failed) == ["one on Pendulum"]


def test_a_local_ray_without_enough_resources_is_an_error():
    class Small(FakeRay):
        def nodes(self):
            return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 9.0, "GPU": 9.0}}]

    with pytest.raises(RunError, match="2 CPUs and 1 GPUs"):
        on_ray._check_nodes(Small(), Hardware(gpus=1, cpus=2), "local")


def test_a_cluster_without_enough_resources_is_a_warning(capsys):
    on_ray._check_nodes(FakeRay(), Hardware(gpus=2, cpus=2), "head:6379")
    assert "2 CPUs and 2 GPUs" in capsys.readouterr().err


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraError, match=r"understudy-il\[ray\]"):
        run_on_ray(make_study(tmp_path), tmp_path / "out", "local")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("address", "warned"), [("127.0.0.1", False), ("::1", False), ("10.1.2.3", True)])
def test_a_local_ray_that_others_can_reach_is_reported_in_one_line(capsys, address, warned):
    """Ray reads its variable when it is imported, so a program that imported it before has a node for the network."""
    nodes = [{"Alive": True, "NodeManagerAddress": address}, {"Alive": False, "NodeManagerAddress": "10.9.9.9"}]
    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **given: None,
        nodes=lambda: nodes,
        shutdown=lambda: None,
    )
    with on_ray._connect(fake, "local"):
        lines = capsys.readouterr().err.splitlines()
    assert len(lines) == warned
    assert all("listens on 10.1.2.3 " in line and "--jobs" in line for line in lines)


def test_the_variable_of_a_local_ray_does_not_stay_in_the_environment(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.delenv(on_ray.ONLY_LOCAL, raising=False)
    on_ray._import_ray("local")
    assert on_ray.ONLY_LOCAL not in os.environ
    monkeypatch.setenv(on_ray.ONLY_LOCAL, "1")
    on_ray._import_ray("local")
    assert os.environ[on_ray.ONLY_LOCAL] == "1"


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory):
    """`study run --ray local` in a directory with modules of a stranger: the folder, its output, its listening sockets.

    Only mine.py was named by the person.
    """
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("local-ray")
    for name in ("json", "jax", "numpy", "optax", "yaml"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write(__name__)\n")
    (folder / "mine.py").write_text("from understudy.algorithms.off_q.bc import BC\n\n\nclass Mine(BC): ...\n")
    text = TEXT[: TEXT.rindex("[[algorithm]]")].replace('name = "bc"', 'name = "mine:Mine"')
    (folder / "s.toml").write_text(text)
    words = ["study", "run", "s.toml", "--ray", "local", "--no-report", "--import", "mine"]
    sockets: dict[int, Any] = {}
    with open(folder / "output.txt", "wb") as output:
        command = subprocess.Popen(
            [sys.executable, "-P", "-m", "understudy", *words], cwd=folder, stdout=output, stderr=output
        )
        while command.poll() is None:
            sockets.update(listening_addresses(command.pid))
            time.sleep(0.05)
    return folder, (folder / "output.txt").read_text(), sockets


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sockets are read from /proc")
def test_a_local_ray_listens_on_this_machine_only(local_ray):
    _, output, sockets = local_ray
    assert len(sockets) > 3
    assert {port: address for port, address in sockets.items() if not is_loopback(address)} == {}
    assert "warning" not in output


@pytest.mark.slow
def test_ray_tasks_import_nothing_from_the_current_directory_that_the_person_did_not_name(local_ray):
    folder, output, _ = local_ray
    assert "s: 2 of 2 cells, 2 of them new" in output
    assert not (folder / "ran").exists()


def test_sockets_of_this_process_are_found_with_their_addresses():
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("0.0.0.0", 0)) as open_to_all:
        found = listening_addresses(os.getpid())
        assert is_loopback(found[own.getsockname()[1]])
        assert not is_loopback(found[open_to_all.getsockname()[1]])


@pytest.mark.slow
def test_an_unreachable_cluster_is_named(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(RunError, match=r"127\.0\.0\.1:9"):
        run_on_ray(make_study(tmp_path), tmp_path / "out", "127.0.0.1:9")


@pytest.mark.slow
def test_the_command_runs_a_local_ray(tmp_path, monkeypatch, capfd):
    ray = pytest.importorskip("ray")
    make_study(tmp_path, TEXT[: TEXT.rindex("[[algorithm]]")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["understudy", "study", "run", "s.toml", "--ray", "local", "--no-report"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "s: 2 of 2 cells, 2 of them new" in capfd.readouterr().out
    assert not ray.is_initialized()


@pytest.mark.slow
def test_a_dead_node_loses_no_cell_and_no_cell_is_stored_twice(tmp_path, monkeypatch):
    """Two nodes with one CPU each train one group each. One node is killed, and its group moves to the other."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": soon}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(num_cpus=1)
        starts, killed = tmp_path / "starts.txt", tmp_path / "killed.txt"
        starts.touch()

        class Killing(on_ray._RayRun):
            def _start_groups(self) -> bool:
                busy = super()._start_groups()
                if not killed.exists() and len(starts.read_text().splitlines()) == 2:
                    cluster.remove_node(second, allow_graceful=False)
                    killed.touch()
                return busy

        def waiting_task(*given: Any) -> Any:  # a closure, so that Ray pickles it by value
            from time import sleep

            from understudy.studies import on_ray

            with starts.open("a") as file:
                file.write(f"{on_ray.__file__}\n")
            while not killed.exists():
                sleep(0.1)
            return on_ray.run_task(*given)

        study = make_study(tmp_path)
        monkeypatch.setattr(on_ray, "_RayRun", Killing)
        monkeypatch.setattr(on_ray, "run_task", waiting_task)
        summary = run_on_ray(study, tmp_path / "out", cluster.address)
    finally:
        cluster.shutdown()
    assert starts.read_text().splitlines() == 3 * [on_ray.__file__]
    assert (summary.stored, summary.failed) == (4, {})
    check_all_stored(study, tmp_path / "out")
