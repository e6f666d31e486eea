"""Policies from plain network weights, for experts that were trained with another library.

The weights are an npz file or a dictionary with `w0, b0, w1, b1, ...`; each layer computes x @ w + b. It may also hold:

    activation    between the layers: "relu", "tanh" or "identity"
    squash        for continuous actions: apply tanh to the output and scale (-1, 1) to the environment's action range;
                  without it the output is the action, clipped to that range
    clip          a number: clip the output to ± this number before the tanh

With discrete actions, the policy takes the action with the largest output.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from understudy.core.errors import NeedsError, RunError, SettingError, SpecError, check_choice, check_positive
from understudy.core.paths import checked_path
from understudy.core.reader import TEXT, Expected, FileReader
from understudy.core.text import quoted
from understudy.core.types import Continuous, MultiDiscrete, Spec
from understudy.envs import GymnasiumEnvironment, make, public_name
from understudy.policies import Categorical, Deterministic, NetworkPolicy, Normalized, Policy
from understudy.policies.actor import Actor
from understudy.policies.checks import LARGEST, check_policy
from understudy.policies.gaussian import Squashed, StateDependent
from understudy.policies.networks import MLP, Activation
from understudy.policies.normalization import Normalization

SETTINGS: dict[str, Callable[[Any], bool]] = {
    "activation": lambda value: value in get_args(Activation),
    "squash": lambda value: value in (0, 1),
    "clip": lambda value: isinstance(value, int | float) and 0 < value < LARGEST,
}
"""What the settings in a file may be."""
Source = str | os.PathLike[str] | Mapping[str, Any]


class Observed(NamedTuple):
    """Statistics of observations, which are standardized before the network sees them."""

    mean: np.ndarray
    std: np.ndarray
    clip: float | None
    """Clip the result to ± this."""

    @classmethod
    def unchanged(cls, size: int) -> "Observed":
        return cls(np.zeros(size, np.float32), np.ones(size, np.float32), None)

    def normalization(self, center: np.ndarray | None, scale: np.ndarray | None) -> Normalization:
        """With the center and half of the range of continuous actions."""
        return Normalization(self.mean, self.std, center, scale, self.clip)


def policy_from_weights(
    source: Source,
    env: Any,
    activation: Activation | None = None,
    squash: bool | None = None,
    clip: float | None = None,
) -> Actor:
    """A policy for `env` from the weights in `source`. Pass the settings that the source does not contain."""
    arrays, name = _arrays(source)
    env = make(env)
    if isinstance(env.spec.action, MultiDiscrete):
        raise SpecError(f"{env.name} has multi-discrete actions: plain weights are for continuous or discrete ones")
    if isinstance(env, GymnasiumEnvironment) and not env.has_own_bounds:
        raise SpecError(f"{env.name} has actions without bounds: weights cannot say how to scale its actions")
    policy = policy_from_arrays(arrays, name, env.spec, env.name, activation, squash, clip)
    return Actor(policy, env.spec, {"algorithm": f"weights of {name}", "env": public_name(env)})


def policy_from_arrays(
    arrays: Mapping[str, Any],
    name: str,
    spec: Spec,
    env: str,
    activation: Activation | None = None,
    squash: bool | None = None,
    clip: float | None = None,
    observed: Observed | None = None,
) -> Policy:
    """Like `policy_from_weights`, from a spec and without making the environment. Errors use `name` and `env`.

    `observed` are statistics of the observations, by which they are standardized first.
    """
    activation = _setting(name, arrays, "activation", activation)
    squash = bool(_setting(name, arrays, "squash", squash))
    clip = _setting(name, arrays, "clip", clip)
    if activation is None:
        raise NeedsError(
            f"{name} does not say which activation the network uses: pass activation= (--expert-activation) 'relu', "
            "'tanh' or 'identity', or store it in the file as `activation`"
        )
    check_choice(get_args(Activation), activation=activation)
    if clip is not None:
        check_positive(clip=clip)
        if not squash:
            raise SettingError(f"clip is {clip} without squash in {name}: pass squash=True, or leave out clip")
    net = _network(name, arrays, activation)
    inputs, outputs = net.weights[0].shape[0], net.biases[-1].shape[0]
    if (inputs, outputs) != (spec.obs_size, spec.action_size):
        raise SpecError(
            f"{name} has {inputs} inputs and {outputs} outputs: a policy for {env} needs {spec.obs_size} inputs and "
            f"{spec.action_size} outputs"
        )
    if observed is not None and observed.mean.shape != (inputs,):
        raise SpecError(f"{name} has {inputs} inputs, and the statistics are of {observed.mean.size} observations")
    policy: Policy = Categorical(net)
    if isinstance(spec.action, Continuous):
        policy = _continuous(net, spec.action, observed or Observed.unchanged(inputs), squash, clip)
    elif observed is not None:
        policy = Normalized(policy, observed.normalization(None, None))
    try:
        check_policy(policy, spec)
    except SpecError as error:
        raise SpecError(f"{name} is no policy for {env}: {error}") from error
    return policy


def plain_weights(actor: Actor) -> dict[str, np.ndarray] | None:
    """The deterministic policy as arrays for `policy_from_weights`, or None if it is not a plain network.

    A Gaussian policy becomes its mean: outputs of the last layer for the standard deviation are dropped.
    """
    policy: Policy = actor.policy
    normalization: Normalization | None = None
    if isinstance(policy, Normalized):
        normalization, policy = policy.normalization, policy.policy
    if not isinstance(policy, NetworkPolicy) or policy.net.input_indices is not None:
        return None
    if normalization is not None and (
        np.any(normalization.obs_mean != 0) or np.any(normalization.obs_std != 1) or normalization.obs_clip is not None
    ):
        return None
    weights, biases = [*policy.net.weights], [*policy.net.biases]
    arrays = {"activation": np.array(policy.net.activation)}
    if isinstance(actor.spec.action, Continuous):
        squashed = isinstance(policy, Squashed) or (isinstance(policy, Deterministic) and policy.squash)
        if normalization is None or not squashed:
            return None
        size = actor.spec.action.shape[0]
        weights[-1], biases[-1] = weights[-1][:, :size], biases[-1][:size]
        arrays["squash"] = np.array(True)
        if isinstance(policy, Deterministic | StateDependent) and policy.clip is not None:
            arrays["clip"] = np.array(policy.clip)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        arrays[f"w{i}"], arrays[f"b{i}"] = np.asarray(weight), np.asarray(bias)
    return arrays


def holds_weights(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an npz file with `w0` and `b0`."""
    try:
        return is_weights(FileReader(path, "an npz file", "").npz_names())
    except RunError:
        return False


