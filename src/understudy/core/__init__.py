"""The base of the package: data types, errors and checks, arrays, statistics, files, processes, terminal output.

Imports no other room. Import its modules by name: `types`, `spec`, `errors`, `arrays`, `statistics`, `paths`,
`storage`, `reader`, `digests`, `locks`, `imports`, `processes`, `memory`, `text`, `display`, `progress`, `options`.
The package imports `startup`, which handles Ctrl-C until a command runs, and `jax_variables` before everything else;
`arrays` imports `jax_setup`, which configures JAX (docs/configuration.md).
"""
