"""A policy that was trained elsewhere, from its plain weights.

An npz file, or a dictionary, of `w0, b0, w1, b1, ...`, each layer x @ w + b, and optionally of what lies around them:

    activation    between the layers: "relu", "tanh" or "identity"
    squash        continuous actions: the output passes through tanh, and (-1, 1) is mapped to the environment's range;
                  else the output is the action, clipped to that range
    clip          a number: squashed outputs are first clipped to ± this

Of discrete actions it takes the one with the largest output.
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from understudy.core.errors import NeedsError, RunError, SettingError, SpecError, check_choice, check_positive
from understudy.core.types import Continuous, Discrete, Spec
from understudy.envs import make, public_name
from understudy.policies import Categorical, Deterministic, Normalized, Policy
from understudy.policies.actor import Actor
from understudy.policies.gaussian import NetworkPolicy, Squashed, StateDependent
from understudy.policies.networks import MLP, Activation
from understudy.policies.normalization import Normalization

Source = str | os.PathLike[str] | Mapping[str, Any]


def policy_from_weights(
    source: Source,
    env: Any,
    activation: Activation | None = None,
    squash: bool | None = None,
    clip: float | None = None,
) -> Actor:
    """The network of `source` as a policy of `env`, with what the source does not say about it."""
    arrays, name = _arrays(source)
    env = make(env)
    policy = policy_of_arrays(arrays, name, env.spec, env.name, activation, squash, clip)
    return Actor(policy, env.spec, {"algorithm": f"weights of {name}", "env": public_name(env)})


def policy_of_arrays(
    arrays: Mapping[str, Any],
    name: str,
    spec: Spec,
    place: str,
    activation: Activation | None = None,
    squash: bool | None = None,
    clip: float | None = None,
) -> Policy:
    """As `policy_from_weights`, where the task is known but not made; errors call the arrays and it by their names."""
    activation = _said(name, arrays, "activation", activation)
    squash = bool(_said(name, arrays, "squash", squash))
    clip = _said(name, arrays, "clip", clip)
    if activation is None:
        raise NeedsError(
            f"{name} holds weights, but not what lies between the layers: pass activation= (--expert-activation), "
            "or keep it in the file as `activation`"
        )
    check_choice(get_args(Activation), activation=activation)
    if clip is not None:
        check_positive(clip=clip)
        if not squash:
            raise SettingError(f"clip is {clip}: it is for outputs that are squashed, pass squash=True")
    net = _network(name, arrays, activation)
    inputs, outputs = net.weights[0].shape[0], net.biases[-1].shape[0]
    needed = spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0]
    if (inputs, outputs) != (spec.obs_size, needed):
        raise SpecError(
            f"{name} takes {inputs} numbers to {outputs}: in {place} a policy takes {spec.obs_size} to {needed}"
        )
    if isinstance(spec.action, Continuous):
        return _continuous(net, spec.action, spec.obs_size, squash, clip)
    return Categorical(net)


def plain_weights(actor: Actor) -> dict[str, np.ndarray] | None:
    """What a policy does without chance as arrays that `policy_from_weights` reads; None where it is no plain network.

    Of a Gaussian that is its mean: its last layer without the half that says how wide it is, where it has one.
    """
    policy: Policy = actor.policy
    normalization: Normalization | None = None
    if isinstance(policy, Normalized):
        normalization, policy = policy.normalization, policy.policy
    if not isinstance(policy, NetworkPolicy) or policy.net.reads is not None:
        return None
    if normalization is not None and (np.any(normalization.obs_mean != 0) or np.any(normalization.obs_std != 1)):
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
    """Whether a file is an npz of plain weights, by the names in it."""
    if not Path(path).is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return {"w0.npy", "b0.npy"} <= set(file.namelist())


def _continuous(net: MLP, action: Continuous, inputs: int, squash: bool, clip: float | None) -> Policy:
    low, high = np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)
    center, scale = (low + high) / 2, (high - low) / 2
    if not squash:  # the last layer speaks in the normalization's coordinates, where the range is [-1, 1]
        *weights, weight = net.weights
        *biases, bias = net.biases
        net = MLP((*weights, weight / scale), (*biases, (bias - center) / scale), net.activation)
    normalization = Normalization(np.zeros(inputs, np.float32), np.ones(inputs, np.float32), center, scale)
    return Normalized(Deterministic(net, squash, clip), normalization)


def _said(name: str, arrays: Mapping[str, Any], key: str, given: Any) -> Any:
    """A setting that the caller or the source states; or both, if they agree."""
    if key not in arrays:
        return given
    found = np.asarray(arrays[key]).item()
    if given is not None and given != found:
        raise SettingError(f"{key} is {given!r}, but {name} says {found!r}: leave it out, or mend the file")
    return found


def _network(name: str, arrays: Mapping[str, Any], activation: Activation) -> MLP:
    count = sum(key[0] == "w" and key[1:].isdigit() for key in arrays)
    missing = [f"{kind}{i}" for i in range(max(count, 1)) for kind in "wb" if f"{kind}{i}" not in arrays]
    if missing:
        raise SpecError(f"{name} has no {', '.join(missing)}: weights are w0, b0, w1, b1, ..., with x @ w + b")
    weights = [np.asarray(arrays[f"w{i}"], np.float32) for i in range(count)]
    biases = [np.asarray(arrays[f"b{i}"], np.float32) for i in range(count)]
    width: int | None = None
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or width not in (None, weight.shape[0]):
            follows = "" if width is None else f" behind {width} numbers"
            raise SpecError(
                f"{name} has w{i} of shape {weight.shape} and b{i} of shape {bias.shape}{follows}: x @ w + b"
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise SpecError(f"{name} has NaN or infinity in w{i} or b{i}")
        width = weight.shape[1]
    return MLP(tuple(weights), tuple(biases), activation)


def _arrays(source: Source) -> tuple[Mapping[str, Any], str]:
    """What there is by name, and what errors call it."""
    if isinstance(source, Mapping):
        return source, "the dictionary"
    path = Path(source)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}, f"'{path.name}'"
    except (ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise RunError(f"'{path}' is not an npz file of weights ({type(error).__name__})") from error
