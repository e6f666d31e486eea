"""Machines that misbehave: each command ends with one clear line and the right status, and loses nothing."""

import errno
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest

import understudy as us
from understudy.cli import failures
from understudy.core import display, streams

FAULTS = str(Path(__file__).parents[1] / "support" / "faults.py")
SMALL = ("--rounds", "2", "--gradient-steps", "2", "--hidden", "8", "--episodes", "2")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb"}
TRAIN = ("train", "bc", "--demos", "Pendulum", *SMALL)
LONG = ("train", "bc", "--demos", "Pendulum", "--hidden", "8", "--gradient-steps", "50", "--rounds", "1000000")


def command(*words, program=("-m", "understudy"), variables=None, without=(), **options):
    """Run a command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in without} | (variables or {})
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300, **options}
    return subprocess.run([sys.executable, *program, *words], env=environment, check=False, **options)


def assert_one_line(done, *named, status=2):
    """The command failed with one line on standard error, which has these words."""
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ")
    for name in named:
        assert name in done.stderr


def reported(error, capsys):
    status = failures.reported(error)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return status, err


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "No space left on device: 'a/b': free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", Path("a")), "Disk quota exceeded: 'a'"),
        (OSError(errno.EROFS, "Read-only file system", b"a\xff"), "'a?'"),
        (PermissionError(errno.EACCES, "Permission denied", "a", None, "b"), "'a' -> 'b': choose another place"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.EFBIG, "File too large"), "ulimit -f"),
        (OSError("something about\nfiles"), "something about files"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Broken pipe"),  # of a worker: standard output is there
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (MemoryError(), "out of memory"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UTF-8"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."), "allocating 9 bytes"),
        (us.UnderstudyError("a\x1b[31m\nb\udcff"), "a?[31m b?"),
    ],
)
def test_an_error_of_the_machine_is_one_line(error, named, capsys):
    status, err = reported(error, capsys)
    assert status == 2
    assert err.startswith("error: ")
    assert named in err


@pytest.mark.parametrize("error", [RecursionError("deep"), ValueError("a\nb\x1b"), KeyError("x"), AssertionError()])
def test_a_bug_is_one_line_and_its_traceback_is_kept(error, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        raise error
    except Exception as raised:  # noqa: BLE001
        status, err = reported(raised, capsys)
    (file,) = tmp_path.iterdir()
    assert status == 1
    assert str(file) in err
    assert type(error).__name__ in err
    assert "test_a_bug_is_one_line" in file.read_text()


def test_a_traceback_that_cannot_be_kept_is_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert failures.reported(ValueError("x")) == 1
    assert "ValueError: x" in capsys.readouterr().err
    monkeypatch.setenv("UNDERSTUDY_DEBUG", "1")
    assert failures.reported(us.UnderstudyError("y")) == 2
    assert "understudy.core.errors.UnderstudyError: y" in capsys.readouterr().err


def test_tables_titles_and_messages_carry_no_escape_sequences(capsys):
    bad = "\x1b]0;owned\x07\x1b[2J\u202e"
    display.show((f"head{bad}", ">n"), [(f"cell{bad}", "x" * 1000)], f"title{bad}")
    display.say(f"said{bad}")
    display.warn(f"warned{bad}")
    display.error(f"[bold]wrong[/]{bad}")
    with display.progress_bar(f"bar{bad}") as report:
        report(1, 2, {f"metric{bad}": 1.0})
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    assert {"title", "head", "said", "cell"} <= {word.split("?")[0] for word in out.split()}
    assert "[bold]wrong[/]" in err
    assert out.count("x") < 500


def test_every_character_has_a_plain_replacement():
    assert "".join(map(streams.plain, "±−πé²→│─‖\udcff漢")) == "+/--pie2->|-||??"
    "±\udcff".encode("ascii", streams.PLAIN)


def test_messages_to_a_terminal_that_is_gone_stop_nothing(monkeypatch):
    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(display, "LOG_EVERY", 0.0)
    display.note("a note")
    display.error("an error")
    with display.progress_bar("title") as report:
        report(1, 2, {})


def test_an_ascii_terminal_without_a_home_shows_the_tables():
    done = command("demos", "inspect", "Pendulum", variables=ASCII, without=("HOME", "XDG_CACHE_HOME"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "+/-" in done.stdout
    assert done.stdout.isascii()


def test_a_full_standard_output_is_named():
    with open("/dev/full", "w") as full:
        assert_one_line(command("demos", "inspect", "Pendulum", stdout=full), "standard output", "No space left")


def test_output_that_nobody_reads_ends_the_command_in_silence():
    reading, writing = os.pipe()
    os.close(reading)
    done = command("algorithms", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def closed():
    for number in (0, 1, 2):
        os.close(number)


@pytest.mark.slow
def test_closed_standard_streams_change_no_file(tmp_path):
    words = [*TRAIN, "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "understudy", *words], preexec_fn=closed, timeout=300, check=False)
    assert done.returncode == 0
    assert us.load_run(tmp_path / "run").policies
    for text in (tmp_path / "run/config.json", tmp_path / "run/metrics.csv"):
        assert "Saved in" not in text.read_text()
    missing = [sys.executable, "-m", "understudy", "evaluate", str(tmp_path / "none")]
    assert subprocess.run(missing, preexec_fn=closed, timeout=300, check=False).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("code", ["ENOSPC", "EROFS"])
def test_a_place_that_cannot_be_written_is_one_line(code, tmp_path):
    run, out = tmp_path / "run", tmp_path / "zzz"
    us.imitate(us.bc(rounds=1, gradient_steps=1, hidden=(8,)), us.load("Pendulum", episodes=2)).save(run)
    second = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def faulty(*words):
        return command(code, out.name, *words, program=(FAULTS,), variables=second)

    assert_one_line(faulty("evaluate", str(run), "--episodes", "2", "--out", f"{out}.csv"), "zzz.csv")
    assert_one_line(faulty("demos", "record", "Pendulum", "--episodes", "2", "--out", f"{out}.npz"), "zzz.npz")
    assert_one_line(faulty(*TRAIN, "--out", str(out)), "zzz")
    assert_one_line(faulty("theory", "--out", str(out), "--mdps", "2"), "zzz")
    assert [path.name for path in tmp_path.iterdir() if "zzz" in path.name] == []
    assert us.load_run(run).policies


@pytest.mark.slow
def test_limits_of_the_system_are_one_line(tmp_path):
    def limited(kind, most):
        return lambda: resource.setrlimit(kind, (most, most))

    few = command("demos", "inspect", "Pendulum", preexec_fn=limited(resource.RLIMIT_NOFILE, 24))
    assert few.returncode in (0, 2)
    assert "Traceback" not in few.stderr
    short = limited(resource.RLIMIT_FSIZE, 100)
    done = command("demos", "record", "Pendulum", "--episodes", "2", "--out", str(tmp_path / "x.npz"), preexec_fn=short)
    assert_one_line(done, "x.npz", "File too large")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_name_that_is_not_utf8_works_or_is_refused(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\xfe")
    done = command(*TRAIN, "--out", name)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert us.load_run(name).policies
    assert command("evaluate", name, "--episodes", "2", "--out", f"{name}.csv").returncode == 0
    assert command("demos", "record", "Pendulum", "--episodes", "2", "--out", f"{name}.npz").returncode == 0
    assert command("demos", "inspect", f"{name}.npz").returncode == 0
    assert command(*TRAIN[:2], "--demos", f"{name}.npz", *SMALL, "--out", f"{name}2").returncode == 0
    assert_one_line(command("train", "bc", "--env", "x\udcff"), "x?")
    assert_one_line(command("study", "run", f"{name}.toml"), "r??.toml")


@pytest.mark.slow
def test_a_directory_that_was_removed_is_named(tmp_path):
    script = "import os; os.rmdir(os.getcwd()); from understudy.cli.main import main; main()"
    for words in ((*TRAIN, "--out", "run"), ("demos", "record", "Pendulum", "--out", "x.npz")):
        gone = tmp_path / "gone"
        gone.mkdir()
        done = command(*words, program=("-P", "-c", script), cwd=gone)
        assert_one_line(done)
    gone.mkdir()
    assert command("demos", "inspect", "Pendulum", program=("-P", "-c", script), cwd=gone).returncode == 0


@pytest.mark.slow
def test_training_survives_without_a_home_or_a_place_for_temporary_files(tmp_path):
    variables = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(tmp_path / "missing")}
    done = command(*TRAIN, "--out", str(tmp_path / "run"), variables=variables)
    assert done.returncode == 0
    assert all("means little" in line for line in done.stderr.splitlines()), "the payoff of few demonstrations"


class Terminal:
    """A command on a terminal of its own. `text` is what it printed."""

    def __init__(self, *words, columns=200, **variables):
        self.main, side = pty.openpty()
        environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **variables}
        arguments = [sys.executable, "-m", "understudy", *words]
        streams_ = dict.fromkeys(("stdin", "stdout", "stderr"), side)
        self.process = subprocess.Popen(arguments, env=environment, start_new_session=True, **streams_)
        os.close(side)
        self.text, self.seen = b"", threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.kill()  # a training that a failed test leaves would run for ever
        self.process.wait()

    def _read(self):
        while True:
            try:
                data = os.read(self.main, 4096)
            except OSError:  # the other side is closed
                return
            self.text += data
            if b"loss" in self.text:
                self.seen.set()


@pytest.mark.slow
def test_a_narrow_terminal_shows_the_tables():
    for columns in (20, 1):
        with Terminal("demos", "inspect", "Pendulum", columns=columns) as terminal:
            assert terminal.process.wait(120) == 0
            terminal.reader.join(10)
            assert b"Traceback" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_training_after_its_round_and_keeps_the_policies(signum, status, tmp_path):
    with Terminal(*LONG, "--out", str(tmp_path / "run")) as terminal:
        assert terminal.seen.wait(120)
        terminal.process.send_signal(signum)
        assert terminal.process.wait(120) == status
    run = us.load_run(tmp_path / "run")
    assert run.interrupted
    assert "Traceback" not in terminal.text.decode(errors="replace")


@pytest.mark.slow
def test_a_closed_terminal_ends_training_and_keeps_the_policies(tmp_path):
    with Terminal(*LONG, "--out", str(tmp_path / "run")) as terminal:
        assert terminal.seen.wait(120)
        os.close(terminal.main)
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.process.wait(120) == 129
    assert us.load_run(tmp_path / "run").interrupted


def test_messages_that_cannot_be_written_change_no_exit_status():
    warn = "import sys; from understudy.core import streams; streams.prepare(); print('warning', file=sys.stderr)"
    with open("/dev/full", "wb") as full:
        assert command("demos", "inspect", "missing.npz", stderr=full).returncode == 2
        assert command(program=("-c", warn), stderr=full).returncode == 0


def test_an_unknown_device_is_no_bug(tmp_path):
    words = ("train", "bc", "--env", "Pendulum", "--out", str(tmp_path / "run"))
    assert_one_line(command(*words, variables={"JAX_PLATFORMS": "nonsense"}), "nonsense")
