"""The documentation: its examples run, its links lead somewhere, every algorithm has a page."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SHORT = {
    "theory": ["--mdps", "50"],
    "train adril": ["--sac.hidden", "8", "--sac.gradient-steps", "2", "--round-steps", "64"],
    "train": ["--gradient-steps", "5"],
    "study run": ["--jobs", "1"],
    "study report": ["--no-clips"],
}
"""Options that shorten the commands of the pages."""
NOT_RUN = ("reproduce", "benchmark", "--ray", "--resume", "--compare", "console")
"""Commands of the pages that take hours, a cluster, a person, an interrupted run, or two studies."""
FRAGMENTS = ("CONTRIBUTING.md",)
"""Pages whose Python blocks are parts of a file."""
PARTS = [
    "## When to use it",
    "## When not to use it",
    "## How to call it",
    "## What it returns",
    "## Settings",
    "## What can go wrong",
    "## Results",
    "### All stored returns",
    "## Deviations from the source",
]
"""Sections of every algorithm's page; a page may have others between them."""
MIXED = "bring-your-own.md"
"""The page whose Python and shell blocks run together, in its order."""


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), target


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_every_algorithm_has_a_page_and_a_place_in_the_readme(name):
    assert f"us.{name}" in (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert f"`{name}`" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_every_algorithm_page_has_all_parts_in_one_order(name):
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^###? .*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    assert [heading for heading in headings if heading in PARTS] == PARTS
    idea, game = text.partition("\n## ")[0].split("<!-- game -->")
    assert re.search(r"^    \S", idea, re.MULTILINE), "no equations"
    assert f"images/games/{name}.svg" in game
    assert len(re.findall(r"[.:](?=\s)", idea)) >= 3, "the idea has fewer than three sentences"
    for block in ("settings", "results", "deviations"):
        assert f"<!-- {block} -->" in text
    assert "The module names none." not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name not in (*FRAGMENTS, MIXED)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_python_examples_run_twice(page, monkeypatch, tmp_path):
    """In one namespace per page, with the arrays and the model that an example takes as given. Files stay."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/data_files/sb3/sac.zip", "sac.zip")
    random = np.random.default_rng(0)
    arrays = {
        "observations": random.normal(size=(60, 3)),
        "actions": random.uniform(-1, 1, (60, 2)),
        "rewards": random.normal(size=60),
        "lengths": np.full(6, 10),
    }
    for _ in range(2):
        names = {"__name__": "__main__", **arrays}
        for code in blocks(page, "python"):
            exec(compile(code, str(page), "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/studies.md"], ids=lambda page: page.name)
def test_the_commands_run(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for text in blocks(page, "toml"):
        study = text.replace("rounds = 20", "rounds = 1").replace("rounds = 2", "rounds = 1")
        (tmp_path / "pendulum.toml").write_text(study, encoding="utf-8")
    lines = re.findall(r"^    understudy ([^#\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    commands = [shlex.split(line) for line in lines if not any(word in line for word in NOT_RUN)]
    assert commands
    for words in commands:
        options = next((more for name, more in SHORT.items() if " ".join(words).startswith(name)), [])
        monkeypatch.setattr(sys, "argv", ["understudy", *words, *options])
        with pytest.raises(SystemExit) as exited:
            main()
        assert not exited.value.code, words


@pytest.mark.slow
def test_every_block_of_bring_your_own_runs_in_its_order(monkeypatch, tmp_path):
    """With a model of Stable-Baselines3. A block that begins with the name of a file is that file, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_robot", raising=False)
    shutil.copy(ROOT / "tests/data_files/sb3/sac.zip", "sac.zip")
    page = ROOT / "docs" / MIXED
    names = {"__name__": "__main__"}
    found = re.findall(r"```(python|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert {language for language, _ in found} == {"python", "sh"}
    for language, text in found:
        if language == "python":
            if file := re.match(r"# (\w+\.py)\n", text):
                (tmp_path / file[1]).write_text(text, encoding="utf-8")
            exec(compile(text, str(page), "exec"), names)
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            assert program == "understudy"
            monkeypatch.setattr(sys, "argv", ["understudy", *words])
            with pytest.raises(SystemExit) as exited:
                main()
            assert not exited.value.code, line
    assert np.abs(names["action"]).max() <= 0.5 + 1e-6
    assert {"README.md", "policy.py", "policy.npz"} <= {file.name for file in (tmp_path / "published").iterdir()}
    assert names["score"].gap.high < 10, "the clone on Reach is far from its expert"
