"""A directory with a Python file and an npz file that need nothing but NumPy."""

import ast
import json
from importlib import resources
from pathlib import Path

import numpy as np

from understudy.core.storage import atomic_directory, write_npz
from understudy.deploy import load
from understudy.deploy.forward import State
from understudy.deploy.policy import STRUCTURE
from understudy.deploy.runs import POLICY
from understudy.policies.export.checking import Export, Written

MODULE = "policy.py"
START = '"""A trained policy on NumPy alone.'
"""How the Python file begins."""
PARTS = ("forward.py", "policy.py")
"""The modules of `understudy.deploy` that the Python file is made of. They import NumPy and each other."""


def write(path: Path, what: Export) -> Written:
    """Write the directory. The actions are equal to those of `predict`, to the last bit."""
    files = (MODULE, POLICY)
    with atomic_directory(path, what.replaceable(path, files, START)) as partial:
        difference = write_into(partial, what)
    return Written(path, files, difference, len(what.trials()["observation"]), what.inputs[:1])


def write_into(directory: Path, what: Export) -> float:
    """Write the two files into a directory that is being made; return the largest difference, which is 0."""
    arrays: dict[str, np.ndarray] = {}
    structure = what.structure(arrays)
    write_npz(directory / POLICY, {**arrays, STRUCTURE: np.array(json.dumps(structure))})
    (directory / MODULE).write_text(module_text(), encoding="utf-8")
    loaded = load(directory / POLICY)

    def call(trial: dict[str, np.ndarray]) -> np.ndarray:
        zeros = np.zeros(len(trial["observation"]), np.int32)
        state = State(trial.get("t", zeros), zeros, trial.get("last_action"))
        return loaded.predict(trial["observation"], state)[0]

    return what.compare(call, 0.0, "NumPy")


def module_text() -> str:
    """The text of the Python file: the modules one after the other, without the imports of each other."""
    folder = resources.files("understudy.deploy")
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in PARTS]
    docstring, plain, named, bodies = "", set[str](), dict[str, set[str]](), list[str]()
    for text in texts:
        lines = text.splitlines()
        first, *rest = ast.parse(text).body
        docstring = "\n".join(lines[: first.end_lineno])  # that of the last one, which is for the user
        heads = [node for node in rest if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in heads:
            if isinstance(node, ast.Import):
                plain.add(ast.unparse(node))
            elif not (node.module or "").startswith("understudy"):
                named.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
        bodies.append("\n".join(lines[heads[-1].end_lineno :]).strip("\n"))
    numpy = {line for line in plain if "numpy" in line}
    imports = [
        *sorted(plain - numpy),
        *(f"from {name} import {', '.join(sorted(named[name]))}" for name in sorted(named)),
    ]
    return "\n\n".join([docstring, "\n".join(imports), *numpy, "\n\n\n".join(bodies)]) + "\n"
