"""What an environment does not say and demonstrations know: the bounds of its actions, and its horizon."""

from understudy.core.errors import DemonstrationError
from understudy.core.notices import notice
from understudy.core.spaces import MARGIN, margin_bounds
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment


def completed(
    env: Environment | GymnasiumEnvironment, demonstrations: Demonstrations
) -> Environment | GymnasiumEnvironment:
    """The environment with the bounds and the horizon of its demonstrations, where it has none. A notice says so.

    Demonstrations without a horizon of their own do not set one: their longest episode may have ended before it.
    """
    if not isinstance(env, GymnasiumEnvironment):
        return env
    if env.horizon is None and not demonstrations.horizon_from_data:
        env = env.with_horizon(demonstrations.horizon)
        notice(
            f"{env.name} has no time limit: its episodes end after {env.horizon} steps, the horizon of the "
            "demonstrations (another: understudy.make(env, horizon=N), or --horizon N)"
        )
    space = demonstrations.recorded_space
    env.checked_horizon()
    if not env.bounded:
        if not isinstance(space, Continuous) or len(space.low) != env.action_size:
            raise DemonstrationError(
                f"{env.name} has actions of {env.action_size} numbers, and the demonstrations have the action space "
                f"{quoted(space)}: pass demonstrations of this environment"
            )
        stated = not demonstrations.bounds_from_data
        env = env.with_action_bounds(space if stated else margin_bounds(demonstrations.actions))
        bounds = env.spec.action
        assert isinstance(bounds, Continuous)
        shown = ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in zip(bounds.low, bounds.high, strict=True))
        added = "" if stated else f" and {MARGIN:.0%} of its range on each side"
        notice(f"{env.name} has actions without bounds: those of the demonstrations{added} are used, {quoted(shown)}")
    return env
