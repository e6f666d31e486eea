"""The `Algorithm` class, and the card that places an algorithm in the paper's taxonomy.

An algorithm is an immutable record of its hyperparameters with pure functions. Floats are leaves of a pytree: changing
a learning rate does not recompile, and a sweep over one is a vmap axis. Settings that change shapes are static fields.
The command line, the documentation and `config.json` are generated from the same fields.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from understudy.core.errors import SettingError, check_names, check_switches, unknown
from understudy.core.types import Dataset, Info, RoundData, Spec, State
from understudy.game.kernels import Match
from understudy.game.schedule import Schedule
from understudy.policies import Policy

Moments = Literal["reward", "off-Q", "on-Q"]
Need = Literal["demonstrations", "environment", "expert", "cost"]
NEEDS: dict[Moments, tuple[Need, ...]] = {
    "off-Q": ("demonstrations",),
    "reward": ("demonstrations", "environment"),
    "on-Q": ("demonstrations", "environment", "expert"),
}
INSTEAD: dict[Need, Need] = {"cost": "expert"}
"""A need that takes the place of another: an algorithm with a cost computes the expert that it queries."""
BOUNDS: dict[Moments, str] = {"reward": "O(εT)", "off-Q": "O(εT²)", "on-Q": "O(εHT)"}
DEFAULT, QUICK = "default", "quick"
"""Names of presets. Every algorithm of the package has "quick": smaller networks and fewer rounds, and otherwise the
default settings or those of another preset. It trains in seconds to two minutes on two CPU cores."""
Part = TypeVar("Part", bound=eqx.Module)
Kind = TypeVar("Kind", bound="Algorithm")


@dataclass(frozen=True)
class Card:
    """An algorithm's row in the taxonomy."""

    name: str
    title: str
    moments: Moments
    solver: Literal["primal", "dual", "-"]
    """The player that runs no-regret; '-' for a fixed loss without an adversary."""
    needs: tuple[Need, ...]
    actions: tuple[Literal["continuous", "discrete"], ...]
    collects: str
    """What a round collects."""
    reference: str
    next_states: bool = False
    """Whether it learns from next states, which demonstrations may lack."""
    values: bool = False
    """Whether it queries the expert for action values instead of actions."""
    fixed: bool = False
    """Whether f never moves: a fixed loss, or a fixed reward."""
    observations: bool = False
    """Whether it learns from observations alone: it never sees the expert's actions."""

    @property
    def bound(self) -> str:
        return BOUNDS[self.moments]


