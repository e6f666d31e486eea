"""What to do about each cause, in the paper's terms and in plain ones, and the command to type."""

from typing import Any

from understudy.diagnosis.measures import CauseName

REMEDIES: dict[CauseName, str] = {
    "too-few-demonstrations": "Record more demonstrations: the matching error ε is that of the data, "
    "not of the algorithm.",
    "ambiguous-expert": "Do not match the mean action: match moments that all of the expert's choices "
    "share (daequil), or "
    "the expert's action values (aggrevate).",
    "hidden-state": "Let the policy see what the expert sees: add the missing observation, or the last few ones.",
    "compounding-errors": "Match moments on the learner's own states: ask the expert there (dagger, "
    "O(εHT)), or play in the "
    "environment (adril, O(εT)); off-Q moments cost O(εT²).",
    "wrong-action-scale": "Convert the recorded actions to the environment's units, then train again.",
    "swapped-columns": "Put the columns of observations and actions in the environment's order, then train again.",
    "time-limit-as-terminal": "Mark only absorbing states as terminal: a time limit says nothing about the state.",
    "missing-terminals": "Record where episodes end in a terminal state; rewards that are learned "
    "need it to value survival.",
    "poor-expert": "Record a better expert, or drop its bad episodes: imitation is at most as good as "
    "the demonstrations.",
    "diverged-critic": "Lower the learning rate, or use the default settings: the moment function f "
    "ran away from the policy.",
    "under-trained": "Train longer, or with a higher learning rate.",
    "overfitting": "Train a smaller network for fewer steps, with weight decay; or record more demonstrations.",
    "constant-observations": "Check the sensors of these columns, or leave the columns out.",
    "repeated-episodes": "Drop the copies: they hide how few demonstrations there are, and the "
    "held-out payoff is not fresh.",
    "leaked-action": "Leave the column out: the policy copies it, and it is not there when the policy acts.",
    "wrong-control-rate": "Record at the rate at which the policy acts, or use one step of every group.",
    "several-experts": "Train on one group at a time, or tell the policy which expert it is (an extra observation).",
    "unstable-seeds": "Train more seeds and select by payoff, or use the defaults with weight averaging.",
    "none": "Nothing stands out.",
}


def command(name: CauseName, context: dict[str, Any]) -> str:
    """The command to type next."""
    env, demos = context.get("env") or "ENV", context.get("demos") or "FILE"
    algorithm = context.get("algorithm") or "bc"
    expert = context.get("expert") or "EXPERT"
    train = f"understudy train {algorithm} --demos {demos}" + ("" if algorithm == "bc" else f" --env {env}")
    asked = f"understudy train dagger --env {env} --expert {expert}"
    commands: dict[CauseName, str] = {
        "too-few-demonstrations": f"understudy demos record {env} --episodes "
        f"{context.get('needed') or 50} --out more.npz",
        "ambiguous-expert": f"understudy train daequil --env {env} --expert {expert}",
        "hidden-state": f"understudy demos inspect {demos}",
        "compounding-errors": asked if context.get("expert") else f"understudy train adril --demos {demos} --env {env}",
        "poor-expert": f"understudy expert train {env}",
        "diverged-critic": train,
        "under-trained": f"{train} --rounds {4 * (context.get('rounds') or 25)}",
        "overfitting": f"understudy train bc --demos {demos} --preset quick",
        "unstable-seeds": f"{train} --seeds 10",
        "none": f"understudy evaluate {context['run']}"
        if context.get("run")
        else f"understudy train bc --demos {demos}",
    }
    return commands.get(name, f"understudy demos inspect {demos}")
