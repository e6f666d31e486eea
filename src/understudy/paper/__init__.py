"""The paper's figures and tables, and the project's benchmark: one file each, with study, drawing and command.

    off_q, bc_table                      return by the number of demonstrations, without an environment
    reward, balanced, f_frequency        return by environment steps
    ablation, failures, episodes, failure_summary
                                         AdRIL without each of its parts, and where its episodes fail
    forest, forest_trials, lander, on_q_trials
                                         return by round, with a queryable expert
    survival                             absorbing states on CartPole
    theory/                              bounds and equilibria on finite MDPs
    published                            the numbers of the paper
    benchmark, benchmark_table, benchmark_figure, benchmark_published
                                         imitation on MuJoCo v5, and the published numbers of others
    figure_studies, formatting           shared by the above; studies/ holds the study files (TOML)

It may import every room but `cli`, which calls the commands `reproduce_*`, `theory.theory_command`,
`benchmark.run_command` and `benchmark_table.report_command`.
"""
