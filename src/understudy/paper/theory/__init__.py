"""Sections 4 and 5 of the paper on finite MDPs: `understudy theory` computes, prints and draws them.

measurements      how the gap grows with the horizon, bounds on random MDPs, recoverability, equilibria, TREE
figures           the figures of these numbers
example_graphs    the paper's example MDPs as graphs
explorer          an interactive page of bounds and of a game
command           `theory_command`
"""
