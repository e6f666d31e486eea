"""Rules for causes of a bad policy: its training, its data, or its expert.

They count as far as the policy is worse than the expert, where that is known.
"""

import numpy as np

from understudy.diagnosis.evidence import Found, Numbers, listed, ramp

LEARNED = 500
"""Gradient steps after which a policy is not worse than one without skill because it has hardly been trained."""


def poor_expert(n: Numbers) -> tuple[float, str]:
    r, s = n["demonstrators"].get("returns", {}), n["survival"]
    likely, text = 0.0, ""
    if r.get("share") is not None:
        certain = 1.0 if (r.get("p_worse") or 0.0) < 0.05 else 0.4
        likely = 0.95 * ramp(1 - r["share"], 0.1, 0.3) * certain
        text = (
            f"the demonstrations return {r['demonstrations']:.1f}, {r['best_name']} "
            f"{r['best']:.1f}, random or constant actions {r['random']:.1f}"
        )
    p = r.get("p_better_than_random")
    if p is not None and p > 0.05 and r["demonstrations"] < r["random"] + 1e-9:
        likely = max(likely, 0.9)
        text = (
            text or f"the demonstrations return {r['demonstrations']:.1f}, random or constant actions {r['random']:.1f}"
        )
    if r.get("searched_share") is not None:
        beaten = 0.93 * ramp(1 - r["searched_share"], 0.38, 0.55) * (1.0 if r["p_worse_than_searched"] < 0.01 else 0.2)
        if p is not None and p <= 0.05:
            beaten *= 1 - 0.5 * n.failing  # the expert has skill, and its limit does not keep the policy from it
        if beaten > likely:
            likely = beaten
            text = (
                f"the demonstrations return {r['demonstrations']:.1f}, a policy of a short search "
                f"{r['searched']:.1f}, random or constant actions {r['random']:.1f}"
            )
    if (
        (s.get("reward_per_step") or 0.0) > 0
        and s.get("terminal", 0.0) > 0.5
        and s.get("longest", 0) < 0.5 * s.get("horizon", 0)
    ):
        alive = 0.6 if r.get("share") is None else 0.0
        if alive > likely:
            likely, text = (
                alive,
                f"rewards pay for living, and every episode ends within {s['longest']} of {s['horizon']} steps",
            )
    if r.get("successes") is not None:
        failed = 0.95 * ramp(1 - r["successes"], 0.2, 0.6)
        if failed > likely:
            likely, text = failed, f"{r['successes']:.0%} of the demonstrations are marked as successes"
    return likely, text


def _spread(n: Numbers) -> tuple[float, str, Found]:
    """How likely the expert acts differently in alike states, for the two causes of it."""
    a = n["ambiguity"]
    if not a:
        return 0.0, "", a
    if not a["alike"]:
        return *_irreducible(n), a
    likely = ramp(a["low"], 0.02, 0.08)
    modes = a.get("two_modes")
    if modes is not None:
        likely *= 0.25 + 0.75 * ramp(modes, 0.08, 0.2)
    else:
        likely *= ramp(a["low"], 0.1, 0.3)
    local = a.get("local")
    if local is not None:  # a few states in which the expert chooses count little in all of its actions' variance
        here = ramp(local["share"], 0.005, 0.02) * (1 - ramp(local["share"], 0.3, 0.6))
        here *= ramp(local["unpredictable"], 0.65, 0.85)
        likely = max(likely, here * ramp(modes, 0.3, 0.7))
    likely *= 0.9 * _weight(n) * (0.5 + 0.5 * _misfit(n))
    if several(n)[0] > 0.5:
        likely *= 0.8  # the groups explain it
    return likely, n.sentences["ambiguity"], a


def _irreducible(n: Numbers) -> tuple[float, str]:
    """Where no states are alike: how likely an error that more demonstrations do not lower is a spread."""
    d = n["data"]
    if not d or len(d["errors"]) < 3:
        return 0.0, ""
    likely = 0.75 * ramp(d["errors"][-1], 0.15, 0.4) * ramp(d["training_error"], 0.05, 0.2)
    likely *= 1 - ramp(d["rate"], 0.1, 0.3)
    return likely * _weight(n), f"{n.sentences['data']}; it does not fall with their number"


def _weight(n: Numbers) -> float:
    """How much a spread of the expert's actions counts: little where the policy returns as much as the expert."""
    known = "performance" in n.values  # like states alone do not show it: they may not depend on actions
    return 0.35 + 0.65 * max(n.failing, 0.0 if known else 0.6) if n.played else 1.0


def _misfit(n: Numbers) -> float:
    """How clearly a clone fails to fit the actions: little where the state decides them. 1 if there is no clone."""
    clone = n["data"].get("training_error", n["optimisation"].get("reference_training"))
    return 1.0 if clone is None else ramp(clone, 0.005, 0.03)