def is_weights(names: Collection[str]) -> bool:
    """Whether an npz file with these arrays holds weights."""
    return {"w0", "b0"} <= set(names)


def _continuous(net: MLP, action: Continuous, observed: Observed, squash: bool, clip: float | None) -> Policy:
    low, high = np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)
    center, scale = (low + high) / 2, (high - low) / 2
    if not squash:  # rescale the last layer to normalized actions, whose range is [-1, 1]
        *weights, weight = net.weights
        *biases, bias = net.biases
        net = MLP((*weights, weight / scale), (*biases, (bias - center) / scale), net.activation)
    return Normalized(Deterministic(net, squash, clip), observed.normalization(center, scale))


def _setting(name: str, arrays: Mapping[str, Any], key: str, given: Any) -> Any:
    """A setting from the caller or from the source. Raises if both have it and differ."""
    if key not in arrays:
        return given
    stored = np.asarray(arrays[key]).item()
    if given is not None and given != stored:
        raise SettingError(f"{key} is {given!r}, but {name} contains {stored!r}: leave out {key}, or fix the file")
    return stored


def _network(name: str, arrays: Mapping[str, Any], activation: Activation) -> MLP:
    count = sum(key[0] == "w" and key[1:].isdigit() for key in arrays)
    missing = [f"{kind}{i}" for i in range(max(count, 1)) for kind in "wb" if f"{kind}{i}" not in arrays]
    if missing:
        raise SpecError(f"{name} has no {', '.join(missing)}: store the layers x @ w + b as w0, b0, w1, b1, ...")
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite, which is refused below
        weights = [np.asarray(arrays[f"w{i}"], np.float32) for i in range(count)]
        biases = [np.asarray(arrays[f"b{i}"], np.float32) for i in range(count)]
    width: int | None = None
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or width not in (None, weight.shape[0]):
            follows = "" if width is None else f" after a layer with {width} outputs"
            raise SpecError(
                f"{name} has w{i} of shape {weight.shape} and b{i} of shape {bias.shape}{follows}: "
                "each layer is x @ w + b"
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise SpecError(f"{name} has NaN or infinity in w{i} or b{i}")
        width = weight.shape[1]
    return MLP(tuple(weights), tuple(biases), activation)


def read_weights(path: Path) -> dict[str, Any]:
    """The layers and settings in an npz file of weights. Other arrays in it are not read."""
    file = FileReader(path, "an npz file of weights", "store the layers x @ w + b as w0, b0, w1, b1, ...")
    arrays: dict[str, Any] = file.npz(_expected)
    for key in ("activation", "squash", "clip"):
        if key in arrays:
            value = arrays[key].reshape(-1)[0].item() if arrays[key].size == 1 else None
            if not SETTINGS[key](value):
                raise file.damaged(f"{key} is {quoted(repr(value), 40)}")
            arrays[key] = bool(value) if key == "squash" else value
    return arrays


def _expected(name: str) -> Expected | None:
    if re.fullmatch(r"[wb][0-9]{1,3}", name):
        return Expected("fiu", itemsize=4)
    kinds = {"activation": TEXT, "squash": "biu", "clip": "fiu"}
    return Expected(kinds[name], most=1000) if name in kinds else None


def _arrays(source: Source) -> tuple[Mapping[str, Any], str]:
    """The arrays by name, and the source's name for errors."""
    if isinstance(source, Mapping):
        return source, "the dictionary"
    path = checked_path(source)
    return read_weights(path), f"'{quoted(path.name, 300)}'"
