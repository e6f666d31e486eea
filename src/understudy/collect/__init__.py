"""What a round collects: steps and episodes of the learner, and the expert's answers.

`base` has the one interface of all collectors, `choose` picks one. `episodes` and `steps` collect in a JAX environment
inside the compiled round, `host` and `worker_collector` outside it. `rollouts` plays whole episodes, `recording` turns
an expert's into demonstrations.

Imports core, policies, game, envs, data and experts. Public: `rollout`, `record`, `Episodes`, `Collector`,
`collector_for`.
"""
