"""The paper's figures and tables: one file each, with its study, its drawing and its command.

    off_q, bc_table                      return by the number of demonstrations, without an environment
    reward, balanced, f_frequency        return by environment steps
    ablation, failures, episodes, failure_summary
                                         AdRIL without each of its parts, and where its episodes fail
    forest, forest_trials, lander, on_q_trials
                                         return by round, with a queryable expert
    survival                             absorbing states on CartPole
    theory/                              bounds and equilibria on finite MDPs
    published                            the numbers of the paper
    figure_studies, formatting           shared by the above; studies/ holds the study files (TOML)

It may import every room but `cli`, which calls the commands `reproduce_*` and `theory.theory_command`.
"""
