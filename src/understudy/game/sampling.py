"""Uniform samples of rows: from one dataset, from two together, and a share from each.

A dataset is padded, and some of its rows may be unusable, for example because their next state was not recorded. `Rows`
lists the usable ones. If a dataset is empty, `only_where` keeps functions of its padding out of a loss.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.core.types import Dataset, Transition

Tree = TypeVar("Tree")
"""Arrays with the same first axis."""


class Rows(NamedTuple):
    """The rows of a dataset that may be sampled: the first `size` entries of `order`."""

    order: Int[Array, " n"] | None
    """Row numbers, the usable ones first. None: row i is i."""
    size: Int[Array, ""]

    @classmethod
    def where(cls, mask: Bool[Array, " n"]) -> "Rows":
        """The rows at which `mask` is true."""
        return cls(jnp.argsort(~mask, stable=True).astype(jnp.int32), mask.sum().astype(jnp.int32))

    def row(self, i: Int[Array, "..."]) -> Int[Array, "..."]:
        """The i-th usable row."""
        return i if self.order is None else self.order[i]

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int[Array, "..."]:
        """Rows drawn uniformly, with replacement; row 0 if there are none."""
        return self.row(jax.random.randint(key, shape, 0, jnp.maximum(self.size, 1)))


class ChosenSteps(NamedTuple):
    """Some rows of a dataset's steps, sampled as `Dataset` is."""

    steps: Transition
    rows: Rows

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Transition:
        """Steps drawn uniformly, with replacement."""
        drawn: Transition = take(self.steps, self.rows.sample(key, shape))
        return drawn


class Draw(NamedTuple):
    """Rows drawn from two datasets together."""

    from_first: Bool[Array, " n"]
    """Which dataset each row comes from."""
    first: Int[Array, " n"]
    """Rows of the first dataset, valid where `from_first`."""
    second: Int[Array, " n"]
    """Rows of the second dataset, valid elsewhere."""


def draw_from_both(key: Key[Array, ""], count: int, first: Rows, second: Rows) -> Draw:
    """Rows drawn uniformly from the two sets of rows together."""
    index = jax.random.randint(key, (count,), 0, first.size + second.size)
    return Draw(
        index < first.size,
        first.row(jnp.minimum(index, first.size - 1)),
        second.row(jnp.maximum(index - first.size, 0)),
    )


def sample_from_both(key: Key[Array, ""], count: int, first: tuple[Tree, Rows], second: tuple[Tree, Rows]) -> Tree:
    """Rows of arrays, such as steps, drawn uniformly from two datasets together."""
    return take_from_both(draw_from_both(key, count, first[1], second[1]), first[0], second[0])


def take_from_both(draw: Draw, first: Tree, second: Tree) -> Tree:
    """The drawn rows."""

    def pick(a: Array, b: Array) -> Array:
        chosen = a[draw.first]
        return jnp.where(draw.from_first.reshape(-1, *(1,) * (chosen.ndim - 1)), chosen, b[draw.second])

    drawn: Tree = jax.tree.map(pick, first, second)
    return drawn


def sample_share(
    key: Key[Array, ""], count: int, share: Float[Array, ""], first: tuple[Tree, Rows], second: tuple[Tree, Rows]
) -> Tree:
    """`share` · `count` rows of the first dataset, rounded up or down at random, then the rest from the second."""
    round_key, step_key = jax.random.split(key)
    from_first = jnp.arange(count) < jnp.floor(share * count + jax.random.uniform(round_key))
    index = jax.random.randint(step_key, (count,), 0, jnp.where(from_first, first[1].size, second[1].size))
    rows = first[1].row(jnp.where(from_first, index, 0)), second[1].row(jnp.where(from_first, 0, index))
    return take_from_both(Draw(from_first, *rows), first[0], second[0])


def sample_halves(
    key: Key[Array, ""], count: int, first: tuple[Transition, Rows], second: tuple[Transition, Rows]
) -> Transition:
    """count // 2 steps of the first dataset, then the rest from the second."""
    half = count // 2
    sizes = jnp.where(jnp.arange(count) < half, first[1].size, second[1].size)
    index = jax.random.randint(key, (count,), 0, sizes)
    rows = first[1].row(index[:half]), second[1].row(index[half:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a[rows[0]], b[rows[1]]]), first[0], second[0])


def only_where(real: Bool[Array, ""], function: Callable[..., Array], *inputs: Array) -> Array:
    """function(*inputs) where the inputs are `real`, else 0, with a gradient of 0 even if the function is NaN there.

    Masking the value alone would leave a gradient of 0 · NaN = NaN, so the inputs are masked too.
    """
    masked = (jnp.where(real, x, jax.lax.stop_gradient(x)) for x in inputs)
    return jnp.where(real, function(*masked), 0.0)


def with_actions(data: Dataset, act: Array) -> Dataset:
    """The same steps with other actions."""
    return data._replace(steps=data.steps._replace(act=act))


def take(tree: Any, rows: Int[Array, "..."] | int) -> Any:
    """The given rows of every array in a pytree."""
    return jax.tree.map(lambda x: x[rows], tree)