def ambiguous(n: Numbers) -> tuple[float, str]:
    likely, text, a = _spread(n)
    whole = a.get("nugget_with_all_observations") if a else None
    if whole is not None and whole < 0.5 * a["nugget"]:
        return 0.7 * likely, text
    return likely, text


def hidden(n: Numbers) -> tuple[float, str]:
    likely, text, a = _spread(n)
    if not a:
        return likely, text
    whole = a.get("nugget_with_all_observations")
    if whole is not None and whole < 0.5 * a["nugget"]:
        return likely, f"{text}; the observations that the policy does not see explain it ({whole:.1%} are left)"
    memory = a.get("nugget_with_memory")
    if memory is not None and memory < 0.5 * a["nugget"]:
        return likely, f"{text}; with the observation before, {memory:.1%} are left"
    local = a.get("local") or {}
    if "share_with_memory" in local:
        before, after = local["share"], local["share_with_memory"]
        explained = ramp((before + 0.005) / (after + 0.005), 1.5, 2.3) * ramp(local["unpredictable"], 0.6, 0.75)
        found = 0.9 * _weight(n) * explained * ramp(before, 0.02, 0.1) * _misfit(n)
        if found > likely:
            text = (
                f"{before:.1%} of the steps have alike states with different actions, and {after:.1%} if a state has "
                "the observation before, too"
            )
            return found, text
    return likely, f"{text}; the observation before does not explain it"


def several(n: Numbers) -> tuple[float, str]:
    d = n["demonstrators"]
    ratio, excess = d.get("ratio", 1.0), d.get("excess", 0.0)
    sizes = " and ".join(map(str, d.get("groups", [])))
    likely = 0.92 * ramp(ratio, 1.8, 3.2) * ramp(excess, 0.03, 0.1)
    clones = n["data"]
    if clones:  # one policy cannot act like two experts: it misses a part of what they do, at least on unseen steps
        likely *= ramp(max(clones["training_error"], clones["errors"][-1]), 0.01, 0.04)
    return (
        likely,
        f"two groups of {sizes} episodes act {ratio:.1f} times as differently in alike states as each within itself",
    )


