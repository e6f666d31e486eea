"""A multilayer perceptron with one forward pass for JAX and NumPy.

The leaves are arrays only, no functions, so a network can be carried through `lax.scan` and saved to a file.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from understudy.core.arrays import Array, Light, namespace
from understudy.deploy import forward

Activation = Literal["relu", "tanh", "identity"]
Init = Literal["orthogonal", "uniform"]


class MLP(Light):
    """x ↦ W_k σ(... σ(W_1 x + b_1) ...) + b_k, for one input or a batch."""

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True)
    input_indices: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Indices of the inputs that the network uses, in this order. None: all."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        activation: Activation = "relu",
        gain: float | Array | None = None,
        input_indices: tuple[int, ...] | None = None,
        init: Init = "orthogonal",
    ) -> "MLP":
        """A new network.

        "orthogonal": orthogonal weights and zero biases. `gain` scales the hidden layers (default √2 with ReLU, else
        1); the output layer has gain 1. "uniform": PyTorch's default, weights and biases in ± 1/√inputs of the layer.
        """
        sizes = (inputs if input_indices is None else len(input_indices), *hidden, outputs)
        if init == "uniform":
            return cls(*_uniform(key, sizes), activation, input_indices)
        if init != "orthogonal":
            raise ValueError(f"init is '{init}': choose 'orthogonal' or 'uniform'")
        if gain is None:
            gain = 2**0.5 if activation == "relu" else 1.0
        gains = [gain] * len(hidden) + [1.0]
        keys = jax.random.split(key, len(gains))
        weights = tuple(
            jax.nn.initializers.orthogonal(gain)(k, (i, o))
            for k, gain, i, o in zip(keys, gains, sizes[:-1], sizes[1:], strict=True)
        )
        return cls(weights, tuple(jnp.zeros(o) for o in sizes[1:]), activation, input_indices)

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        return self.output(self.features(x))

    def features(self, x: Float[Array, "... i"]) -> Float[Array, "... h"]:
        """The last hidden layer."""
        return forward.features(self, x, namespace(x))

    def output(self, features: Float[Array, "... h"]) -> Float[Array, "... o"]:
        """The output layer, given the last hidden layer."""
        return forward.output(self, features)


def _uniform(key: Key[Array, ""], sizes: tuple[int, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Weights and biases of layers with these sizes, uniform in ± 1/√inputs."""
    layers = [
        jax.random.uniform(k, (i + 1, o), minval=-(i**-0.5), maxval=i**-0.5)
        for k, i, o in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    ]
    return tuple(layer[:-1] for layer in layers), tuple(layer[-1] for layer in layers)


class NormedMLP(eqx.Module):
    """An MLP with ReLU and layer normalization, for critics: x ↦ W_k relu(N(... relu(N(W_1 x + b_1)) ...)) + b_k.

    N(h) = (h − mean h) / √(var h + 1e-5), without parameters of its own.
    """

    net: MLP

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        net = self.net
        if net.input_indices is not None:
            x = x[..., jnp.asarray(net.input_indices)]
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            hidden = x @ weight + bias
            hidden -= hidden.mean(-1, keepdims=True)
            x = jax.nn.relu(hidden / jnp.sqrt(jnp.square(hidden).mean(-1, keepdims=True) + 1e-5))
        return net.output(x)


def orthogonal_penalty(network: MLP, between: Literal["inputs", "outputs"]) -> Float[Array, ""]:
    """Σ over layers of the squared off-diagonal entries of the Gram matrix (Brock et al., 2018).

    It is zero if a layer's weight vectors are orthogonal to each other. `between` chooses the vectors: one for each
    input of the layer, or one for each output. A layer with more outputs than inputs can satisfy only the first.
    """
    total = jnp.zeros(())
    for weight in network.weights:
        gram = weight @ weight.T if between == "inputs" else weight.T @ weight
        total += jnp.sum(jnp.square(gram)) - jnp.sum(jnp.square(jnp.diagonal(gram)))
    return total
