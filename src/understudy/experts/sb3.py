"""Policies from the zip files of Stable-Baselines3, read without it and without PyTorch.

`model.save` writes an archive with `policy.pth`, the weights (`torch_files`), and `data`, the settings as JSON.
Objects stand in `data` as pickles, which are never read, and their attributes as text, which is.

    weights                               algorithm    output                                   default activation
    actor.latent_pi, actor.mu             SAC, TQC     tanh; with gSDE, clipped before          ReLU
    actor.mu                              TD3, DDPG    tanh                                     ReLU
    mlp_extractor.policy_net, action_net  PPO, A2C     clipped to the bounds, or largest logit  Tanh
    q_net.q_net                           DQN          largest value                            ReLU

The policy is the deterministic one, as `model.predict(obs, deterministic=True)`. `VecNormalize` keeps its statistics in
another file, a pickle. Two lines, in a Python with Stable-Baselines3, store them for `normalization`:

    v = VecNormalize.load("vecnormalize.pkl", venv)
    np.savez("stats.npz", obs_mean=v.obs_rms.mean, obs_var=v.obs_rms.var, clip_obs=v.clip_obs, epsilon=v.epsilon)
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np

from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.core.memory import readable
from understudy.core.paths import checked_path
from understudy.core.reader import Expected, FileReader
from understudy.core.text import quoted
from understudy.core.types import Continuous, Discrete, Spec
from understudy.envs import make, public_name
from understudy.experts.torch_files import TensorFile
from understudy.experts.weights import Observed, policy_from_arrays
from understudy.policies.actor import Actor
from understudy.policies.networks import Activation

SETTINGS, WEIGHTS = "data", "policy.pth"
"""Members of the archive."""
SUPPORTED = "SAC, TQC, TD3, DDPG, PPO, A2C and DQN with MlpPolicy are supported"
MOST_LAYERS = 100
LONGEST_SETTINGS = 4_000_000
"""Bytes of the settings."""
CLIP_MEAN = 2.0
"""SAC's default `clip_mean`."""
NOT_PLAIN = ("lstm_", "mlp_extractor.shared_net")
"""Layers that RecurrentPPO, and Stable-Baselines3 before 1.8, have in front of the policy's network."""
LIBRARIES = ("stable_baselines3.", "sb3_contrib.")
STATISTICS = {
    "obs_mean": Expected("fiu", (None,), finite=True),
    "obs_var": Expected("fiu", (None,), finite=True),
    "clip_obs": Expected("fiu", (), finite=True),
    "epsilon": Expected("fiu", (), finite=True),
}
"""The arrays of a file of VecNormalize's statistics."""
HOW_TO_NORMALIZE = (
    "np.savez('stats.npz', obs_mean=v.obs_rms.mean, obs_var=v.obs_rms.var, clip_obs=v.clip_obs, epsilon=v.epsilon) "
    "writes it from v = VecNormalize.load(...)"
)
Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Network:
    """The layers of a policy in the file, and what follows them."""

    algorithm: str
    layers: list[str]
    """Names without ".weight" and ".bias", from the first on."""
    activation: Activation
    """The algorithm's default."""
    squash: bool = False
    clip: float | None = None


def is_sb3(names: list[str]) -> bool:
    """Whether an archive with these members is one of Stable-Baselines3."""
    return {SETTINGS, WEIGHTS} <= set(names)


def policy_from_sb3(
    path: Path, env: Any, activation: Activation | None = None, normalization: Path | None = None
) -> Actor:
    """The deterministic policy of a Stable-Baselines3 zip, for `env`.

    `normalization` is an npz file with the statistics of VecNormalize: `obs_mean`, `obs_var`, `clip_obs`, `epsilon`.
    `activation` is for policy classes of your own, whose default is not known.
    """
    env, path = make(env), checked_path(path)
    reader = FileReader(path, "a model of Stable-Baselines3", "save it again with model.save")
    settings = _settings(reader)
    tensors = TensorFile(reader, WEIGHTS)
    name = f"'{quoted(path.name, 300)}'"
    network = _network(name, tensors.shapes, settings)
    _check_spaces(name, settings, env.spec, env.name)
    arrays = _arrays(network, tensors)
    chosen = _activation(name, settings, network, activation)
    observed = None if normalization is None else read_statistics(normalization)
    policy = policy_from_arrays(arrays, name, env.spec, env.name, chosen, network.squash, network.clip, observed)
    return Actor(policy, env.spec, {"algorithm": f"{network.algorithm} of {name}", "env": public_name(env)})


