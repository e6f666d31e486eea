"""A directory for a model hub: README.md (the model card), policy.py and policy.npz, config.json.

    README.md     YAML front matter as model hubs read it; the task, scores, training, and how to load the policy
    policy.py     the policy for NumPy alone (`policies.export`), with policy.npz
    config.json   the same facts for programs

Texts may come from a stranger's run: they stand as JSON strings in the front matter and in code spans in the text.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from understudy.core.errors import NeedsError, SettingError
from understudy.core.imports import check_import
from understudy.core.paths import checked_path
from understudy.core.statistics import Sample
from understudy.core.storage import atomic_directory, write_json
from understudy.core.text import is_line, quoted
from understudy.core.types import Continuous, MultiDiscrete
from understudy.deploy.runs import POLICY
from understudy.envs import NamedEnv
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.policies.actor import Actor
from understudy.policies.export import Export, Written, limits, numpy_file

README, CONFIG = "README.md", "config.json"
LONGEST_LICENSE = 60
START = '---\nlibrary_name: "understudy"\n'
"""How the model card begins."""


def score(actor: Actor, training: dict[str, Any], env: Any, episodes: int, seed: int) -> Evaluation:
    """Evaluate a policy for its model card: in `env`, or in the environment that its file names."""
    if env is None:
        env = actor.about.get("env") or (training.get("demonstrations") or {}).get("env")
        if training.get("env") is not None:
            env = NamedEnv.from_file(training["env"], "config.json of the run")
        elif not isinstance(env, str):
            raise NeedsError("the policy's environment has no registered name: pass --env")
        else:
            check_import(env, "policy.npz")
    stated = (training.get("demonstrations") or {}).get("expert_return")
    std = float("nan") if stated is None or stated["std"] is None else stated["std"]
    return evaluate(
        [actor], env, episodes, seed, None if stated is None else Sample(stated["mean"], std, stated["size"])
    )


def publish(
    actor: Actor,
    directory: str | os.PathLike[str],
    max_change: float | Sequence[float] | None = None,
    training: dict[str, Any] | None = None,
    evaluation: Evaluation | None = None,
    license: str | None = None,
    replace: bool = False,
) -> Written:
    """Write the directory. The actions of its policy.py are equal to those of `predict`, to the last bit."""
    if license is not None and not (is_line(license, LONGEST_LICENSE) and license):
        raise SettingError(f"license is {quoted(repr(license))}: a short name is needed, such as mit or cc-by-4.0")
    what = Export(actor, limits(max_change, actor), training or {}, replace)
    path, files = checked_path(directory), (README, numpy_file.MODULE, POLICY, CONFIG)
    with atomic_directory(path, what.replaceable(path, files, START)) as partial:
        difference = numpy_file.write_into(partial, what)
        results = None if evaluation is None else _results(evaluation)
        write_json(partial / CONFIG, {**what.metadata, "evaluation": results, "license": license})
        (partial / README).write_text(model_card(what, results, license), encoding="utf-8")
    return Written(path, files, difference, len(what.trials()["observation"]), what.inputs[:1])


def _results(evaluation: Evaluation) -> dict[str, Any]:
    """The scores of one policy, as JSON values."""
    (one,) = evaluation.scores()
    returns = Sample.of(evaluation.returns[0])
    return {
        "env": evaluation.env,
        "episodes": returns.size,
        "mean": round(returns.mean, 3),
        "std": round(returns.std, 3) if returns.size > 1 else None,
        "return": str(one.learner),
        "gap": None if one.gap is None else str(one.gap),
        "length": None if one.length is None else round(one.length.mean, 3),
        "success": None if one.success is None else round(one.success.mean, 4),
    }


def model_card(what: Export, results: dict[str, Any] | None, license: str | None) -> str:
    """The text of README.md."""
    facts = what.metadata
    algorithm = (facts["export"].get("algorithm") or {}).get("name") or facts["about"].get("algorithm") or "a policy"
    env = (results or {}).get("env") or facts["about"].get("env") or "a task without a registered name"
    title = f"{quoted(algorithm, 60)} on {quoted(env, 100)}"
    sections = [
        _front_matter(title, str(algorithm), str(env), results, license),
        f"# {_code(title)}",
        "A policy trained with understudy, a library for imitation learning (`pip install understudy-il`).",
        "## Use",
        "With NumPy alone, in this directory:",
        "```python\nfrom policy import load\n\npolicy = load()\n"
        + ("" if what.actor.stationary and what.max_change is None else "policy.reset()  # at every episode's start\n")
        + "action = policy(observation)  # or policy.predict(observation), as in Stable-Baselines3\n```",
        "With understudy: `understudy.deploy.load(DIRECTORY)` imports no JAX and runs no code of this directory. "
        "`understudy.evaluate([understudy.load_policy(DIRECTORY)], ENV)` evaluates it.",
        "## Task",
        _table(_task(what)),
        "## Scores",
        _scores(results, facts["export"]),
        "## Training",
        _table(_training(facts)),
        "## Licence",
        f"Of the policy: {_code(license or 'not stated')}. Of the code in `policy.py`: MIT, the understudy authors.",
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(title: str, algorithm: str, env: str, results: dict[str, Any] | None, license: str | None) -> str:
    """YAML; every value is a JSON string, which YAML reads as it is."""
    tags = ["imitation-learning", "robotics", "numpy", quoted(algorithm, 60), quoted(env, 100)]
    lines = [START.rstrip(), 'pipeline_tag: "reinforcement-learning"']
    lines += [f"license: {json.dumps(license)}"] if license else []
    lines += ["tags:", *(f"  - {json.dumps(tag)}" for tag in dict.fromkeys(tags))]
    if results is not None:
        spread = "" if results["std"] is None else f" +/- {results['std']}"
        metric = {"type": "mean_reward", "name": "mean_reward", "value": f"{results['mean']}{spread}"}
        lines += [
            "model-index:",
            f"  - name: {json.dumps(title)}",
            "    results:",
            '      - task: {"type": "reinforcement-learning", "name": "reinforcement-learning"}',
            f"        dataset: {json.dumps({'name': quoted(env, 100), 'type': quoted(env, 100)})}",
            "        metrics:",
            f"          - {json.dumps(metric)}",
        ]
    return "\n".join([*lines, "---"])


def _task(what: Export) -> list[tuple[str, object]]:
    spec = what.actor.spec
    parts = ", ".join(f"{name} ({count})" for name, count in spec.obs_parts)
    size = " × ".join(str(count) for count in spec.obs_shape)
    rows: list[tuple[str, object]] = [
        ("environment", what.actor.about.get("env") or "not recorded"),
        ("observations", f"{size} float32 numbers" if size else "the index of a state"),
        *([("parts of the observation", parts)] if parts else []),
    ]
    if isinstance(spec.action, Continuous):
        bounds = ", ".join(f"[{low:g}, {high:g}]" for low, high in zip(spec.action.low, spec.action.high, strict=True))
        rows.append(("actions, clipped to", bounds))
    elif isinstance(spec.action, MultiDiscrete):
        rows.append(("actions", ", ".join(f"0 to {n - 1}" for n in spec.action.nvec)))
    else:
        rows.append(("actions", f"0 to {spec.action.n - 1}"))
    if what.max_change is not None:
        rows.append(("largest change of an action between two calls", what.max_change))
    return [*rows, ("horizon", f"{spec.horizon} steps")]


def _training(facts: dict[str, Any]) -> list[tuple[str, object]]:
    about, export = facts["about"], facts["export"]
    algorithm, data = export.get("algorithm") or {}, export.get("demonstrations") or {}
    title = ", preset ".join(str(algorithm[name]) for name in ("title", "preset") if algorithm.get(name))
    versions = " ".join(f"{name}={version}" for name, version in (export.get("versions") or {}).items())
    rows = [
        ("algorithm", title or about.get("algorithm")),
        ("seed", about.get("seed")),
        ("demonstrated episodes", about.get("episodes")),
        ("SHA-256 of the demonstrations", data.get("digest")),
        ("command", export.get("command")),
        ("versions", versions),
    ]
    return [(name, "not recorded" if value in (None, "") else value) for name, value in rows]


def _scores(results: dict[str, Any] | None, export: dict[str, Any]) -> str:
    stated = (export.get("demonstrations") or {}).get("expert_return")
    trained = export.get("return") or {}
    rows: list[tuple[str, object]] = []
    if results is not None:
        over = f"mean ± 95% interval (Student's t over {results['episodes']} deterministic episodes)"
        rows.append((f"return, {over}", results["return"]))
        gap = "gap to the expert's return in the demonstrations, mean ± 95% interval (Welch's t over both)"
        rows += [(gap, results["gap"])] if results["gap"] else []
        rows += [("steps of an episode", results["length"])] if results["length"] is not None else []
        rows += [("successful episodes", f"{results['success']:.1%}")] if results["success"] is not None else []
    if stated is not None:
        rows.append(("expert's return in the demonstrations", f"{stated['mean']:.1f} ({stated['size']} episodes)"))
    if trained.get("mean") is not None:
        rows.append(("return after training", f"{trained['mean']} ({trained['episodes']} episodes)"))
    return _table(rows) if rows else "Not evaluated: `understudy publish --episodes N` evaluates."


def _table(rows: list[tuple[str, object]]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {_code(value)} |" for name, value in rows)])


def _code(value: object) -> str:
    """A text as a code span, in which neither HTML nor Markdown counts, also in a table's cell."""
    text = quoted(value, 2000).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""
