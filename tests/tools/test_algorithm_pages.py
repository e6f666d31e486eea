"""The generated parts of the pages over algorithms are fresh, and say what the classes say."""

from dataclasses import fields, replace
from xml.etree import ElementTree

import pytest

import algorithm_pages
import game_figure
import logo
import overview_tables
import result_rows
import tables
import understudy as us

FILES = algorithm_pages.files()
RESULTS = tables.RESULTS


@pytest.fixture(scope="module")
def overview():
    return overview_tables.make_tables(RESULTS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_file_is_fresh(file):
    assert file.read_text(encoding="utf-8") == FILES[file], "run `make tables`"


@pytest.mark.parametrize("file", logo.FILES, ids=lambda file: file.name)
def test_the_logo_is_fresh(file):
    assert file.read_text(encoding="utf-8") == logo.FILES[file](), "run `make tables`"


@pytest.mark.parametrize("page", tables.overview_pages(RESULTS), ids=lambda page: page.name)
def test_the_tables_over_all_algorithms_are_fresh(page, overview):
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text, overview) == text, "run `make tables`"


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_every_setting_has_a_row_with_its_meaning(name):
    algorithm = us.ALGORITHMS[name]
    text = algorithm_pages.settings(algorithm)
    for field in fields(algorithm):
        value = getattr(algorithm(), field.name)
        names = (
            [f"{field.name}.{part.name}" for part in fields(value)] if algorithm_pages.is_part(value) else [field.name]
        )
        for setting in names:
            (row,) = [line for line in text.splitlines() if line.startswith(f"| `{setting}` | ")]
            assert not row.endswith("|  |"), f"{name}.{setting} has no docstring"
    assert all(f"| `{preset}` | " in text for preset in algorithm.presets)


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_every_algorithm_is_in_every_table_over_all(name, overview):
    for table, text in overview.items():
        assert table in ("api", "cost") or f"[`{name}`]({name}.md" in text


def test_stored_files_whose_names_begin_alike_are_one_link():
    everything = "results/README.md#how-each-file-was-made"
    found = [*overview_tables.families(["bc.csv", "bc-table.csv", "off-q-ant.csv", "off-q-b-ant.csv", "gps.csv"])]
    assert found == [f"[bc (2)]({everything})", "[gps](results/gps.csv)", f"[off-q (2)]({everything})"]


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_one_or_two_failures_are_named_in_short_sentences(name, overview):
    (row,) = [line for line in overview["failures"].splitlines() if line.startswith(f"| [`{name}`]")]
    words = row.split(" | ")[1].removesuffix(" |")
    assert words.endswith(".")
    assert 0 < len(words) < 120


def test_markers_are_added_once_and_what_is_around_them_stays():
    text = "# Title\n\nWhat it is.\n\n## When to use it\n\nHere.\n\n## Settings\n\nSome words.\n\n## Results\n\nNone.\n"
    text += "\n## Why\n"
    once = algorithm_pages.updated(text, us.bc)
    assert algorithm_pages.updated(once, us.bc) == once
    order = ["What it is.", "<!-- game -->", "## When", "Some words.", "<!-- settings -->", "## Results", "None."]
    order += ["<!-- results -->", "## Why", "<!-- deviations -->"]
    assert [once.index(words) for words in order] == sorted(once.index(words) for words in order)


def test_a_stored_run_counts_once_with_its_returned_policy(tmp_path):
    rows = ["algorithm,env,preset,seed,x_kind,x,mean_return"]
    rows += [
        f"bc,Pendulum,default,{seed},{kind},{x},{value}"
        for seed, kind, x, value in [
            *((0, "env_steps", 100, 1), (0, "returned", 100, 3), (1, "returned", 100, 5), (0, "random", 0, 900)),
        ]
    ]
    rows += [f"dagger,Pendulum,default,{seed},round,{x},{10 * x + seed}" for seed in (0, 1) for x in (0, 1, 2)]
    rows += [f"dagger,Forest,{preset},0,round,1,{value}" for preset, value in (("default", 2), ("forest", 2000))]
    rows += [f"sqil,Hopper,default,{seed},env_steps,{x},{x}" for seed in (0, 1) for x in (25_600, 151_040)]
    rows += ["sqil,Walker,default,0,env_steps,100,5", "sqil,Walker,plain,0,returned,500,9"]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    (tmp_path / "times.csv").write_text("what,learner,seconds\nstep,bc: one run,3\n")
    shown = {name: result_rows.returns_table(name, tmp_path) for name in ("bc", "dagger", "gps", "sqil")}
    assert "| Pendulum | 1 |  | 2 | 4 (lowest seed 3) | [runs](results/runs.csv) |" in shown["bc"]
    assert "Other stored measurements: [times](results/times.csv)." in shown["bc"]
    assert "| Pendulum | 1 |  | 2 | 20.5 (lowest seed 20) |" in shown["dagger"]
    assert "| Forest | 2 |  | 1 | 2 to 2,000 |" in shown["dagger"]
    assert "| Hopper | 1 |  | 2 | 151,040 (lowest seed 151,040), after 151k steps |" in shown["sqil"]
    assert "| Walker | 2 |  | 1 | 5 to 9 (1 of 2 variants: last evaluation) |" in shown["sqil"]
    assert shown["gps"] == result_rows.NONE


def test_values_are_shown_as_they_are_typed():
    given = [None, True, 3e-4, 0.25, 10_000, (64, 64), (), "all", 1e6]
    assert [algorithm_pages.shown(value) for value in given] == [
        *("none", "yes", "3e-4", "0.25", "10,000", "64 64", "none", "`all`", "1e6")
    ]


def test_a_game_says_who_asks_and_who_moves():
    words = " ".join(ElementTree.fromstring(game_figure.figure(us.daequil.card)).itertext())
    assert "asks the expert" in words
    assert "maximises" in words
    for solver in ("primal", "dual", "-"):
        for fixed in (True, False):
            card = replace(us.gail.card, solver=solver, fixed=fixed)
            figure = ElementTree.fromstring(game_figure.figure(card))
            said = " ".join(figure.itertext())
            assert "asks" not in said
            assert ("never moves" in said) == fixed
            assert (game_figure.NO_REGRET in said) == (solver == "primal" or (solver == "dual" and not fixed))