def read_statistics(path: Path) -> Observed:
    """The statistics of VecNormalize in an npz file."""
    file = FileReader(path, "a file of VecNormalize's statistics", HOW_TO_NORMALIZE)
    arrays = file.npz(STATISTICS.get, tuple(STATISTICS))
    mean, variance = np.asarray(arrays["obs_mean"], float), np.asarray(arrays["obs_var"], float)
    clip, epsilon = float(arrays["clip_obs"]), float(arrays["epsilon"])
    if mean.shape != variance.shape or (variance < 0).any() or not (clip > 0 and epsilon >= 0):
        raise file.damaged(f"{mean.size} means and {variance.size} variances, clip_obs {clip:g}, epsilon {epsilon:g}")
    std = np.sqrt(variance + epsilon)
    if not (std > 0).all():
        raise file.damaged("obs_var and epsilon are both 0")
    return Observed(mean.astype(np.float32), std.astype(np.float32), clip)


def _settings(reader: FileReader) -> dict[str, Any]:
    """The settings in `data`. Values that are objects keep only the texts of their attributes."""
    data = reader.members(lambda name: name == SETTINGS).get(SETTINGS)
    if data is None:
        raise reader.damaged(f"it has no {SETTINGS}")
    if len(data) > LONGEST_SETTINGS:
        most = readable(LONGEST_SETTINGS)
        raise reader.damaged(f"its {SETTINGS} has {readable(len(data))}, and at most {most} are read")
    with reader.guarded():
        settings = json.loads(bytes(data).decode("utf-8"))
    if not isinstance(settings, dict):
        raise reader.damaged(f"{SETTINGS} is no table of settings")
    return settings


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _network(name: str, shapes: Mapping[str, tuple[int, ...]], settings: Mapping[str, Any]) -> Network:
    """Which layers make the policy, by the names of the tensors."""
    options = _table(settings, "policy_kwargs")
    extractors = sorted({key.split(".weight")[0] for key in shapes if "features_extractor." in key})
    extractor = str(options.get("features_extractor_class", ""))
    if extractors or (extractor and not re.search(r"\b(FlattenExtractor|CombinedExtractor)\b", extractor)):
        found = extractors[0] if extractors else extractor
        raise SpecError(f"{name} has the feature extractor {quoted(found)}: {SUPPORTED}, without a feature extractor")
    squash = options.get("squash_output") is True
    hidden = _layers(shapes, "actor.latent_pi")
    if any(key.split(".")[:2] == ["actor", "log_std"] for key in shapes):  # SAC and TQC
        clipped = "actor.mu.0.weight" in shapes  # with gSDE, a clip follows the layer
        clip = options.get("clip_mean", CLIP_MEAN) if clipped else None
        if clip is not None and not (isinstance(clip, int | float) and clip > 0):
            raise SpecError(f"{name} has clip_mean {quoted(clip)}: a number above 0 is needed")
        mean = "actor.mu.0" if clipped else "actor.mu"
        return Network("SAC or TQC", [*hidden, mean], "relu", True, None if clip is None else float(clip))
    if layers := _layers(shapes, "actor.mu"):
        return Network("TD3 or DDPG", layers, "relu", True)
    if "action_net.weight" in shapes and not any(key.startswith(NOT_PLAIN) for key in shapes):
        return Network("PPO or A2C", [*_layers(shapes, "mlp_extractor.policy_net"), "action_net"], "tanh", squash)
    if layers := _layers(shapes, "q_net.q_net"):
        return Network("DQN", layers, "relu")
    found = ", ".join(dict.fromkeys(".".join(key.split(".")[:2]) for key in shapes)) or "no tensors"
    raise SpecError(f"{name} has the weights {quoted(found)}: {SUPPORTED}")


