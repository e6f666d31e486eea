"""An attempt on the stage: the steps of one episode, each with the policy's action and who acted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understudy.console.protocol import plain_action
from understudy.console.stage import Moment
from understudy.core.types import Spec
from understudy.data import Demonstrations
from understudy.data.details import Details


@dataclass
class Attempt:
    """The first moment is the start; every further one comes after a step."""

    number: int
    mode: str
    """demonstrate or watch."""
    seed: int
    policy: int | None
    """The number of the policy that acts where the person does not."""
    moments: list[Moment] = field(default_factory=list)
    by_person: list[bool] = field(default_factory=list)
    """Whether the person acted, for each step."""
    success: bool | None = None
    frozen: bool = False
    """It cannot be continued, since the environment does not come to the same states again."""

    @property
    def t(self) -> int:
        return len(self.by_person)

    @property
    def over(self) -> bool:
        return self.frozen or (bool(self.moments) and self.moments[-1].over)

    @property
    def total(self) -> float:
        return float(sum(moment.reward for moment in self.moments[1:]))

    @property
    def interventions(self) -> int:
        """Steps at which the person took over from a policy."""
        return sum(self.by_person) if self.mode == "watch" else 0

    @property
    def actions(self) -> list[Any]:
        return [moment.action for moment in self.moments[1:]]

    @property
    def observations(self) -> list[np.ndarray]:
        """After each step."""
        return [moment.obs for moment in self.moments[1:]]

    def header(self) -> dict[str, Any]:
        """The first line of its file."""
        start = {"number": self.number, "mode": self.mode, "seed": self.seed, "policy": self.policy}
        return {**start, **_written(self.moments[0])}

    def line(self) -> dict[str, Any]:
        """The line of the last step."""
        return {
            **_written(self.moments[-1]),
            "action": plain_action(self.moments[-1].action),
            "person": self.by_person[-1],
        }

    @classmethod
    def from_lines(cls, lines: list[dict[str, Any]], action: Callable[[Any], Any]) -> "Attempt":
        """The attempt of a file. `action` checks an action."""
        header, *rest = lines
        attempt = cls(header["number"], header["mode"], header["seed"], header["policy"], [_read(header, action)])
        for line in rest:
            if "undo" in line:
                attempt.back_to(line["undo"])
            elif "success" in line:
                attempt.success = line["success"]
            else:
                attempt.moments.append(_read(line, action))
                attempt.by_person.append(line["person"])
        return attempt

    def back_to(self, t: int) -> None:
        """Forget the steps from t on."""
        del self.moments[t + 1 :], self.by_person[t:]

    def demonstrations(self, spec: Spec, env: str | None, rate: float) -> tuple[Demonstrations, dict[str, np.ndarray]]:
        """The episode, and the arrays that only the console reads."""
        before, after = self.moments[:-1], self.moments[1:]
        kind = np.float32 if spec.action.shape and np.asarray(after[0].action).dtype.kind == "f" else np.int32
        actions = np.array([moment.action for moment in after], kind)
        watched = self.mode == "watch"
        details = Details(
            successes=None if self.success is None else np.array([self.success]),
            interventions=np.array(self.by_person) if watched else None,
            fps=rate,
            origin=f"policy {self.policy}" if watched else None,
        )
        episode = Demonstrations.from_arrays(
            np.stack([moment.obs for moment in before]),
            actions,
            [len(after)],
            last_observations=after[-1].obs[None],
            terminals=np.array([moment.terminal for moment in after]),
            rewards=np.array([moment.reward for moment in after], np.float32),
            action_space=spec.action,
            horizon=spec.horizon,
            env=env,
            obs_parts=spec.obs_parts,
            details=details,
            source="the attempt",
        )
        more = {"person_acted": np.array(self.by_person)}
        if watched:
            more["policy_actions"] = np.array([moment.policy_action for moment in before], kind)
        return episode, more


def _written(moment: Moment) -> dict[str, Any]:
    return {
        "obs": np.asarray(moment.obs, np.float64).tolist(),
        "reward": moment.reward,
        "terminal": moment.terminal,
        "over": moment.over,
        "policy_action": plain_action(moment.policy_action),
    }


def _read(line: dict[str, Any], action: Callable[[Any], Any]) -> Moment:
    taken, chosen = (None if line.get(key) is None else action(line[key]) for key in ("action", "policy_action"))
    obs = np.array(line["obs"], np.float32)
    return Moment(obs, float(line["reward"]), line["terminal"], line["over"], taken, chosen, None)
