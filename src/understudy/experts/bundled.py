"""The trained experts that come with the package.

    data/experts/ENV.npz     w0, b0, w1, b1, ...: weights of the deterministic policy, see `weights`
    data/experts/ENV.json    its card: how `understudy expert train` trained, chose and scored it
    data/bundled/ENV.npz     demonstrations recorded from it, see `data.load`

The card contains the task's spec, so an expert can be loaded without the task's simulator.
"""

from importlib import resources
from pathlib import Path

from understudy.core.errors import unknown
from understudy.core.reader import FileReader
from understudy.deploy.structure import SPEC, read_spec
from understudy.experts.weights import policy_from_arrays, read_weights
from understudy.policies.actor import Actor


def bundled_experts() -> dict[str, Path]:
    """The bundled experts: name → file."""
    folder = Path(str(resources.files("understudy.data") / "experts"))
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def load_expert(name: str) -> Actor:
    """Load the bundled expert of a task, for example `load_expert("CartPole-v1")`. Its card is in `about["card"]`."""
    known = bundled_experts()
    if name not in known:
        raise unknown("bundled expert", name, known, "`understudy expert train ENV` trains one.")
    file = FileReader(known[name].with_suffix(".json"), "the card of a bundled expert", "install understudy again")
    card = file.json({"spec": SPEC, "player": {"class": str}, "seed": int})
    spec = read_spec(card["spec"])
    policy = policy_from_arrays(read_weights(known[name]), f"'{known[name].name}'", spec, name)
    about = {"algorithm": card["player"]["class"], "env": name, "seed": card["seed"], "card": card}
    return Actor(policy, spec, about)
