"""The trained experts that come with the package.

    data/experts/ENV.npz     w0, b0, w1, b1, ...: weights of the deterministic policy, see `weights`
    data/experts/ENV.json    its card: how `understudy expert train` trained, chose and scored it
    data/bundled/ENV.npz     demonstrations recorded from it, see `data.load`

The card contains the task's spec, so an expert can be loaded without the task's simulator.
"""

import json
from importlib import resources
from pathlib import Path

import numpy as np

from understudy.core.errors import unknown
from understudy.experts.weights import policy_from_arrays
from understudy.policies.actor import Actor, read_spec


def bundled_experts() -> dict[str, Path]:
    """The bundled experts: name → file."""
    folder = Path(str(resources.files("understudy.data") / "experts"))
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def load_expert(name: str) -> Actor:
    """Load the bundled expert of a task, for example `load_expert("CartPole-v1")`. Its card is in `about["card"]`."""
    known = bundled_experts()
    if name not in known:
        raise unknown("bundled expert", name, known, "`understudy expert train ENV` trains one.")
    card = json.loads(known[name].with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(known[name], allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    spec = read_spec(card["spec"])
    policy = policy_from_arrays(arrays, f"'{known[name].name}'", spec, name)
    about = {"algorithm": card["player"]["class"], "env": name, "seed": card["seed"], "card": card}
    return Actor(policy, spec, about)
