"""On-Q algorithms: they query the expert in the learner's own states. One file each, discovered by
`understudy.algorithms`.
"""
