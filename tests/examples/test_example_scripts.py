"""The scripts of examples/ run from an empty directory and print the numbers they promise; notebooks equal them."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

import example_tables
import notebooks
import tables

SCRIPTS = sorted(notebooks.EXAMPLES.glob("*.py"))
TEST_SETTINGS = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
"""What tests/conftest.py sets for short programs. Examples train for longer."""
NUMBER = r"(-?\d+(?:\.\d+)?)"
PRINTED = {
    "01_clone": [(rf"^ 4 episodes: gap {NUMBER}", 50, 1500), (rf"^25 episodes: gap {NUMBER}", -20, 30)],
    "02_numpy_data": [
        (rf"payoff {NUMBER} on 300 steps", -0.01, 0.05),
        (rf"unseen episodes: {NUMBER}", 0, 0.07),
        (rf"mean action: {NUMBER}\)", 0.1, 0.3),
    ],
    "03_gymnasium_env": [(rf"^gap {NUMBER}", -3, 3), (rf"arrives in {NUMBER}%", 80, 100)],
    "04_jax_env": [("^(6000) episodes", 6000, 6000), (rf"^gap {NUMBER}", -0.5, 0.5)],
    "05_own_algorithm": [
        (rf"^absolute error: .* actions {NUMBER}", 0, 0.06),
        (rf"^squared error: .* actions {NUMBER}", 0.06, 0.5),
    ],
    "06_sb3_expert": [
        (rf"^round 3: {NUMBER} answers", 75, 4500),
        (rf"expert {NUMBER}", 495, 500),
        (rf"learner {NUMBER}", 250, 500),
    ],
    "07_forest_moments": [
        (rf"^DAgger: {NUMBER} m", 5, 25),
        (rf"^DAeQuIL: {NUMBER} m", 20, 100),
        (rf"^DAeQuIL: .* {NUMBER} answers", 100, 5000),
    ],
    "08_study": [
        (rf"^bc: mean return {NUMBER}", -800, -140),
        (rf"^dagger: mean return {NUMBER}", -350, -130),
        (r"^bc: .* over (\d+) seeds", 3, 3),
    ],
    "09_without_jax": [
        (rf"difference at export: {NUMBER}$", 0, 0),
        (rf"on the robot: {NUMBER}$", 0, 0),
        (rf"{NUMBER} microseconds", 1, 5000),
    ],
    "10_diagnosis": [
        (rf"expert {NUMBER}, clone", 30, 100),
        (rf"clone {NUMBER}$", 0, 25),
        (rf"^ambiguity {NUMBER}", 0.05, 1),
        (rf"^ambiguous-expert \({NUMBER}%\)", 50, 100),
    ],
}
"""Script → what it prints: a pattern with a number, and the range in which the number certainly is."""
WRITES = {
    "01_clone": ["clone.png"],
    "02_numpy_data": ["boat.npz"],
    "07_forest_moments": ["forest.png"],
    "08_study": ["study/results/report.html"],
    "09_without_jax": ["robot/policy/policy.py", "robot/policy/policy.npz"],
    "10_diagnosis": ["diagnosis.png", "diagnosis/diagnosis.html"],
}


def names(paths):
    return [path.stem for path in paths]


def test_there_are_at_most_ten_and_each_has_its_numbers():
    assert 0 < len(SCRIPTS) <= 10
    assert names(SCRIPTS) == sorted(PRINTED)


@pytest.mark.parametrize("script", SCRIPTS, ids=names(SCRIPTS))
def test_it_says_what_it_shows_in_two_to_four_lines(script):
    text = script.read_text(encoding="utf-8")
    assert text.startswith(example_tables.LINE)
    doc = text.split(example_tables.LINE)[1]
    assert 2 <= len([line for line in doc.splitlines() if line]) <= 4
    assert example_tables.summary(script).endswith(".")


@pytest.mark.parametrize("page", example_tables.PAGES, ids=lambda page: page.parent.name)
def test_the_pages_list_every_script_with_its_stored_time(page):
    text = page.read_text(encoding="utf-8")
    made = example_tables.table(page, tables.RESULTS)
    assert tables.fill(text, {"examples": made}) == text, "run `python tools/tables.py`"
    assert all(f"[{script.name}](" in text for script in SCRIPTS)
    for row in made.splitlines()[2:]:
        *_, seconds, cpu, _ = row.split("|")
        assert 0 < float(cpu) < 60, "measure it: python benchmarks/examples.py"
        assert float(seconds) > 0


def test_the_source_distribution_has_them():
    project = tomllib.loads((example_tables.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "examples" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
def test_a_notebook_is_its_script_with_outputs(name):
    script = notebooks.EXAMPLES / f"{name}.py"
    stored = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]
    assert found == notebooks.cells(script), "run `python tools/notebooks.py`"
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", ())]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    printed = "".join("".join(output.get("text", ())) for output in outputs)
    assert not re.search(r"Traceback|Error|Warning|(^|\s)/\w", printed)
    for pattern, low, high in PRINTED[name]:
        assert low <= number(pattern, printed) <= high
    assert script.with_suffix(".ipynb").stat().st_size < 150_000


def test_every_line_of_a_notebooks_script_is_in_a_cell(tmp_path):
    script = tmp_path / "small.py"
    script.write_text('"""Title.\n\nAbout it.\n"""\n\n# %% One\nx = 1\n\n# %% Two\n\nprint(x)\n', encoding="utf-8")
    assert notebooks.cells(script) == [
        ("markdown", "# Title.\n\nAbout it."),
        *(("markdown", "## One"), ("code", "x = 1")),
        *(("markdown", "## Two"), ("code", "print(x)")),
    ]
    made = notebooks.executed(script)
    assert made["cells"][-1]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=names(SCRIPTS))
def test_it_runs_and_prints_its_numbers(script, tmp_path):
    kept = {name: value for name, value in os.environ.items() if name not in TEST_SETTINGS}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**kept, "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    for pattern, low, high in PRINTED[script.stem]:
        assert low <= number(pattern, done.stdout) <= high, done.stdout
    assert all((tmp_path / "out/examples" / name).is_file() for name in WRITES.get(script.stem, ()))
    assert {path.name for path in tmp_path.iterdir()} <= {"out"}, "it writes only into out/"


def number(pattern, text):
    """The number that a pattern finds in a text."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found, f"nothing matches {pattern!r} in:\n{text}"
    return float(found[1])
