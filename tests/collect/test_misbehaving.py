"""Environments that misbehave are named with the seed and the step; workers that hang or die are replaced."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import understudy as us
from support.envs import Walk
from support.misbehaving import SlowToMake, misbehaving
from understudy.collect.rollout_pool import RolloutPool, another_seed
from understudy.collect.rollouts import rollout
from understudy.collect.runner import Runner, StepRequest
from understudy.collect.workers import WorkerPool
from understudy.core.errors import SpecError, WorkerError
from understudy.envs import Timestep
from understudy.policies import Categorical
from understudy.policies.actor import Actor
from understudy.policies.gaussian import Gaussian

STEP = r"step 5 of the episode with seed \d+"
FAULTS = {
    "raise": (WorkerError, f"raised ValueError: the pole is missing in {STEP}"),
    "nan": (SpecError, f"returned nan in its observation in {STEP}"),
    "inf reward": (SpecError, f"returned inf in its reward in {STEP}"),
    "nan reward": (SpecError, f"returned nan in its reward in {STEP}"),
    "four": (SpecError, f"returned a tuple of 4 values from {STEP}"),
    "none": (SpecError, f"returned None from {STEP}"),
    "text": (SpecError, f"returned the text 'a text' from {STEP}"),
    "size": (SpecError, rf"returned an array of float32 of shape \(3,\) as its observation in {STEP}"),
    "complex": (SpecError, rf"returned an array of complex64 of shape \(4,\) as its observation in {STEP}"),
    "object": (SpecError, rf"returned an array of object of shape \(4,\) as its observation in {STEP}"),
    "ragged": (SpecError, f"returned a list of 2 values as its observation in {STEP}"),
    "none reward": (SpecError, f"returned None as its reward in {STEP}"),
    "text reward": (SpecError, f"returned the text '1' as its reward in {STEP}"),
    "two rewards": (SpecError, rf"returned an array of float64 of shape \(2,\) as its reward in {STEP}"),
    "none flag": (SpecError, f"returned None as `terminated` in {STEP}"),
    "quit": (WorkerError, f"raised SystemExit: 4 in {STEP}"),
    "wordless": (WorkerError, f"raised Wordless in {STEP}"),
    "huge reward": (SpecError, rf"returned 1e\+300 as its reward in {STEP}"),
    "endless reward": (WorkerError, f"raised OverflowError.* in {STEP}"),
    "masked": (SpecError, f"returned an array with masked values as its observation in {STEP}"),
    "odd object": (SpecError, f"returned a Odd as its observation in {STEP}"),
    "number flag": (SpecError, rf"returned 2.5 \(float\) as `truncated` in {STEP}"),
}


def steering(seed=0):
    return jax.tree.map(np.asarray, Categorical.init(jax.random.key(seed), 4, 2, (8,)))


def request():
    return StepRequest(steering(), False, 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_step_is_named_in_episodes_and_in_chunks(fault):
    env, (kind, words) = misbehaving(fault), FAULTS[fault]
    with pytest.raises(kind, match=f"^Misbehaving {words}") as whole:
        rollout(env, steering(), 2, 3)
    with pytest.raises(kind, match=rf"{words} \(run of seed 7\)") as chunk:
        Runner(env, (7, 0), 1, 20).play(request())
    assert "\n" not in f"{whole.value}{chunk.value}"
    seed = re.search(r"seed (\d+)", str(whole.value)).group(1)
    assert int(seed) in np.random.SeedSequence(3).generate_state(2)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("nan", SpecError, r"returned nan in its observation in reset\(seed=\d+\)"),
        ("raise", WorkerError, r"raised ValueError: the pole is missing in reset\(seed=\d+\)"),
        ("none", SpecError, r"returned None from reset\(seed=\d+\)"),
    ],
)
def test_a_wrong_reset_is_named(fault, kind, words):
    with pytest.raises(kind, match=words):
        rollout(misbehaving(fault, at=0), steering(), 2)


class Broken(Walk):
    """A JAX environment whose observation or reward is NaN after its third step."""

    what: str = eqx.field(static=True, default="")

    def step(self, state, act, key):
        state = state + 1
        wrong, right = jnp.where(state > 2, jnp.nan, 0.0), jnp.zeros(())
        obs, reward = (wrong, right) if self.what == "observation" else (right, wrong)
        return Timestep(state, jnp.full(4, obs), reward, jnp.array(False))

    def reset(self, key):
        return jnp.zeros((), int), jnp.zeros(4)


@pytest.mark.parametrize("what", ["observation", "reward"])
@pytest.mark.parametrize("function", [False, True])
def test_a_jax_environment_that_returns_nan_is_named_with_episode_and_step(what, function):
    env = Broken(jnp.zeros((3, 4)), what)
    policy = (lambda obs: np.zeros(len(obs), int)) if function else env.expert()
    with pytest.raises(SpecError, match=f"Walk returned nan in its {what} in step 3 of episode 1 of the rollout with"):
        rollout(env, policy, 2, 5)


def test_an_action_that_is_not_finite_is_the_policys_fault():
    with pytest.raises(SpecError, match=r"^the policy returned 2 actions that are NaN"):
        rollout("Pendulum-v1", lambda obs: np.full((len(obs), 1), np.nan), 2)


def test_episodes_are_the_same_in_a_worker_step_by_step_and_here():
    env, actor = us.make("Pendulum-v1"), jax.tree.map(np.asarray, Gaussian.init(jax.random.key(0), 3, 1, (64, 64)))
    here = rollout(env, actor, 3, 4, deterministic=False)
    with RolloutPool(env, 1, 10.0) as pool:
        sent = pool.rollout(actor, 3, 4, False).result()
        stepped = pool.stepwise(lambda vector, attempt: rollout(env, actor, 3, 4, False, vector=vector))
    for other in (sent, stepped):
        for one, two in zip(here.steps, other.steps, strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(here.rewards, other.rewards)
        np.testing.assert_array_equal(here.lengths, other.lengths)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("hang", "did not return from"), pytest.param("exit", "exited with status 3 in", marks=pytest.mark.slow)],
)
def test_a_worker_that_hangs_or_dies_is_replaced_and_training_steps_go_on(tmp_path, capfd, fault, words):
    env = misbehaving(fault, once=tmp_path / "done")
    with WorkerPool(env, [(7, 0)], 1, 20, 1, step_timeout=1.0) as pool:
        before = pool.pids
        pool.request([request()])
        (chunk,) = pool.receive()
        assert pool.pids != before
    with WorkerPool(env, [(7, 0, 1)], 1, 20, 0) as fresh:
        fresh.request([request()])
        np.testing.assert_array_equal(fresh.receive()[0].obs, chunk.obs)
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(rf"^warning: .*{words} {STEP} \(run of seed 7\)", line)


def test_a_worker_that_holds_pythons_lock_is_replaced_and_its_episodes_start_again(tmp_path, capfd):
    env = misbehaving("spin", at=0, once=tmp_path / "done")
    with RolloutPool(env, 1, 1.0) as pool:
        returns = pool.outcomes(steering(), 2, 3).result().returns
    np.testing.assert_array_equal(returns, rollout(env, steering(), 2, another_seed(3, 1)).returns)
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(r"did not return from reset\(seed=\d+\) within 1 s", line)


@pytest.mark.parametrize(("fault", "kind"), [("nan", SpecError), ("raise", WorkerError)])
def test_training_in_an_environment_that_fails_keeps_its_rounds_and_says_how_to_resume(tmp_path, fault, kind):
    env, checkpoint = misbehaving(fault, once=tmp_path / "done"), tmp_path / "run.checkpoint.npz"
    balance = lambda obs: (obs[:, 2] > 0).astype(int)  # noqa: E731
    demos = us.record("CartPole-v1", balance, 1, workers=0)
    learner = us.dagger(rounds=3, gradient_steps=2, batch_size=8, episodes_per_round=1, hidden=(4,))
    given = {"env": env, "expert": balance, "seeds": [5], "checkpoint": checkpoint, "workers": 0}
    with pytest.raises(kind, match=rf"{STEP} \(run of seed 5\).*; the checkpoint .* is kept, and .* resumes from it$"):
        us.imitate(learner, demos, **given)
    rounds = []
    result = us.imitate(learner, demos, **given, visit=lambda done, states: rounds.append(done))
    assert rounds == [2, 3]
    assert [run.status for run in result.runs] == ["finished"]


def test_a_constructor_may_take_longer_than_a_step():
    env = us.make(SlowToMake, horizon=12)
    with WorkerPool(env, [(7, 0)], 1, 20, 1, step_timeout=0.4) as pool:
        pool.request([request()])
        assert pool.receive()[0].obs.shape == (1, 20, 4)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "abort"])
def test_after_three_replacements_in_a_row_it_is_an_error(capfd, fault):
    words = "did not return from" if fault == "hang" else "was ended by SIGABRT in"
    with WorkerPool(misbehaving(fault), [(7, 0)], 1, 20, 1, step_timeout=1.0) as pool:
        pool.request([request()])
        with pytest.raises(WorkerError, match=f"{words} {STEP} .*after 3 replacements"):
            pool.receive()
    actor = Actor(steering(), misbehaving(fault).spec)
    with pytest.raises(WorkerError, match=f"{words} {STEP}.*after 3 replacements"):
        us.evaluate([actor], misbehaving(fault), 2, step_timeout=1.0)
    assert len(capfd.readouterr().err.splitlines()) == 6


def test_a_simulator_that_closes_standard_output_does_not_break_the_next_one(capfd):
    class Closing(CartPoleEnv):
        def step(self, action):
            sys.stdout.close()
            return super().step(action)

    for _ in range(2):
        rollout(us.make(Closing, 3), steering(), 1)


def test_a_keyboard_interrupt_of_a_simulator_in_a_worker_is_named():
    with (
        RolloutPool(misbehaving("interrupt"), 1, 5.0) as pool,
        pytest.raises(WorkerError, match=f"^Misbehaving raised KeyboardInterrupt in {STEP}"),
    ):
        pool.outcomes(steering(), 2, 3).result()


def test_a_child_that_an_environment_forks_neither_answers_nor_keeps_the_pipe_open(tmp_path, capfd):
    """Without a timeout only the closed pipe shows that a worker has ended."""
    balance = lambda obs: (obs[:, 2] > 0).astype(int)  # noqa: E731
    forked = us.record(misbehaving("fork", once=tmp_path / "forked"), balance, 2, workers=1, step_timeout=0)
    alone = us.record(misbehaving("none", at=-1), balance, 2, workers=0)
    np.testing.assert_array_equal(forked.transitions().obs, alone.transitions().obs)
    began = time.monotonic()
    us.record(misbehaving("fork and exit", once=tmp_path / "exited"), balance, 2, workers=1, step_timeout=0)
    assert time.monotonic() - began < 15  # the child sleeps for longer
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(rf"exited with status 3 in {STEP}", line)


@pytest.mark.slow
def test_a_demonstrator_in_this_process_goes_on_with_another_worker(tmp_path, capfd):
    env = misbehaving("exit", once=tmp_path / "done")
    demos = us.record(env, lambda obs: (obs[:, 2] > 0).astype(int), 2, step_timeout=5)
    assert demos.lengths.tolist() == [12, 12]
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_a_step_may_take_any_time_without_a_timeout_and_a_long_chunk_is_not_a_hang(capfd):
    """Each step takes a fifth of the timeout, the chunk several times as long."""
    env = us.make(Slow, 50)
    with WorkerPool(env, [(7, 0)], 1, 12, 1, step_timeout=1.0) as pool:
        pool.request([request()])
        pool.receive()
    assert capfd.readouterr().err == ""


class Slow(type(misbehaving("nan").make_env())):
    def __init__(self):
        super().__init__("nan", at=-1)

    def step(self, action):
        time.sleep(0.2)
        return super().step(action)


SCRIPT = """
import sys
from support.misbehaving import misbehaving
from understudy.collect.rollout_pool import RolloutPool, another_seed
from understudy.policies import MLP, Categorical
import numpy as np
pool = RolloutPool(misbehaving("spin", once=sys.argv[1]), 1, 0)
policy = Categorical(MLP((np.zeros((4, 2), np.float32),), (np.zeros(2, np.float32),), "relu"))
future = pool.outcomes(policy, 1, 0)
print(pool._workers[0].process.pid, flush=True)
future.result()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_a_worker_that_holds_pythons_lock_dies_with_its_parent(tmp_path):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "spins")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    worker = int(parent.stdout.readline())
    while not (tmp_path / "spins").exists():  # the file is made just before the lock is held for good
        assert parent.poll() is None
        time.sleep(0.05)
    os.kill(worker, 0)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    while alive(worker):
        time.sleep(0.05)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_imports_nothing_from_the_current_directory(tmp_path, monkeypatch):
    for name in ("numpy", "multiprocessing", "optax", "gymnasium"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('executed').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(folder for folder in sys.path if folder)])
    with RolloutPool(us.make("CartPole-v1"), 1, 10.0) as pool:
        assert (pool.outcomes(steering(), 2, 3).result().returns > 0).all()
    assert not (tmp_path / "executed").exists()