def _layers(shapes: Mapping[str, Any], prefix: str) -> list[str]:
    """The linear layers of a Sequential module, in order."""
    pattern = re.compile(rf"{re.escape(prefix)}\.([0-9]{{1,4}})\.weight")
    found = sorted(int(match[1]) for key in shapes if (match := pattern.fullmatch(key)))
    return [f"{prefix}.{number}" for number in found]


def _arrays(network: Network, tensors: TensorFile) -> dict[str, np.ndarray]:
    """The weights as `policy_from_arrays` takes them. PyTorch stores them transposed."""
    layers = network.layers[: MOST_LAYERS + 1]
    names = [
        f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias") if f"{layer}.{kind}" in tensors.shapes
    ]
    found = tensors.read(names)
    arrays: dict[str, np.ndarray] = {}
    for number, layer in enumerate(layers):
        for kind, short in (("weight", "w"), ("bias", "b")):
            if f"{layer}.{kind}" in found:
                arrays[f"{short}{number}"] = found[f"{layer}.{kind}"].T
    return arrays


def _activation(name: str, settings: Mapping[str, Any], network: Network, given: Activation | None) -> Activation:
    """The activation: the file's own, or the default of the algorithm, or that of the caller."""
    stated = _table(settings, "policy_kwargs").get("activation_fn")
    if stated is not None:
        match = re.search(r"activation\.(\w+)'", str(stated)) or re.search(r"\.(Identity)'", str(stated))
        stored = match[1].lower() if match else str(stated)
        if stored not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise SpecError(f"{name} has the activation {quoted(match[1] if match else stated)}: {known} are supported")
        if given is not None and given != stored:
            raise SettingError(f"activation is {given!r}, but {name} contains {stored!r}: leave out activation")
        return cast("Activation", stored)
    if given is not None:
        return given
    module = str(_table(settings, "policy_class").get("__module__", ""))
    if not module.startswith(LIBRARIES):
        raise NeedsError(
            f"{name} has a policy class of its own ({quoted(module) or 'unknown'}) with an unknown activation: pass "
            "activation= (--expert-activation) 'relu', 'tanh' or 'identity'"
        )
    return network.activation


def _check_spaces(name: str, settings: Mapping[str, Any], spec: Spec, env: str) -> None:
    """Raise if the model was trained for other kinds of actions, or other bounds."""
    space = _table(settings, "action_space")
    kind = str(space.get(":type:", ""))
    if "MultiDiscrete" in kind or "MultiBinary" in kind:
        raise SpecError(f"{name} has MultiDiscrete or MultiBinary actions: Box and Discrete actions are supported")
    if ("Box" in kind and isinstance(spec.action, Discrete)) or (
        "Discrete" in kind and isinstance(spec.action, Continuous)
    ):
        trained = "continuous" if "Box" in kind else "discrete"
        raise SpecError(f"{name} was trained for {trained} actions: {env} has {_kind_of(spec)} ones")
    if not isinstance(spec.action, Continuous):
        return
    for side in ("low", "high"):
        stored, own = _numbers(space.get(side)), np.asarray(getattr(spec.action, side))
        if stored is not None and stored.size == own.size and not np.allclose(stored, own, rtol=1e-4, atol=1e-6):
            raise SpecError(
                f"{name} was trained for actions whose {side} is {quoted(stored.tolist())}: in {env} it is "
                f"{quoted(own.tolist())}"
            )


def _kind_of(spec: Spec) -> str:
    return "discrete" if isinstance(spec.action, Discrete) else "continuous"


def _numbers(text: Any) -> np.ndarray | None:
    """The numbers of a printed array; None if it is shortened or something else."""
    if not isinstance(text, str) or len(text) > 100_000 or not re.fullmatch(r"[][\s0-9.eE+-]*", text):
        return None
    try:
        return np.array([float(word) for word in text.replace("[", " ").replace("]", " ").split()])
    except ValueError:
        return None
