"""Collectors: they collect a round's steps or episodes of the learner, and the expert's answers.

`base` defines the interface of all collectors, `choose` selects one. `episodes` and `steps` collect in a JAX
environment inside the compiled round, `host` and `worker_collector` outside it. `rollouts` rolls out whole episodes,
`recording` turns an expert's episodes into demonstrations.

Imports core, policies, game, envs, data and experts. Public: `rollout`, `record`, `Episodes`, `Collector`,
`collector_for`.
"""