class Algorithm(eqx.Module):
    """Abstract: pure functions over an immutable record of hyperparameters. Every subclass is final.

    init(key, spec, demonstrations)   the state before round 0
    update(state, data, key)          one update; its gradient steps are a scan inside
    policy(state)                     the policy to evaluate now, in the environment's coordinates

    An on-Q algorithm may also define where the expert is queried (`gate`). An algorithm that updates while it collects
    steps defines its `schedule`.
    """

    card: ClassVar[Card]
    stop_reasons: ClassVar[tuple[str, ...]] = ()
    """Why a run may end early. `Info.stop` is an index into these, from 1."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Presets: named settings other than the default."""
    small: ClassVar[dict[str, Any]] = {}
    """Settings small enough for a test: the protocol tests run every algorithm with them."""
    learning: ClassVar[dict[str, Any]] = {}
    """Settings that differ from the usual ones in the test that it learns a linear expert."""
    rounds: eqx.AbstractVar[int]
    episodes_per_round: ClassVar[int] = 0
    """Episodes that a run collects in a round. On-Q algorithms have a field of this name."""
    ask: ClassVar[str] = "all"
    queries_per_round: ClassVar[int | None] = None
    """Where the expert is queried after the episodes, see `asking`. On-Q algorithms have fields of these names."""
    answers_per_episode: ClassVar[int | None] = None
    """How often a gate may ask in an episode. None: no limit. Algorithms that limit it have a field of this name."""
    moments: ClassVar[Any] = None
    """The user's moment function (`features`). Algorithms that take one have a field of this name."""
    cost: ClassVar[Any] = None
    """The task's cost (`costs`). Algorithms that need one have a field of this name."""
    has_critic: ClassVar[bool] = True
    """Whether it has a critic or a moment function that sees states, for which `critic_obs` is."""
    match: ClassVar[Match] = "obs-act"
    """The part of a step that its moments see. Algorithms that can do without actions have a field of this name."""
    replays: ClassVar[int] = 0
    """Episodes of a clone for the expert's side of f (`train.replays`). Algorithms that take them have this field."""
    multi_discrete: ClassVar[bool] = False
    """Whether it takes multi-discrete actions too, besides those of its card."""
    start_share: ClassVar[float] = 0.0
    """Share of the episodes that begin at a demonstrated step. Reward-moment algorithms have a field of this name."""
    expert_gates: ClassVar[bool] = False
    """Whether the expert decides where it acts: a person at the console takes over, and is asked nothing."""
    expert_acts: ClassVar[bool] = False
    """Whether it learns only where the expert acts within the learner's episodes, by its `gate`."""
    exploring: ClassVar[float] = 1.0
    """For algorithms that query action values: the probability that the action is drawn uniformly."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        if "preset" in settings:
            raise SettingError(f"preset is no setting: use {cls.card.name}.preset({settings['preset']!r}, ...)")
        own = {field.name for field in fields(cls)}
        for name in ("ask", "queries_per_round"):
            if name in settings and name not in own and cls.gate is not Algorithm.gate:
                raise SettingError(f"{cls.card.name} has a gate, which decides where the expert answers: omit {name}")
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
        """The policy that collects data. Default: `policy(state)`."""
        return self.policy(state)

    def newest_policy(self, state: State) -> Policy:
        """The policy after the last update, which competes with `final_policy`. Default: `acting_policy(state)`."""
        return self.acting_policy(state)

    def final_policy(self, state: State) -> Policy:
        """The policy that a finished run returns. Default: `policy(state)`."""
        return self.policy(state)

    def start_seeds(self, state: State) -> Int[Array, " episodes"] | None:
        """The seeds of the states in which a round's episodes start, one for each episode. None: always new ones.

        The acting policy finds its episode's seed in `Carry.drawn`.
        """
        return None

    @property
    def has_fixed_starts(self) -> bool:
        """Whether `start_seeds` decides where episodes start."""
        return type(self).start_seeds is not Algorithm.start_seeds

    @property
    def schedule(self) -> Schedule | None:
        """How it collects and updates. None: a round collects whole episodes, or nothing, and updates once."""
        return None

    @property
    def needs_actions(self) -> str | None:
        """Why it cannot train on demonstrations without actions, and what can; None: it can."""
        return (
            f"{self.card.name} learns from the expert's actions, and the demonstrations have none: choose adril or "
            "gail with preset 'observations'"
        )

    @property
    def judged_in_episodes(self) -> bool:
        """Whether fresh episodes measure its payoff (`train.selection`): it acts step by step, or sees no actions."""
        return self.schedule is not None or self.match != "obs-act"

    @property
    def gated(self) -> bool:
        """Whether `gate` decides where the expert is queried. Otherwise it is queried at every state."""
        return type(self).gate is not Algorithm.gate

    def start_gate(self, state: State, index: Array, key: Key[Array, ""]) -> Any:
        """The gate's memory at the start of an episode of round `index`: a pytree of arrays."""
        return ()

    def gate(
        self, state: State, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
        """(the gate's memory, whether to query the expert here, whether the expert acts here).

        Called at each step of an episode with the learner's action `act`. Where the expert acts it is also queried, and
        its action is its answer. Answers are counted against the budget; without budget left the learner acts, and the
        expert is queried only if `gate` says so.
        """
        return carry, jnp.asarray(True), jnp.asarray(False)

    def expert_acted(self, state: State, carry: Any, obs: Array, act: Array, answer: Array) -> Any:
        """The gate's memory after a step at which the expert acted: `answer` is its action, `act` the learner's."""
        return carry

    @classmethod
    def preset(cls: type[Kind], name: str, **changes: Any) -> Kind:
        """The named settings, with changes: `advil.preset("paper", rounds=200)`."""
        if name != DEFAULT and name not in cls.presets:
            known = [DEFAULT, *cls.presets]
            raise unknown(f"preset of {cls.card.name}", name, known, f"Presets: {', '.join(known)}.")
        own = cls.presets.get(name, {})
        parts = {part: adjusted(own[part], given) for part, given in changes.items() if part in own}
        return cls(**{**own, **changes, **parts})

    @property
    def preset_name(self) -> str:
        """The name of the preset with these settings; "custom" if there is none."""
        return next((name for name in (DEFAULT, *self.presets) if self.preset(name) == self), "custom")


def adjusted(part: Any, given: Any) -> Any:
    """A part of an algorithm, such as its RL player: replaced by another one, or with some of its settings changed."""
    if not (isinstance(given, Mapping) and isinstance(part, eqx.Module)):
        return given
    check_names(type(part), given)
    return replace(part, **given)


def adjustable(default: Part) -> Callable[[Any], Part]:
    """The converter of a part's field: `sac={"lr": 1e-3}` changes one setting of the default player.

    It always changes the default player, also in `dataclasses.replace`; `preset` handles a preset's player.
    """
    return lambda given: adjusted(default, given)
