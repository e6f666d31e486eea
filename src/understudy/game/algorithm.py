"""What an algorithm is, where it sits in the paper's taxonomy, and the two idealised loops of section 5.

An algorithm is an immutable record of its hyperparameters with three pure functions. Its numbers are leaves of a
pytree, so changing a learning rate compiles nothing anew and a sweep over one is a vmap axis; what changes shapes is a
static field. The same fields make its command line and its entry in the documentation.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.core.errors import check_names, check_switches, unknown
from understudy.core.types import Dataset, Info, RoundData, Spec, State
from understudy.game.schedule import Schedule
from understudy.policies import Policy

Moments = Literal["reward", "off-Q", "on-Q"]
Need = Literal["demonstrations", "environment", "expert"]
NEEDS: dict[Moments, tuple[Need, ...]] = {
    "off-Q": ("demonstrations",),
    "reward": ("demonstrations", "environment"),
    "on-Q": ("demonstrations", "environment", "expert"),
}
DEFAULT = "default"
Part = TypeVar("Part", bound=eqx.Module)
BOUNDS: dict[Moments, str] = {"reward": "O(εT)", "off-Q": "O(εT²)", "on-Q": "O(εHT)"}


@dataclass(frozen=True)
class Card:
    """An algorithm's row in the taxonomy."""

    name: str
    title: str
    moments: Moments
    solver: Literal["primal", "dual", "-"]
    """Which player runs no-regret; '-' for a fixed loss, where nothing is adversarial."""
    needs: tuple[Need, ...]
    actions: tuple[Literal["continuous", "discrete"], ...]
    collects: str
    """What a round collects."""
    reference: str
    next_states: bool = False
    """Whether it learns from the states that follow, which demonstrations may lack."""
    values: bool = False
    """Whether it asks the expert what an action is worth, and not which one it would take."""

    @property
    def bound(self) -> str:
        return BOUNDS[self.moments]


class Algorithm(eqx.Module):
    """Abstract: three pure functions over an immutable record of hyperparameters. Every subclass is final.

    init(key, spec, demonstrations)   the state before the first round
    update(state, data, key)          one round: its gradient steps are a scan inside
    policy(state)                     the policy as it would be handed over now, in the environment's coordinates
    """

    card: ClassVar[Card]
    stop_reasons: ClassVar[tuple[str, ...]] = ()
    """Why a run may end before its rounds are over, in words: what `Info.stop` counts into, from 1."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Named settings beside the default ones."""
    rounds: eqx.AbstractVar[int]
    episodes_per_round: ClassVar[int] = 0
    """Episodes that a run plays in a round, for those that need an environment: a field of theirs."""
    mixing: ClassVar[float | None] = None
    """β: round i plays β^i π_E + (1 − β^i) π. None: the learner alone. A field of those that offer it."""
    exploring: ClassVar[float] = 1.0
    """How often the action whose value is asked for is any, each alike, and not the learner's or the expert's."""

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        check_names(cls, settings)
        return super().__new__(cls)

    def __check_init__(self) -> None:
        check_switches(self)

    @abstractmethod
    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> State: ...

    @abstractmethod
    def update(self, state: State, data: RoundData, key: Key[Array, ""]) -> tuple[State, Info]: ...

    @abstractmethod
    def policy(self, state: State) -> Policy: ...

    def acting_policy(self, state: State) -> Policy:
        """Who plays while it learns; by default the policy that would be handed over."""
        return self.policy(state)

    @property
    def schedule(self) -> Schedule | None:
        """How it learns while it plays; None for those whose rounds gather whole episodes, or nothing."""
        return None

    def final_payoff(self, state: State) -> float | None:
        """The held-out payoff of `selected` in the algorithm's own moments, on the host; None: it measures none."""
        return None

    def expert_share(self, index: Array | int) -> Float[Array, ""] | None:
        """How often the expert acts in the episodes of round `index`; None: never, and there is no coin to toss."""
        return None if self.mixing is None else jnp.asarray(self.mixing, jnp.float32) ** index

    def final_policy(self, state: State) -> Policy:
        """What a finished run hands over; by default the policy as it is."""
        return self.policy(state)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The named settings, with changes: `advil.preset("paper", rounds=200)`."""
        if name != DEFAULT and name not in cls.presets:
            raise unknown(f"preset of {cls.card.name}", name, [DEFAULT, *cls.presets])
        own = cls.presets.get(name, {})
        parts = {part: adjusted(own[part], given) for part, given in changes.items() if part in own}
        return cls(**{**own, **changes, **parts})

    @property
    def preset_name(self) -> str:
        """Which named settings these are; "custom" if none."""
        return next((name for name in (DEFAULT, *self.presets) if self.preset(name) == self), "custom")


def adjusted(part: Part, given: Part | Mapping[str, Any]) -> Part:
    """What stands for an algorithm's part: another one, or a table of those of its settings that change."""
    if not (isinstance(given, Mapping) and isinstance(part, eqx.Module)):
        return given
    check_names(type(part), given)
    return replace(part, **given)


def adjustable(default: Part) -> Callable[[Part | Mapping[str, Any]], Part]:
    """The converter of a part's field, so that `sac={"lr": 1e-3}` is the algorithm's own SAC with another rate.

    Its own by default: a converter knows neither the preset, of which `preset` takes care, nor what `replace` replaces.
    """
    return lambda given: adjusted(default, given)
