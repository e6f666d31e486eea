"""Certificates of the imitation gap as a column of the report (docs/certificates.md).

The stored policies play fresh episodes, and are judged by fresh episodes of the expert: recorded ones if the expert is
known, else the demonstrations beyond those that the run was given. Nothing is trained. A row shows the largest bound of
its seeds. Each has the confidence 1 − 0.05 / seeds, so that with 95% probability all of them hold.
"""

import sys
from collections.abc import Sequence

from understudy.collect.recording import record
from understudy.core.errors import NeedsError, UnderstudyError
from understudy.core.text import quoted
from understudy.data import Demonstrations
from understudy.envs import make_unfinished
from understudy.evaluation.certificate import Certificate
from understudy.evaluation.certificates import FEWEST, certify
from understudy.evaluation.returns import completed
from understudy.studies.cells import Store
from understudy.studies.plan import Task
from understudy.studies.report.clips import expert_of, loaded_policy
from understudy.studies.report.formatting import number
from understudy.studies.report.learners import LearnerResults, TaskResults

CertificateCells = dict[str, tuple[str, str]]
"""Name of a row → its bound, and what the permutation tests say."""
HEADER = "certificate of the gap"
CAPTION = (
    "Certificate: with 95% probability, the gap of all seeds is at most this part of the largest possible one, for "
    "every reward of norm ≤ 1 in a kernel's space. Its unit is that of those rewards, not of the return. In brackets: "
    "seeds that a permutation test tells from the expert."
)
SEED = 20_210_718
"""Of the fresh episodes: a report that is made again has the same numbers."""
LONGEST_REASON = 160


def certificate_cells(
    task: Task, results: TaskResults, store: Store, demonstrations: Demonstrations, episodes: int
) -> CertificateCells:
    """The cells of a task's column. A row that has no certificate says why."""
    fresh: Demonstrations | None = None
    cells: CertificateCells = {}
    for learner in results.learners:
        if not learner.curve.final:
            continue
        try:
            if expert_of(task) is not None:
                fresh = _recorded(task, results, store, episodes) if fresh is None else fresh
                judges = fresh
            else:
                judges = _unseen(demonstrations, learner.trajectories)
            cells[learner.name] = _cell(
                [_certificate(task, store, key, judges, episodes, learner) for key in _keys(learner)]
            )
        except UnderstudyError as error:
            reason = quoted(error, LONGEST_REASON)
            print(f"warning: no certificate of {learner.name} on {task.env}: {reason}", file=sys.stderr)
            cells[learner.name] = ("none", reason)
    return cells


def _keys(learner: LearnerResults) -> list[str]:
    return [one["key"] for one in learner.records if one["config"]["seed"] in learner.curve.final]


def _recorded(task: Task, results: TaskResults, store: Store, episodes: int) -> Demonstrations:
    actor, env = loaded_policy(store, results), make_unfinished(task.named_env)
    environment = env if actor is None else completed(env, actor)
    return record(environment, expert_of(task), episodes, SEED, progress=False)


def _unseen(demonstrations: Demonstrations, used: int) -> Demonstrations:
    left = demonstrations.episodes - used
    if left < FEWEST:
        raise NeedsError(
            f"{left} demonstrations were not used to train, at least {FEWEST} are needed: "
            'expert = "..." in the [[task]] lets fresh ones be recorded'
        )
    return demonstrations.after(used)


def _certificate(
    task: Task, store: Store, key: str, judges: Demonstrations, episodes: int, learner: LearnerResults
) -> Certificate:
    confidence = 1 - 0.05 / len(learner.curve.final)
    found = certify(
        store.load_policy(key),
        judges,
        task.named_env,
        moments=("reward",),
        episodes=episodes,
        confidence=confidence,
        seed=SEED,
        progress=False,
    )
    unit: Certificate = found[0]
    return unit


def _cell(certificates: Sequence[Certificate]) -> tuple[str, str]:
    worst = max(certificates, key=lambda one: one.bound)
    different = sum(one.different for one in certificates)
    vague = ", approximate" if any(one.approximate for one in certificates) else ""
    told = f"({different} of {len(certificates)} seeds differ{vague})"
    bound = f"≤ {number(worst.bound, worst.largest)} of {number(worst.largest)}"
    return "vacuous" if worst.vacuous else bound, told
