"""Training: from an algorithm and data to policies in a directory.

`imitate` and `learn` set up a call, `demonstrated` and `completing` find what it leaves out, `loop` runs its rounds
with compiled `programs`, `contract` checks what algorithms return, and `selection` ranks the policies. `results`,
`tables`, `publishing`, `logs` and `log_writers` write files; `checkpoints` and `resuming` make a killed run resumable;
`expert` trains and saves an expert. May import core to evaluation, the rooms to its left. Public: `imitate`, `learn`,
`Learned`, `Logs`, `Result`, `load_run`.
"""
