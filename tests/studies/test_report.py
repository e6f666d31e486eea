"""The report of a study as text: what it says, what it keeps apart, and that nothing in it breaks out."""

import csv
import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

import understudy as us
from study_cells import CHEETAH, cell, counts, figure
from understudy.core.errors import RunError, SettingError
from understudy.core.statistics import Sample, interval
from understudy.envs import Forest, Pendulum, make
from understudy.evaluation import drawing as figures
from understudy.policies.actor import Actor
from understudy.studies.report import COLUMNS, clip, draw, markdown, render, rows
from understudy.studies.report.chart import Chart, Series, ticks
from understudy.studies.report.lines import gather, number, troubled
from understudy.studies.report.summary import sentence
from understudy.train.results import write_csv

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\"'&"
COMMAND = "understudy study report reward.toml"


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.scripts, self._within = [], "", [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within = tag

    def handle_endtag(self, tag):
        if tag == self._within:
            self._within = ""

    def handle_data(self, data):
        if not self._within:
            self.text += data + "\n"
        elif self._within == "script":
            self.scripts.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page():
    return render(figure(), "AdRIL, SQIL and GAIL", COMMAND)


def test_a_full_figure_is_far_below_five_megabytes(page):
    assert 20_000 < len(page.encode()) < 1_000_000


def test_the_page_refers_to_nothing_outside_itself(page):
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", page)
    assert not Reader(page).named("link")
    assert all("src" not in script for script in Reader(page).named("script"))
    assert "default-src 'none'" in page


def test_every_algorithm_has_a_row_of_results_and_its_row_of_the_taxonomy(page):
    for title, label in (("AdRIL (adril)", "AdRIL"), ("SQIL (sqil)", "SQIL"), ("GAIL (gail)", "GAIL")):
        assert f'<th scope="row">{title}</th>' in page
        assert f'<th scope="row">{label}, ' in page
    text = Reader(page).text
    assert "reward" in text
    assert "dual" in text
    assert "demonstrations, environment" in text


def test_published_numbers_stand_beside_ours_and_are_dotted(page):
    assert "adril, published (20 trajectories)" in page
    assert "2,150 ± 12" in page
    assert page.count('class="series c0 published"') == 1


def test_the_page_says_what_made_it(page):
    text = Reader(page).text
    for said in (COMMAND, "understudy study run reward.toml", "jax 0.11.2", "2026-11-15", "11.9 min", "500,480", "cpu"):
        assert said in text
    assert "selected by payoff" in text


def test_charts_have_names_and_descriptions_and_toggles_are_buttons(page):
    reader = Reader(page)
    (drawing,) = reader.named("svg")
    assert drawing["role"] == "img"
    assert len(drawing["aria-labelledby"].split()) == 2
    buttons = reader.named("button")
    assert len(buttons) == 7
    assert all(button["type"] == "button" and button["aria-pressed"] in ("true", "false") for button in buttons)
    assert len(reader.named("caption")) == len(reader.named("table")) == 5
    assert all(header["scope"] in ("row", "col") for header in reader.named("th"))


def test_hostile_text_is_shown_and_never_run():
    made = cell("adril", 0, env=HOSTILE, label=HOSTILE, status=HOSTILE, handed=False, settings={HOSTILE: 1})
    made["made"] = {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}, "date": HOSTILE, "device": HOSTILE}
    made["shown"]["demos"] = HOSTILE
    unknown = cell(HOSTILE, 1, env=HOSTILE, label="other")
    page = render([made, unknown], HOSTILE, HOSTILE, quarantined=[(HOSTILE, HOSTILE)])
    reader = Reader(page)
    assert not reader.named("img")
    assert all(not name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert len(reader.scripts) == 2
    assert [one["name"] for one in json.loads(reader.scripts[0])[0]["series"]] == [HOSTILE, "other"]
    assert "\u2028" not in reader.scripts[0]
    assert HOSTILE in reader.text
    text = markdown([made, unknown])
    assert "<img" not in text
    assert "</script>" not in text


def test_a_label_with_a_pipe_stays_in_its_column_of_the_markdown_table():
    text = markdown([cell("bc", seed, label="a|b `c`") for seed in range(2)])
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "a\\|b \\`c\\`" in text


def test_the_markdown_table_has_each_line_with_the_number_it_should():
    cells = figure()
    text = markdown(cells)
    handed = [np.mean(c["rows"][-1]["returns"]) for c in cells if c["asked"]["algorithm"]["name"] == "sqil"]
    sample = Sample.of(handed)
    (line,) = [line for line in text.splitlines() if line.startswith("| SQIL")]
    assert f"{sample.mean:.0f} ± {sample.standard_error:.0f}" in line
    assert f"{2154 - sample.mean:,.0f} ± {sample.standard_error:.0f}" in line


def test_the_summary_names_who_is_nearest_to_the_expert_and_who_follows():
    (task,) = gather(figure())
    told = sentence(task)
    assert told.startswith(f"On {CHEETAH}, AdRIL from 20 trajectories ")
    assert "where the expert returns 2,154" in told
    assert "SQIL from 5 trajectories follows" in told
    assert "p < 0.001" in told


def test_who_follows_is_told_apart_by_chance_either_way():
    """Which of the two is the best was seen first."""
    cells = [cell(name, seed, best=level) for name, level in (("adril", 1000.0), ("gail", 990.0)) for seed in range(5)]
    (task,) = gather(cells)
    told = re.search(r"p = ([\d.]+)", sentence(task))
    ours, theirs = (line.best_known for line in task.lines)
    expected = ttest_ind_from_stats(
        ours.mean, ours.std, ours.size, theirs.mean, theirs.std, theirs.size, equal_var=False
    ).pvalue
    assert float(told[1]) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(
    ("best", "said"), [(2500.0, "does as well as the expert"), (1000.0, "comes nearest to the expert, ")]
)
def test_the_summary_tells_reaching_the_expert_from_falling_short(best, said):
    cells = [cell(name, seed, best=level) for name, level in (("adril", best), ("gail", 0.0)) for seed in range(5)]
    assert said in sentence(gather(cells)[0])


def test_the_summary_says_when_the_last_policies_are_worse_than_those_selected():
    cells = [cell("adril", seed) for seed in range(3)]
    assert "selecting by payoff mattered" not in sentence(gather(cells)[0])
    for made in cells:
        made["rows"][-2]["returns"] = [-1400.0]
    assert "Its last policies return −1,400: selecting by payoff mattered." in sentence(gather(cells)[0])


def test_without_the_experts_return_there_is_no_gap():
    cells = [cell(name, seed, expert=None) for name in ("adril", "gail") for seed in range(2)]
    assert "The expert's return is not known" in sentence(gather(cells)[0])
    page = render(cells, "t", COMMAND)
    assert "imitation gap" not in page
    assert 'class="expert"' not in page


def test_a_single_seed_has_numbers_and_no_intervals():
    page = render([cell()], "one", COMMAND)
    (line,) = gather([cell()])[0].lines
    assert f"<b>{number(line.handed.mean)}</b> <span></span>" in page
    assert "one seed, which says nothing about others" in page
    assert "data-seeds aria-pressed" not in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_one_evaluation_is_drawn_as_points_with_bars():
    page = render([cell(seed=seed, evaluations=1, env="Elsewhere") for seed in range(3)], "one", COMMAND)
    assert 'class="bar thick"' in page
    assert 'class="mean"' not in page


def test_cells_that_are_missing_diverged_or_quarantined_are_listed():
    diverged = cell("gail", 3, status="diverged: loss is NaN", handed=False, evaluations=2)
    missing = {name: cell("gail", 4)[name] for name in ("key", "asked", "shown")} | {"status": "missing", "rows": []}
    cells = [*figure(), diverged, missing]
    assert [what for _, what in troubled(cells)] == ["diverged: loss is NaN", "missing"]
    page = render(cells, "t", COMMAND, quarantined=[("cells/0f.json", "checksum")])
    text = Reader(page).text
    assert "3 cells missing, diverged or set aside" in text
    assert f"gail on {CHEETAH}, 20 trajectories, seed 3" in text
    assert "quarantined: checksum" in text
    assert "seed 4: missing" in markdown(cells)
    assert len(rows(cells)) == len(rows([*figure(), diverged])) == 15 * 21 + 2


def test_numbers_are_over_the_seeds_that_finished_and_the_table_says_how_many():
    cells = [
        *(cell("gail", seed) for seed in range(3)),
        cell("gail", 3, status="diverged", handed=False, evaluations=2),
    ]
    (line,) = gather(cells)[0].lines
    assert (line.last.size, line.handed.size, len(line.traces)) == (3, 3, 4)
    assert "<td>3 of 4</td>" in render(cells, "t", COMMAND)


def test_a_study_where_everything_diverged_or_is_missing_still_has_a_report():
    cells = [cell(seed=seed, status="diverged", handed=False, evaluations=0) for seed in range(2)]
    assert "nothing has been played yet" in render(cells, "t", COMMAND)
    assert "Nothing has been played yet" in render([], "t", COMMAND)
    with pytest.raises(RunError, match="nothing to draw"):
        draw(cells, "nowhere")


def test_several_counts_make_a_plot_of_what_trajectories_buy_with_published_points():
    page = render(counts(), "counts", COMMAND)
    assert page.count("<figure") == 1
    assert "demonstrated trajectories" in page
    assert "bc, published" in page
    data = json.loads(Reader(page).scripts[0])[0]
    assert data["categories"] == ["5", "10", "15", "20", "25"]
    assert [point[0] for point in data["series"][0]["points"]] == [0.0, 1.0, 4.0]


def test_curves_of_several_counts_have_a_panel_each():
    cells = [cell("adril", seed, trajectories=count) for count in (5, 20) for seed in range(2)]
    assert [title for title, _, _ in gather(cells)[0].panels()] == ["5 trajectories", "20 trajectories"]
    assert render(cells, "t", COMMAND).count("<figure") == 3


def test_equal_labels_of_different_settings_are_told_apart():
    cells = [cell("adril", 0, label="same", settings={"lr": lr}) for lr in (1e-3, 1e-4)]
    assert [line.name for line in gather(cells)[0].lines] == ["same", "same [2]"]


def test_returns_that_are_not_finite_are_refused():
    made = cell()
    made["rows"][0]["returns"][0] = float("nan")
    with pytest.raises(RunError, match="not finite at env_steps 25000"):
        render([made], "t", COMMAND)


def test_rows_are_in_the_standard_columns_and_complete(tmp_path):
    cells = [*figure(), {**cell("gail", 9, status="missing"), "rows": []}]
    made = rows(cells)
    assert len(made) == 15 * 21
    write_csv(tmp_path / "cells.csv", COLUMNS, made)
    with (tmp_path / "cells.csv").open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    played = np.array(cells[0]["rows"][0]["returns"])
    assert float(first["mean_return"]) == pytest.approx(played.mean(), abs=1e-3)
    assert float(first["std_return"]) == pytest.approx(played.std(), abs=1e-3)
    assert first["x_kind"] == "env_steps"
    assert first["demonstrations"] == "bundled@5f2d5f2d5f2d"
    assert first["versions"] == "understudy=0.1.0 jax=0.11.2"


def test_figures_for_papers_are_png_and_svg_with_a_panel_for_each_task(tmp_path):
    made = draw([*figure(), *counts()], tmp_path / "v1.5")
    assert [path.name for path in made] == ["v1.5.png", "v1.5.svg"]
    assert made[0].read_bytes().startswith(b"\x89PNG")
    assert made[1].read_text().count('id="axes_') == 2
    assert draw([cell(label="$x_", evaluations=1)], tmp_path / "one.svg") == [tmp_path / "one.svg"]


def test_long_names_leave_the_axes_of_a_figure_as_they_are(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save", lambda picture, path: drawn.append(picture))
    for names in (["a"], [f"{'a name with many settings=1.0, ' * 4}{index}" for index in range(10)]):
        draw([cell(label=name, evaluations=0, settings={"lr": i}) for i, name in enumerate(names)], tmp_path / "f.png")
    for picture in drawn:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            picture.draw_without_rendering()
    few, *_, many = (picture.axes[0].get_window_extent() for picture in drawn)
    assert many.height > 0.8 * few.height
    assert many.width > 0.9 * few.width


def test_an_interval_of_two_seeds_does_not_flatten_the_curves():
    samples = {0.0: Sample(0.0, 10.0, 2), 1.0: Sample(10.0, 10.0, 2)}
    _, low, high = interval(samples[0.0])
    chart = Chart("t", "x", [Series("a", 0, samples)])
    assert chart.y[1] - chart.y[0] < 60 < high - low


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1423.4, 2176), (0.001, 0.0042), (25_000, 500_000), (-3e7, -1e6)])
def test_ticks_are_few_round_and_inside(low, high):
    made = ticks(low, high)
    assert 2 <= len(made) <= 8
    assert all(low <= tick <= high for tick in made)
    assert np.allclose(np.diff(made), made[1] - made[0])


