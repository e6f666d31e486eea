"""The commands that take a policy away: export it for other programs, publish it as a directory for a model hub."""

from pathlib import Path
from typing import Annotated

import tyro

from understudy.core import display
from understudy.core.imports import allow_imports
from understudy.core.options import Imports, Name, Path_, RunArgument, default
from understudy.core.paths import check_new_directory, check_no_own_directory
from understudy.deploy.runs import policy_path
from understudy.policies.actor import Actor, read_policy
from understudy.policies.export import Kind, Written, export, training_at
from understudy.train.publishing import README, START, publish, score

PolicyName = Annotated[Name, default("the selected one")]
Limits = Annotated[tuple[float, ...], tyro.conf.arg(metavar="X [X ...]", help_behavior_hint="(default: no limit)")]
USE = {
    "numpy": "In Python with NumPy: `from policy import load`, then `policy = load(); action = policy(observation)`.",
    "onnx": "In onnxruntime: `InferenceSession(file).run(['action'], {INPUTS})[0]`.",
    "jax": "In JAX: `jax.export.deserialize(bytearray(open('policy.jax', 'rb').read())).call(INPUTS)`.",
}


def export_command(
    run: RunArgument,
    to: Kind = "numpy",
    out: Annotated[Path_, default("exports/RUN-numpy, exports/RUN.onnx or exports/RUN-jax")] = None,
    policy: PolicyName = None,
    max_change: Limits = (),
    replace: bool = False,
) -> None:
    """Write a policy for programs without understudy, and compare its actions with those of `predict`.

    Args:
        run: Directory of a run or an expert, or a policy file.
        to: numpy: a Python file and an npz file; onnx: an ONNX file; jax: a function of jax.export.
        out: Directory to write; a file with onnx.
        policy: Policy of the run, as in episodes10-seed2.
        max_change: Largest change of each action dimension between two calls, in action units; one number for all, or
            one for each.
        replace: Replace an older export.
    """
    actor, training = _loaded(run, policy)
    name = Path(run).resolve().stem
    path = out or (f"exports/{name}.onnx" if to == "onnx" else f"exports/{name}-{to}")
    written = export(actor, path, to, max_change or None, training, replace)
    _report(written)
    inputs = [f"'{name}': {name}" if to == "onnx" else name for name in written.inputs]
    display.say(USE[to].replace("INPUTS", ", ".join(inputs)))


def publish_command(
    run: RunArgument,
    out: Annotated[Path_, default("exports/RUN-hub")] = None,
    policy: PolicyName = None,
    max_change: Limits = (),
    episodes: int = 0,
    env: Annotated[Name, default("that of the demonstrations")] = None,
    seed: int = 0,
    license: Annotated[Name, default("not stated")] = None,
    imports: Imports = (),
    replace: bool = False,
) -> None:
    """Write a directory for a model hub: a model card, the policy for NumPy, its configuration. Nothing is uploaded.

    Args:
        run: Directory of a run or an expert, or a policy file.
        out: Directory to write.
        policy: Policy of the run, as in episodes10-seed2.
        max_change: Largest change of each action dimension between two calls, in action units; one number for all, or
            one for each.
        episodes: Episodes to evaluate now for the model card; 0: no evaluation.
        env: Environment of the evaluation.
        seed: Seed of the evaluation's initial states.
        license: Licence of the policy, as model hubs spell it, such as mit or cc-by-4.0.
        imports: Module to import if the policy's environment is in it, as in module:Name-v0; only for code you trust.
        replace: Replace an older directory of this command.
    """
    path = out or f"exports/{Path(run).resolve().stem}-hub"
    if not replace:
        check_no_own_directory(Path(path), README, START)
        check_new_directory(path)
    allow_imports(imports)
    actor, training = _loaded(run, policy)
    evaluation = None
    if episodes:
        with display.working(f"evaluating {episodes} episodes"):
            evaluation = score(actor, training, env, episodes, seed)
    _report(publish(actor, path, max_change or None, training, evaluation, license, replace))
    display.say("Upload the directory with the program of your model hub.")


def _loaded(run: str, policy: str | None) -> tuple[Actor, dict[str, object]]:
    file = policy_path(run, policy)
    return read_policy(file), training_at(Path(run), file)


def _report(written: Written) -> None:
    same = (
        "equal to the last bit" if written.difference == 0 else f"{written.difference:.1e} of the action range at most"
    )
    display.say(f"{written.path}: {', '.join(written.files)}")
    display.say(f"Difference from `predict` on {written.observations} observations: {same}.")
