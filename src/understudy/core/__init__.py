"""The base of the package: data types, errors and checks, arrays, statistics, files, terminal output.

Imports no other room. Import its modules by name: `types`, `errors`, `arrays`, `statistics`, `storage`, `display`,
`progress`, `options`. `jax_setup` configures JAX and is imported before everything else (see docs/configuration.md).
"""
