"""Reward-moment algorithms: they train a policy by RL on the reward −f. One file each, discovered by
`understudy.algorithms`. `matching`, `moments` and `payoff` hold the shared code.
"""
