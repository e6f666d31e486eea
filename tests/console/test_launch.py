"""What can be wrong when a console starts: one line each."""

import builtins
import socket
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from understudy.cli.console_command import console_command, parse
from understudy.console.launch import console
from understudy.console.server import own_address
from understudy.core.errors import (
    DemonstrationError,
    ExtraError,
    NeedsError,
    RunError,
    SettingError,
    UnknownNameError,
)


def test_the_room_and_the_function_have_one_name() -> None:
    import understudy.console.store  # noqa: F401 (now `understudy.console` is the room)

    with pytest.raises(UnknownNameError, match="Pendulm"):
        us.console("Pendulm")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"algorithm": us.dagger}, SettingError, "algorithm is"),
        ({"algorithm": us.aggrevate()}, NeedsError, "action values"),
        ({"algorithm": us.daequil(moments=lambda obs, act: obs)}, SettingError, "in a module"),
        ({"demonstrations": "Forest"}, DemonstrationError, "observations"),
        ({"budget": 0}, SettingError, "budget"),
        ({"questions": 0}, SettingError, "questions"),
        ({"choose": "all"}, SettingError, "choose"),
        ({"port": 70000}, SettingError, "port"),
        ({"port": -1}, SettingError, "port"),
        ({"host": ""}, SettingError, "host"),
        ({"host": "nowhere.invalid"}, RunError, "nowhere.invalid"),
        ({"seed": -1}, SettingError, "seed"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as raised:
        console("Pendulum", out=tmp_path / "out", browser=False, **options)
    assert "\n" not in str(raised.value)


def test_a_port_in_use_is_named_and_the_directory_is_free_again(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for _ in range(2):
            with pytest.raises(RunError, match="in use: pass another port"):
                console("Pendulum", out=tmp_path / "out", port=taken.getsockname()[1], browser=False)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "understudy.console" and arguments[2] and "server" in arguments[2]:
            raise ImportError("No module named 'starlette'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExtraError, match=r"understudy-il\[console\]"):
        console("Pendulum", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_needs_an_environment() -> None:
    with pytest.raises(NeedsError, match="--env"):
        console_command([])


def test_the_command_takes_the_options_of_the_algorithm() -> None:
    words = ["--env", "Forest", "--algorithm", "daequil", "--preset", "linear", "--lr", "1e-3", "--budget", "100"]
    moments = "understudy.paper.forest_trials:clear_swerve_at_home"
    for given in (["--moments", moments], [f"--moments={moments}"]):
        algorithm, options = parse([*words, *given])
        assert algorithm is not None
        assert (algorithm.lr, algorithm.critic, algorithm.moments.__name__) == (1e-3, "linear", "clear_swerve_at_home")
        assert (options.env, options.budget, options.choose) == ("Forest", 100, "novelty")
    with pytest.raises(SettingError, match="no moments"):
        parse(["--algorithm", "dagger", "--moments", moments])
    with pytest.raises(UnknownNameError, match="dagger"):
        parse(["--algorithm", "dager"])


@pytest.mark.parametrize(
    ("host", "given", "own"),
    [
        ("127.0.0.1", "127.0.0.1:80", True),
        ("127.0.0.1", "localhost:80", True),
        ("127.0.0.1", "127.0.0.1:81", False),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "10.0.0.1:80", False),
        ("127.0.0.1", "evil.example:80", False),
        ("::1", "[::1]:80", True),
        ("10.0.0.1", "10.0.0.1:80", True),
        ("10.0.0.1", "localhost:80", False),
        ("0.0.0.0", "10.0.0.1:80", True),
        ("0.0.0.0", "evil.example:80", False),
    ],
)
def test_only_the_server_s_own_address_is_a_host(host: str, given: str, own: bool) -> None:
    assert own_address(host, 80)(given) is own
