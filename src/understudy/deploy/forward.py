"""The forward pass of every policy, with NumPy alone.

`understudy.policies` computes with these functions, too, on JAX arrays: `xp` is numpy or jax.numpy. On NumPy a policy
is a tree of `Node`s, whose fields have the names of the classes' fields. `understudy export --to numpy` copies this.
"""

from typing import Any, NamedTuple

import numpy as np

MAX_SEED = 2**31 - 1
"""Noise seeds are int32 numbers below this."""
MOST_POINTS = 10_000
"""Points of a grid of actions."""
FIELDS = {
    "MLP": ("weights", "biases", "activation", "input_indices"),
    "Normalization": ("obs_mean", "obs_std", "act_center", "act_scale", "obs_clip"),
    "Categorical": ("net",),
    "Independent": ("net", "nvec"),
    "Deterministic": ("net", "squash", "clip"),
    "Gaussian": ("net", "log_std_min", "log_std_max", "bound"),
    "Mixture": ("net", "components", "log_std_min", "log_std_max"),
    "StateDependent": ("net", "log_std", "clip", "hold"),
    "Binned": ("net", "bins", "size"),
    "Tabular": ("table",),
    "Ensemble": ("members",),
    "TimeIndexed": ("policies",),
    "Timed": ("policy", "horizon"),
    "Normalized": ("policy", "normalization"),
}
"""The classes of a policy's parts, and their fields."""


def features(net: Any, x: Any, xp: Any = np) -> Any:
    """The last hidden layer of a network."""
    if net.input_indices is not None:
        x = x[..., np.asarray(net.input_indices)]
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = x @ weight + bias
        if net.activation == "relu":
            x = xp.maximum(x, 0)
        elif net.activation == "tanh":
            x = xp.tanh(x)
        elif net.activation != "identity":
            raise ValueError(f"activation is '{net.activation}': choose 'relu', 'tanh' or 'identity'")
    return x


def output(net: Any, hidden: Any) -> Any:
    """The output layer, given the last hidden layer."""
    return hidden @ net.weights[-1] + net.biases[-1]


def network(net: Any, x: Any, xp: Any = np) -> Any:
    return output(net, features(net, x, xp))


def clamp(x: Any, low: Any, high: Any, xp: Any = np) -> Any:
    """x within bounds. np.clip takes as long as a layer of the network, and this runs once a step."""
    return xp.minimum(xp.maximum(x, low), high)


def squashed(policy: Any, out: Any, xp: Any = np) -> Any:
    """The action of a deterministic policy: its network's output, clipped and under tanh if it says so."""
    if policy.clip is not None:
        out = clamp(out, -policy.clip, policy.clip, xp)
    return xp.tanh(out) if policy.squash else out


def gaussian(policy: Any, obs: Any, xp: Any = np) -> tuple[Any, Any]:
    """μ and log σ of a Gaussian policy, before tanh."""
    out = network(policy.net, obs, xp)
    size = out.shape[-1] // 2
    mean, raw = out[..., :size], out[..., size:]  # np.split takes as long as a small network
    if policy.bound == "clip":
        return mean, clamp(raw, policy.log_std_min, policy.log_std_max, xp)
    return mean, between(policy.log_std_min, policy.log_std_max, raw, xp)


def between(low: float, high: float, raw: Any, xp: Any = np) -> Any:
    """Numbers squashed into a range with tanh."""
    return low + 0.5 * (high - low) * (xp.tanh(raw) + 1)


