"""Trained experts that come with the package: for each task its plain weights (`weights`) and a card.

    data/experts/ENV.npz     w0, b0, w1, b1, ...: what the policy does without chance
    data/experts/ENV.json    how it was trained, chosen and scored, as `understudy expert train` wrote it
    data/bundled/ENV.npz     episodes of it, see `data.load`

The card tells the task's shape, so that an expert can be loaded where the task's simulator is not installed.
"""

import json
from importlib import resources
from pathlib import Path

import numpy as np

from understudy.core.errors import unknown
from understudy.experts.weights import policy_of_arrays
from understudy.policies.actor import Actor, read_spec


def bundled_experts() -> dict[str, Path]:
    """The experts in the package: name → file."""
    folder = Path(str(resources.files("understudy.data") / "experts"))
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def load_expert(name: str) -> Actor:
    """The trained expert of a task, such as `load_expert("CartPole-v1")`, with its card in `about["card"]`."""
    known = bundled_experts()
    if name not in known:
        raise unknown("bundled expert", name, known, "`understudy expert train ENV` trains one.")
    card = json.loads(known[name].with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(known[name], allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    spec = read_spec(card["spec"])
    policy = policy_of_arrays(arrays, f"'{known[name].name}'", spec, name)
    about = {"algorithm": card["player"]["class"], "env": name, "seed": card["seed"], "card": card}
    return Actor(policy, spec, about)