def diverged(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    if o.get("diverged"):
        return 0.97, f"{len(o['diverged'])} runs diverged: {listed(o['diverged'])}"
    if o.get("finite") and not all(o["finite"]):
        return 0.95, "the held-out payoff of a run is not finite"
    if o.get("exploded"):
        return 0.96, f"{listed(o['exploded'])} exploded in training: {_sizes(o)}"
    if o.get("strained") and n.played:
        gain = ramp(o.get("clone", {}).get("gain"), 0.1, 0.4)
        return 0.94 * gain * n.failing, f"{listed(o['strained'])} grew far beyond the size of the rewards: {_sizes(o)}"
    share = n.value("performance")
    if o.get("offline") and not o["supervised"] and np.isfinite(share) and (o.get("gradient_steps") or 0) >= LEARNED:
        # Too little training leaves a policy without skill; only a game that went wrong makes it much worse.
        worse = 0.95 * ramp(-share, 0.5, 1.5) * ramp(o.get("training_error"), 0.8, 1.2)
        if worse > 0:
            return worse, f"after {o['gradient_steps']:,} gradient steps the policy is far worse than one without skill"
    if o.get("dead"):
        return 0.6, f"{listed(o['dead'])} are zero throughout"
    return 0.0, ""


def _sizes(o: Found) -> str:
    return ", ".join(f"{name} reached {o['largest'][name]:.3g}" for name in [*o["exploded"], *o["strained"]])


def under_trained(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    if "training_error" not in o:
        falling = 0.6 * ramp(o.get("falling"), 0.1, 0.3) * n.failing if o else 0.0
        return falling, n.sentences.get("optimisation", "")
    train, best = o["training_error"], o["reference_training"]
    worse = ramp((train + 0.01) / (best + 0.01), 1.5, 4.0) * ramp(train - best, 0.01, 0.04)
    falling = ramp(o.get("falling"), 0.05, 0.2) * ramp((train + 0.01) / (best + 0.01), 1.2, 2.0)
    likely = 0.93 * max(worse, 0.7 * falling) * (0.3 + 0.7 * n.failing if n.played else 1.0) * _training(n)
    steps = o.get("gradient_steps")
    return likely, f"the policy misses {train:.1%} of its training actions, a reference clone {best:.1%}" + (
        f" (it took {steps:,} gradient steps)" if steps else ""
    )


def _training(n: Numbers) -> float:
    """How much a cause in the training counts: less where the reference clone of the same data is no better."""
    c = n["optimisation"].get("clone")
    if not c or n.failing < 0.5:
        return 1.0
    return 0.6 + 0.4 * ramp(c["gain"], 0.0, 0.3)


def overfitting(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    train, unseen = o.get("training_error"), o.get("unseen_error")
    if train is None or unseen is None or not np.isfinite(unseen):
        return 0.0, ""
    best = float(np.nanmin([o["reference_unseen"], o.get("simple_unseen", np.nan)]))
    text = f"the policy misses {train:.1%} in training and {unseen:.1%} on unseen steps, a simpler one {best:.1%}"
    gap = ramp((unseen + 0.01) / (train + 0.01), 1.5, 3.0)
    worse = ramp((unseen + 0.005) / (best + 0.005), 1.1, 1.6) * ramp(unseen - best, 0.01, 0.05)
    nugget = n["ambiguity"].get("nugget", 0.0) if n["ambiguity"].get("alike") else 0.0
    noise = ramp(nugget, 0.03, 0.1) * ramp((nugget + 1e-3) / (train + 1e-3), 1.5, 3.0)
    if noise > worse:
        text = f"the policy misses {train:.1%} in training, less than the expert's own noise of {nugget:.1%}"
    # A few episodes overfit any clone: then the smaller one is bad, too.
    few = ramp(5 - n["data"].get("counts", [5])[-1], 0.0, 3.0)
    worse *= 1 - max(few * (0.4 + 0.3 * ramp(best, 0.1, 0.3)), 0.6 * ramp(best - nugget, 0.4, 0.9))
    least = 0.6 if o.get("supervised", True) else 0.3  # by other moments, as good a policy may act in another way
    small = least * ramp(unseen - best, 0.05, 0.3)  # a policy that returns as much may miss a little more
    worse *= small + (1 - small) * n.failing
    noise *= least + (1 - least) * n.failing
    hopeless = 0.5 * ramp(unseen, 0.3, 0.7) * n.failing  # nothing simpler is better, but this is learned by heart
    return 0.9 * gap * max(worse, noise, hopeless), text


def too_few(n: Numbers) -> tuple[float, str]:
    d, o = n["data"], n["optimisation"]
    if not d:
        count = n["hygiene"].get("episodes", 0)
        likely = 0.8 * ramp(4 - count, 0.0, 2.0) * (n.failing if "performance" in n.values else 0.85)
        return likely, f"there are only {count} demonstrations"
    unseen, train, count = d["errors"][-1], d["training_error"], d["counts"][-1]
    own = o.get("unseen_error", unseen)
    larger = ramp((unseen + 0.01) / (train + 0.01), 1.5, 3.0)
    known = "performance" in n.values
    bad = ramp(unseen, 0.05, 0.2) if known else ramp(unseen, 0.1, 0.4)  # few held-out episodes are a noisy measure
    rate = d["rate"] if np.isfinite(d["rate"]) else 0.5
    falls = max(ramp(rate, 0.1, 0.4), ramp(6 - count, 0.0, 4.0))
    # An error of 1 is no better than a constant: there the rate says nothing yet.
    falls = max(falls, ramp(20 - count, 0.0, 10.0) * ramp(unseen, 0.4, 0.8))
    likely = 0.9 * larger * bad * falls
    likely *= n.failing if known else 1.0
    if own > 2 * unseen + 0.05 and count >= 6:
        likely *= 0.5  # the same data allow a better policy
    return likely, n.sentences["data"]


def compounding(n: Numbers) -> tuple[float, str]:
    c, v = n["compounding"], n["coverage"]
    if not c:
        return 0.0, ""
    ratio = n.value("compounding")
    leaves = ramp(n.value("coverage"), 0.1, 0.3) if v else 0.5
    later = 1.0 if v.get("departure") is None or v.get("at_start", 1.0) > 0.01 else 0.5
    shown = c["demonstrated"] if np.isfinite(c["demonstrated"]) else 0.1
    good = 1 - 0.6 * ramp(shown, 0.1, 0.4)
    likely = 0.88 * n.failing * good * later * max(ramp(ratio, 1.5, 4.0), 0.5 * leaves) * (0.5 + 0.5 * leaves)
    text = n.sentences["compounding"]
    return likely, f"{n.sentences['coverage']}; {text}" if v.get("departure") is not None else text


def seeds(n: Numbers) -> tuple[float, str]:
    s = n["optimisation"].get("seeds", {})
    if s.get("count", 1) < 2:
        return 0.0, ""
    if "range" in s:
        text = (
            f"returns of {s['count']} seeds run from {min(s['means']):.1f} to "
            f"{max(s['means']):.1f}, {s['range']:.0%} of the scale"
        )
        p = n["performance"]
        best = (s["best"] - p["random"]) / max(p["expert"] - p["random"], 1e-9) if p else 1.0
        good = 0.6 + 0.4 * ramp(best, 0.4, 0.8)  # one seed that works shows that the others could
        return 0.93 * ramp(s["range"], 0.15, 0.4) * (1.0 if s["p"] < 0.01 else 0.2) * good, text
    payoffs = np.asarray(s["payoffs"])
    if not np.isfinite(payoffs).all() or payoffs.min() <= 0:
        return 0.0, ""
    ratio = float(payoffs.max() / payoffs.min())
    return 0.7 * ramp(ratio, 2.0, 5.0), f"held-out payoffs of {len(payoffs)} seeds differ by a factor of {ratio:.1f}"
