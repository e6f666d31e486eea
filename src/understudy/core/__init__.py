"""The base of the package: data types, errors and checks, arrays, statistics, files, processes, terminal output.

Imports no other room. Import its modules by name: `types`, `errors`, `arrays`, `statistics`, `paths`, `storage`,
`reader`, `digests`, `locks`, `imports`, `processes`, `memory`, `text`, `display`, `progress`, `options`. `startup`
handles Ctrl-C until a command runs, and `jax_setup` configures JAX (see docs/configuration.md): they are imported
before everything else.
"""
