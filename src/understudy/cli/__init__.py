"""The command line: `main` dispatches the commands, the other modules define them.

`commands` lists and evaluates; `demos_commands` inspects, converts and records; `train_command`, `expert_commands` and
`study_commands` train; `export_command` exports and publishes; `demo` is `make demo`. May import every other room.
Public: `understudy.cli.main:main`, the entry point.
"""
