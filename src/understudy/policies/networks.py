"""A multilayer perceptron whose one forward pass runs on JAX and on NumPy.

There is no function among the leaves, so that a network can be carried through `lax.scan` and written to a file.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from understudy.core.arrays import Array, Light, namespace

Activation = Literal["relu", "tanh", "identity"]
Init = Literal["orthogonal", "uniform"]


class MLP(Light):
    """x ↦ W_k σ(... σ(W_1 x + b_1) ...) + b_k, for one input or a batch of them."""

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    activation: Activation = eqx.field(static=True)
    reads: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Which numbers of its input it reads, in which order; None: all."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        activation: Activation = "relu",
        gain: float | Array | None = None,
        reads: tuple[int, ...] | None = None,
        init: Init = "orthogonal",
    ) -> "MLP":
        """Orthogonal weights, of the given gain (default: √2 under ReLU) and 1 at the output, and zero biases; or
        weights and biases uniform within ± 1/√inputs of their layer, which is PyTorch's start and has no gain.
        """
        sizes = (inputs if reads is None else len(reads), *hidden, outputs)
        if init == "uniform":
            return cls(*_uniform(key, sizes), activation, reads)
        if init != "orthogonal":
            raise ValueError(f"unknown init '{init}'")
        if gain is None:
            gain = 2**0.5 if activation == "relu" else 1.0
        gains = [gain] * len(hidden) + [1.0]
        keys = jax.random.split(key, len(gains))
        weights = tuple(
            jax.nn.initializers.orthogonal(gain)(k, (i, o))
            for k, gain, i, o in zip(keys, gains, sizes[:-1], sizes[1:], strict=True)
        )
        return cls(weights, tuple(jnp.zeros(o) for o in sizes[1:]), activation, reads)

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        return self.output(self.features(x))

    def features(self, x: Float[Array, "... i"]) -> Float[Array, "... h"]:
        """What its last layer is given."""
        xp = namespace(x)
        if self.reads is not None:
            x = x[..., np.array(self.reads)]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight + bias
            if self.activation == "relu":
                x = xp.maximum(x, 0)
            elif self.activation == "tanh":
                x = xp.tanh(x)
            elif self.activation != "identity":
                raise ValueError(f"unknown activation '{self.activation}'")
        return x

    def output(self, features: Float[Array, "... h"]) -> Float[Array, "... o"]:
        return features @ self.weights[-1] + self.biases[-1]


def _uniform(key: Key[Array, ""], sizes: tuple[int, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Weights and biases of layers of these sizes, within ± 1/√inputs."""
    layers = [
        jax.random.uniform(k, (i + 1, o), minval=-(i**-0.5), maxval=i**-0.5)
        for k, i, o in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    ]
    return tuple(layer[:-1] for layer in layers), tuple(layer[-1] for layer in layers)


def orthogonal_penalty(network: MLP, between: Literal["inputs", "outputs"]) -> Float[Array, ""]:
    """Σ over layers of ‖gram matrix off its diagonal‖² (Brock et al., 2018).

    Zero when the weights of a layer's inputs, or those of its outputs, are orthogonal to each other. A layer that
    widens can have the first and not the second, so the two differ.
    """
    total = jnp.zeros(())
    for weight in network.weights:
        gram = weight @ weight.T if between == "inputs" else weight.T @ weight
        total += jnp.sum(jnp.square(gram)) - jnp.sum(jnp.square(jnp.diagonal(gram)))
    return total
