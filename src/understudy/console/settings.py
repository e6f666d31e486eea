"""What a console is told when it starts."""

import pickle
from dataclasses import dataclass

from understudy.collect.worker import STEP_TIMEOUT
from understudy.console.choosing import Choice, check_choice_of_states
from understudy.core.errors import NeedsError, SettingError, check_not_negative, check_seed, check_whole
from understudy.data import Demonstrations
from understudy.game import Algorithm


@dataclass(frozen=True)
class Settings:
    """The algorithm, and how a person is asked."""

    algorithm: Algorithm | None = None
    """None: the console only demonstrates."""
    demonstrations: Demonstrations | None = None
    """Episodes to learn from, besides those of the person."""
    seed: int = 0
    budget: int | None = None
    """The most answers of all rounds together; None: no limit."""
    questions: int = 20
    """The most questions of a round."""
    choose: Choice = "novelty"
    """How they are chosen from the states that the algorithm asks about."""
    step_timeout: float = STEP_TIMEOUT

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_whole(1, questions=self.questions)
        if self.budget is not None:
            check_whole(1, budget=self.budget)
        check_not_negative(step_timeout=self.step_timeout)
        check_choice_of_states(self.choose)
        if self.algorithm is None:
            return
        if not isinstance(self.algorithm, Algorithm):
            raise SettingError(f"algorithm is {self.algorithm!r}: give a value such as understudy.dagger()")
        if self.algorithm.card.values:
            title = self.algorithm.card.title
            raise NeedsError(f"{title} asks for action values, which a person cannot give: use dagger or daequil")
        try:
            pickle.dumps(self.algorithm)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise SettingError(
                f"{self.algorithm.card.name} cannot be sent to the process that trains ({error}): define its "
                "functions, such as moments, in a module"
            ) from error

    @property
    def asks(self) -> bool:
        """Whether the algorithm asks the person. If the person decides where to act (HG-DAgger), it does not."""
        algorithm = self.algorithm
        return algorithm is not None and "expert" in algorithm.card.needs and not algorithm.expert_gates

    @property
    def note(self) -> str:
        if self.algorithm is None or self.asks:
            return ""
        return f"{self.algorithm.card.title} asks no questions: it learns from demonstrations and corrections"
