"""Evaluation: returns of policies, statistics over runs, and plots.

    returns        rollouts of policies, imitation gaps
    scores         checks and normalization of scores
    intervals      statistics over runs and tasks with bootstrap intervals
    certificates   bounds on the gap for every reward of a class
    concentration  the inequality behind them, bootstrap and permutation test
    embeddings     episodes as vectors in a kernel's space
    drawing        matplotlib plots
    rendering      pictures of episodes, drawn in another process
    video          MP4 and GIF files of episodes

May import `collect` and the rooms below it. Public: `returns.evaluate`, `certificates.certify`,
`video.record_video`, `scores`, `intervals`.
"""
