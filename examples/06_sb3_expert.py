"""Ask a Stable-Baselines3 model with DAgger. Its zip is read without PyTorch and without Stable-Baselines3.

`data/cartpole_ppo.zip` is PPO on CartPole-v1, a return of 500 of 500. The learner begins with 25 demonstrated steps
and asks the model in the states that it visits itself. Expect a return near 500 after some 1,000 answers.
"""

from pathlib import Path

import numpy as np

import understudy as us

model = Path(__file__).parent / "data" / "cartpole_ppo.zip"
demos = us.record(us.make("CartPole-v1", horizon=25), model, episodes=1)
print(f"one demonstration of {demos.steps} steps")

learner = us.dagger(rounds=4, gradient_steps=500, episodes_per_round=3, hidden=(32, 32))
result = us.imitate(learner, demos, "CartPole-v1", expert=model, holdout=0)
for number in range(1, learner.rounds):  # round 0 trains on the demonstration and collects nothing
    asked, mean = (result.metrics[name][0][number] for name in ("queries", "return"))
    print(f"round {number}: {asked:.0f} answers so far, mean return of the round {mean:.0f}")

score = result.evaluate("CartPole-v1", episodes=20, expert=model).scores()[0]
print(f"return: expert {score.expert.mean:.1f}, learner {score.learner.mean:.1f}, gap {score.gap.mean:.1f}")

# The same model as a policy: it can be evaluated, saved and exported like a trained one.
policy = us.policy_from_sb3(model, "CartPole-v1")
states = us.record("CartPole-v1", model, episodes=1, seed=1).observations
print(f"same actions as the learner in {np.mean(policy(states) == result.policy(states)):.0%} of the model's states")
