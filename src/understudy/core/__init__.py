"""The base of the package: data types, errors and checks, arrays, statistics, files, processes, terminal output.

Imports no other room. Import its modules by name: `types`, `spec`, `actions`, `spaces`, `parts`, `errors`, `notices`,
`arrays`, `statistics`, `paths`, `storage`, `reader`, `digests`, `locks`, `imports`, `processes`, `memory`, `text`,
`display`, `progress`, `options`. Files of other libraries are read by `npy`, `hdf5`, `arrow` and `parquet`, and the
modules that they import; `folder` holds several of them.
The package imports `startup`, which handles Ctrl-C until a command runs, and `jax_variables` before everything else;
`arrays` imports `jax_setup`, which configures JAX (docs/configuration.md).
"""