def test_a_clip_goes_into_the_page_and_other_bytes_are_refused():
    gif = clip(Actor(Pendulum().expert(), Pendulum().spec), "Pendulum")
    assert gif.startswith(b"GIF89a")
    assert len(gif) < 500_000
    cells = [cell("bc", 0, env="Pendulum", evaluations=0)]
    (picture,) = Reader(render(cells, "t", COMMAND, {"Pendulum": gif})).named("img")
    assert picture["src"].startswith("data:image/gif;base64,R0lGOD")
    with pytest.raises(SettingError, match="PNG, GIF or WebP"):
        render(cells, "t", COMMAND, {"Pendulum": b"<svg onload=alert(1)>"})


def test_a_forest_is_a_picture_and_a_task_that_draws_nothing_has_none():
    assert clip(Actor(Forest().expert(), Forest().spec), "Forest").startswith(b"\x89PNG")
    blind = make("CartPole-v1").one
    assert clip(us.load_expert("CartPole-v1"), lambda: blind()) is None


def test_the_page_says_how_runs_ended_and_what_they_asked():
    cells = [cell("dagger", seed, kind="round", every=1, evaluations=4, env="Forest", expert=65.0) for seed in range(3)]
    cells[0]["status"] = "stopped: payoff at or below delta"
    for made in cells:
        made["queries"] = 4_000
    text = Reader(render(cells, "t", COMMAND)).text
    assert "1 stopped: payoff at or below delta; 2 finished" in text
    assert "4,000" in text
    assert "\nrounds\n" in text


def test_the_best_is_held_against_the_others_by_bootstrap():
    page = render(figure(), "t", COMMAND)
    assert "The best by its mean is AdRIL, 20 trajectories; differences are between equal seeds." in page
    assert page.count("<td>1.000 [1.000, 1.000]</td>") == 2
    assert "interquartile mean" not in render([cell(seed=seed) for seed in range(3)], "t", COMMAND)
