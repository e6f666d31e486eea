"""Evaluation: returns of policies, statistics over runs, and plots.

    returns      rollouts of policies, imitation gaps
    scores       checks and normalization of scores
    intervals    statistics over runs and tasks with bootstrap intervals
    drawing      matplotlib plots

May import `collect` and the rooms below it. Public: `returns.evaluate`, `scores`, `intervals`.
"""
