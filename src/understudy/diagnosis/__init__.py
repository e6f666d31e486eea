"""Diagnosis: why a policy is worse than the expert, and which algorithm to try first.

    subject          what is diagnosed: demonstrations, policies, environment, expert, fresh episodes
    gathering        finds all of it
    trials           plays the fresh episodes
    measures         the types of a measure, a cause and a diagnosis
    alike            alike states: actions as vectors, standardized states, nearest neighbours
    coverage, compounding, ambiguity, data, optimisation, recoverability, survival, hygiene, recording, demonstrators
                     one measure each
    environment_model, readings, answers
                     what a recording would have to mean, for `recording`
    copies, leaks    parts of `hygiene`
    better           a short search for a better policy, for `demonstrators`
    causes           from numbers to causes, in order of likelihood
    page             the HTML page
    diagnose         `understudy.diagnose`
    advice           `understudy.advise`

May import `studies` (for the look of its report) and the rooms below it. Public: `diagnose.diagnose`, `advice.advise`.
"""
