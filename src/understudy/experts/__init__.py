"""Experts: policies or functions that an algorithm can query, the bundled ones, and policies of other libraries.

Imports core, policies, game, tabular, envs and data. Public: `expert.Expert`, `expert.as_expert`,
`bundled.load_expert`, `weights.policy_from_weights`, `sb3.policy_from_sb3`.
"""