def mixture(policy: Any, obs: Any, xp: Any = np) -> tuple[Any, Any, Any]:
    """Logits of a mixture's weights, then μ and log σ of its components before clipping: (..., components, actions)."""
    count, out = policy.components, network(policy.net, obs, xp)
    size = (out.shape[-1] // count - 1) // 2
    middle = count * (1 + size)
    means = out[..., count:middle].reshape(*out.shape[:-1], count, size)
    raw = out[..., middle:].reshape(*out.shape[:-1], count, size)
    return out[..., :count], means, between(policy.log_std_min, policy.log_std_max, raw, xp)


def component(each: Any, chosen: Any, xp: Any = np) -> Any:
    """The numbers of the chosen component: (..., components, actions) becomes (..., actions)."""
    return xp.take_along_axis(each, chosen[..., None, None], axis=-2)[..., 0, :]


def held_noise(shape: tuple[int, ...], hold: int, t: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The noise of state-dependent exploration: standard normal, new every `hold` steps of an episode."""
    seeds = zip(np.ravel(drawn), np.ravel(t // hold), strict=True)
    noise = [np.random.default_rng(seed).standard_normal(shape, np.float32) for seed in seeds]
    return np.stack(noise).reshape(*np.shape(drawn), *shape)


def split(out: Any, nvec: tuple[int, ...]) -> list[Any]:
    """A network's outputs for each of several categoricals."""
    ends = np.cumsum(nvec).tolist()
    return [out[..., end - size : end] for end, size in zip(ends, nvec, strict=True)]


def grid_point(index: Any, bins: int, size: int, xp: Any = np) -> Any:
    """The points of a grid in [-1, 1]^size with these numbers, `bins` in each dimension."""
    digits = xp.stack([index // bins**i % bins for i in range(size)], axis=-1)
    return (2 * digits / (bins - 1) - 1).astype(np.float32)


def with_time(t: Any, obs: Any, horizon: int, xp: Any = np) -> Any:
    """Observations followed by t/T."""
    share = (xp.minimum(t, horizon) / horizon).astype(obs.dtype)[..., None]
    return xp.concatenate([obs, xp.broadcast_to(share, (*obs.shape[:-1], 1))], axis=-1)


def softmax(logits: Any, xp: Any = np) -> Any:
    """exp(logits), normalized over the last axis."""
    powers = xp.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_weights(probabilities: Any, xp: Any = np) -> Any:
    """log p; −∞ where p is 0."""
    tiny = xp.finfo(probabilities.dtype).tiny
    return xp.where(probabilities > 0, xp.log(xp.maximum(probabilities, tiny)), -xp.inf)


def encode_obs(normalization: Any, obs: Any, xp: Any = np) -> Any:
    """The standardized observation, clipped if the normalization says so."""
    standardized = (obs - normalization.obs_mean) / normalization.obs_std
    clip = normalization.obs_clip
    return standardized if clip is None else clamp(standardized, -clip, clip, xp)


def decode_act(normalization: Any, act: Any, xp: Any = np) -> Any:
    """The action in the environment's range, clipped to it."""
    if normalization.act_center is None:
        return act
    return normalization.act_center + normalization.act_scale * clamp(act, -1, 1, xp)


class Node:
    """A part of a policy: the name of its class, and its fields as attributes."""

    def __init__(self, kind: str, fields: dict[str, Any]):
        self.kind = kind
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a {vars(self).get('kind')} has no {name}")

    def at(self, index: int) -> Any:
        """The policy at `index` of a stack. An index past the end picks the last one."""
        return Node(
            self.kind, {name: _at(value, index) for name, value in vars(self).items() if name in FIELDS[self.kind]}
        )

    def each(self) -> list[Any]:
        """The members of an ensemble."""
        if "_each" not in vars(self):
            self._each = [self.members.at(i) for i in range(self.members.net.weights[0].shape[0])]
        return self._each


def _at(value: Any, index: int) -> Any:
    if isinstance(value, Node):
        return value.at(index)
    if isinstance(value, tuple):
        return tuple(_at(one, index) for one in value)
    return value[min(max(index, 0), len(value) - 1)] if isinstance(value, np.ndarray) else value


def build(structure: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The policy of a structure, as nodes. Raises ValueError or KeyError if it is not one."""
    if "class" in structure:
        kind, fields = structure["class"], structure["fields"]
        if set(fields) != set(FIELDS[kind]):
            raise ValueError(f"the fields of its {kind} are not {', '.join(FIELDS[kind])}")
        return Node(kind, {name: build(field, arrays) for name, field in fields.items()})
    if "tuple" in structure:
        return tuple(build(item, arrays) for item in structure["tuple"])
    return arrays[structure["array"]] if "array" in structure else structure["value"]


def nodes(value: Any) -> list[Any]:
    """All nodes of a policy."""
    inner = value if isinstance(value, tuple) else vars(value).values() if isinstance(value, Node) else ()
    return [*([value] if isinstance(value, Node) else []), *(node for one in inner for node in nodes(one))]


def scores(policy: Any, obs: np.ndarray) -> np.ndarray:
    """Numbers for each discrete action: logits of a categorical policy, else probabilities."""
    if policy.kind in ("Categorical", "Binned"):
        return network(policy.net, obs)
    if policy.kind == "Tabular":
        return policy.table[obs]
    members = policy.each()
    return sum(softmax(network(member.net, obs)) for member in members) / len(members)


def act(policy: Any, state: Any, obs: np.ndarray, random: np.random.Generator | None = None) -> Any:
    """The actions for a batch of observations: deterministic, or samples if there is a generator."""
    kind = policy.kind
    if kind == "Normalized":
        normalization = policy.normalization
        return decode_act(normalization, act(policy.policy, state, encode_obs(normalization, obs), random))
    if kind == "Deterministic":
        return squashed(policy, network(policy.net, obs))
    if kind == "Gaussian":
        mean, log_std = gaussian(policy, obs)
        if random is not None:
            mean = mean + np.exp(log_std) * random.standard_normal(mean.shape).astype(mean.dtype)
        return np.tanh(mean)
    if kind == "Mixture":
        logits, means, log_stds = mixture(policy, obs)
        if random is None:
            return clamp(component(means, logits.argmax(-1)), -1, 1)
        chosen = (logits + random.gumbel(size=logits.shape)).argmax(-1)
        mean, std = component(means, chosen), np.exp(component(log_stds, chosen))
        return clamp(mean + std * random.standard_normal(mean.shape).astype(mean.dtype), -1, 1)
    if kind == "StateDependent":
        hidden = features(policy.net, obs)
        mean = clamp(output(policy.net, hidden), -policy.clip, policy.clip)
        if random is not None:
            noise = np.exp(policy.log_std) * held_noise(policy.log_std.shape, policy.hold, state.t, state.drawn)
            mean = mean + (hidden[..., None, :] @ noise)[..., 0, :]
        return np.tanh(mean)
    if kind == "Timed":
        return act(policy.policy, state, with_time(state.t, obs, policy.horizon), random)
    if kind == "TimeIndexed":
        return _by_time(policy.policies, state, obs, random)
    if kind == "Ensemble" and policy.members.kind == "Deterministic":
        members = policy.each()
        return sum(act(member, state, obs) for member in members) / len(members)
    if kind == "Independent":
        parts = split(network(policy.net, obs), policy.nvec)
        noisy = parts if random is None else [logits + random.gumbel(size=logits.shape) for logits in parts]
        return np.stack([logits.argmax(-1) for logits in noisy], axis=-1)
    found = scores(policy, obs)
    if random is not None:
        logits = found if kind in ("Categorical", "Binned") else log_weights(found)
        found = logits + random.gumbel(size=logits.shape)
    chosen = found.argmax(-1)
    return grid_point(chosen, policy.bins, policy.size) if kind == "Binned" else chosen


def _by_time(policies: Any, state: Any, obs: np.ndarray, random: np.random.Generator | None) -> np.ndarray:
    """Time-indexed policies: each distinct one acts once."""
    rows = []
    for t in np.unique(state.t):
        chosen = state.t == t
        part = State(state.t[chosen], state.drawn[chosen])
        rows.append((chosen, act(policies.at(int(t)), part, obs[chosen], random)))
    out = np.empty((len(obs), *rows[0][1].shape[1:]), rows[0][1].dtype)
    for chosen, actions in rows:
        out[chosen] = actions
    return out


class State(NamedTuple):
    """The memory of a policy within an episode, with an entry for each observation of a batch."""

    t: np.ndarray
    """The time step."""
    drawn: np.ndarray
    """A number drawn at the start of the episode: the seed of state-dependent noise."""
    last: Any = None
    """The last action, of policies that are limited in rate; NaN at the start of an episode."""
