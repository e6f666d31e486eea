"""The report of a study: page, summary, tables, figures and clips."""

import csv
import json
import re
import warnings
from html.parser import HTMLParser

import gymnasium
import numpy as np
import pytest
from scipy import stats

import understudy as us
from support.study_records import CHEETAH, curve_records, make_record, offline_records
from understudy.core.errors import RenderError, RunError, SettingError
from understudy.core.statistics import Sample, interval, mean_of_means, proportion
from understudy.envs import Forest, Pendulum
from understudy.evaluation import drawing
from understudy.paper import published as paper
from understudy.policies.actor import Actor
from understudy.studies.published import Published
from understudy.studies.report import COLUMNS, clip, draw, figures, markdown, render, result_rows
from understudy.studies.report.chart import Chart, Series, ticks
from understudy.studies.report.clips import Clip
from understudy.studies.report.comparisons import compare, compare_means, ranked
from understudy.studies.report.formatting import bracket, number, plus_minus
from understudy.studies.report.learners import group_by_task, without_result
from understudy.studies.report.summary import summarize
from understudy.train.tables import write_csv

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\"'&"
COMMAND = "understudy study report reward.toml"


def find_published(env, algorithm, hyperparameters):
    """Published results of AdRIL by steps and of BC by trajectories."""
    if algorithm == "adril":
        return Published("adril", {0: Sample(-1299.0, 70.0, 5), 475_000: Sample(2150.0, 27.0, 5)}, 20)
    if algorithm == "bc":
        return Published("bc", by_trajectories={count: Sample(100.0 * count, 9.0, 5) for count in (5, 15, 20)})
    return Published()


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.scripts, self._inside = [], "", [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if not self._inside:
            self.text += data + "\n"
        elif self._inside == "script":
            self.scripts.append(data)

    def find(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page():
    return render(curve_records(), "AdRIL, SQIL and GAIL", COMMAND, find_published=find_published)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_page_is_small_and_self_contained(page):
    assert 20_000 < len(page.encode()) < 1_000_000
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", page)
    assert not Reader(page).find("link")
    assert all("src" not in script for script in Reader(page).find("script"))
    assert "default-src 'none'" in page


def test_every_learner_has_a_row_of_results_and_a_row_of_the_taxonomy(page):
    for title, label in (("AdRIL (adril)", "AdRIL"), ("SQIL (sqil)", "SQIL"), ("GAIL (gail)", "GAIL")):
        assert f'<th scope="row">{title}</th>' in page
        assert f'<th scope="row">{label}, ' in page


def test_published_results_have_a_row_and_a_dotted_curve(page):
    assert "adril, published (20 trajectories)" in page
    assert "2,150 ± 12" in page
    assert page.count('class="series c0 published"') == 1
    assert "published (" not in render(curve_records(), "t", COMMAND)


def test_page_shows_provenance_and_cost(page):
    text = Reader(page).text
    for value in (
        COMMAND,
        "understudy study run reward.toml",
        "jax 0.11.2",
        "2026-11-15",
        "11.9 min",
        "500,480",
        "cpu",
    ):
        assert value in text


def test_charts_and_tables_are_accessible(page):
    reader = Reader(page)
    (svg,) = reader.find("svg")
    assert svg["role"] == "img"
    assert len(svg["aria-labelledby"].split()) == 2
    buttons = reader.find("button")
    assert len(buttons) == 5
    assert all(button["type"] == "button" and button["aria-pressed"] in ("true", "false") for button in buttons)
    assert len(reader.find("caption")) == len(reader.find("table")) == 5
    assert all(header["scope"] in ("row", "col") for header in reader.find("th"))


def test_hostile_text_is_escaped():
    record = make_record("adril", 0, env=HOSTILE, label=HOSTILE, status=HOSTILE, final=False, settings={HOSTILE: 1})
    record["provenance"] = {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}, "date": HOSTILE, "device": HOSTILE}
    record["display"]["demos"] = HOSTILE
    other = make_record(HOSTILE, 1, env=HOSTILE, label="other")
    page = render([record, other], HOSTILE, HOSTILE, quarantined=[(HOSTILE, HOSTILE)])
    reader = Reader(page)
    assert not reader.find("img")
    assert all(not name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert len(reader.scripts) == 2
    assert [one["name"] for one in json.loads(reader.scripts[0])[0]["series"]] == [HOSTILE, "other"]
    assert "\u2028" not in reader.scripts[0]
    assert HOSTILE in reader.text
    text = markdown([record, other])
    assert "<img" not in text
    assert "</script>" not in text


def test_records_of_an_unknown_algorithm_are_reported():
    assert "no_such_module:Algorithm" in render([make_record("no_such_module:Algorithm")], "t", COMMAND)


def test_without_the_experts_return_there_is_no_gap():
    records = [make_record(name, seed, expert=None) for name in ("adril", "gail") for seed in range(2)]
    assert all(learner.gap is None for learner in group_by_task(records)[0].learners)
    assert 'class="expert"' not in render(records, "t", COMMAND)


def test_a_single_seed_has_numbers_and_no_intervals():
    page = render([make_record()], "one", COMMAND)
    (learner,) = group_by_task([make_record()])[0].learners
    assert f"<b>{number(learner.curve.final_sample.mean)}</b> <span></span>" in page
    assert "data-seeds aria-pressed" not in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_a_single_evaluation_is_drawn_as_points_with_bars():
    page = render([make_record(seed=seed, evaluations=1, env="Elsewhere") for seed in range(3)], "one", COMMAND)
    assert 'class="bar thick"' in page
    assert 'class="mean"' not in page


def test_missing_diverged_and_quarantined_runs_are_listed():
    diverged = make_record("gail", 3, status="diverged: loss is NaN", final=False, evaluations=2)
    missing = {name: make_record("gail", 4)[name] for name in ("key", "config", "display")}
    missing |= {"status": "missing", "evaluations": []}
    records = [*curve_records(), diverged, missing]
    assert [status for _, status in without_result(records)] == ["diverged: loss is NaN", "missing"]
    text = Reader(render(records, "t", COMMAND, quarantined=[("cells/0f.json", "checksum")])).text
    assert f"gail on {CHEETAH}, 20 trajectories, seed 3" in text
    assert "cells/0f.json" in text
    assert "seed 4: missing" in markdown(records)
    assert len(result_rows(records)) == len(result_rows([*curve_records(), diverged])) == 15 * 21 + 2


def test_final_statistics_are_over_finished_seeds_and_the_table_counts_them():
    records = [
        *(make_record("gail", seed) for seed in range(3)),
        make_record("gail", 3, status="diverged", final=False, evaluations=2),
    ]
    (learner,) = group_by_task(records)[0].learners
    assert (learner.curve.last.size, learner.curve.final_sample.size, len(learner.curve.seeds)) == (3, 3, 4)
    assert "<td>3 of 4</td>" in render(records, "t", COMMAND)


def test_a_study_without_results_has_a_page_and_no_figure():
    records = [make_record(seed=seed, status="diverged", final=False, evaluations=0) for seed in range(2)]
    for found in (records, []):
        assert render(found, "t", COMMAND).endswith("</html>\n")
    with pytest.raises(RunError):
        draw(records, "nowhere")


def test_several_trajectory_counts_make_a_chart_with_published_points():
    page = render(offline_records(), "counts", COMMAND, find_published=find_published)
    assert page.count("<figure") == 1
    assert "bc, published" in page
    data = json.loads(Reader(page).scripts[0])[0]
    assert data["categories"] == ["5", "10", "15", "20", "25"]
    assert [point[0] for point in data["series"][0]["points"]] == [0.0, 1.0, 4.0]


def test_an_offline_algorithm_is_a_horizontal_line_with_its_band(tmp_path, monkeypatch):
    records = [*curve_records(), *(make_record("bc", seed, evaluations=0, best=1500.0) for seed in range(5))]
    task = group_by_task(records)[0]
    clone = task.learners[-1]
    assert [learner.offline for learner in task.learners] == [False, False, False, True]
    page = render(records, "t", COMMAND)
    (chart,) = json.loads(Reader(page).scripts[0])
    xs, values = zip(*[(point[0], point[1]) for point in chart["series"][3]["points"]], strict=True)
    assert list(xs) == [25_000 * i for i in range(1, 21)]
    assert set(values) == {plus_minus(clone.curve.final_sample)}
    group = page.partition('<g class="series c3 level"')[2].partition("</g>")[0]
    line = re.search(r'<path class="mean" stroke-dashoffset="0" d="M0\.0 ([\d.]+)L1000\.0 ([\d.]+)"', group)
    assert line[1] == line[2]
    assert group.count('class="bar') == 2
    assert "do not play in the environment" in page
    drawn = []
    monkeypatch.setattr(figures, "draw_level", lambda axis, level, *more: drawn.append(level))
    draw(records, tmp_path / "f.png")
    assert drawn == [interval(clone.curve.final_sample)]


def test_an_algorithm_that_queries_an_expert_is_not_offline():
    record = make_record("dagger", 0, evaluations=0)
    record["queries"] = 100
    assert not group_by_task([record])[0].learners[0].offline


def test_learning_curves_of_several_counts_have_a_panel_each():
    records = [make_record("adril", seed, trajectories=count) for count in (5, 20) for seed in range(2)]
    assert [panel.title for panel in group_by_task(records)[0].panels()] == ["5 trajectories", "20 trajectories"]
    assert render(records, "t", COMMAND).count("<figure") == 3


def test_equal_labels_of_different_settings_get_unique_names():
    records = [make_record("adril", 0, label="same", settings={"lr": lr}) for lr in (1e-3, 1e-4)]
    assert [learner.name for learner in group_by_task(records)[0].learners] == ["same", "same [2]"]


def test_returns_that_are_not_finite_raise():
    record = make_record()
    record["evaluations"][0]["returns"][0] = float("nan")
    with pytest.raises(RunError, match="env_steps 25000"):
        render([record], "t", COMMAND)


def test_page_shows_status_and_queries_of_runs():
    rounds = {"x_kind": "round", "eval_every": 1, "evaluations": 4}
    records = [make_record("dagger", seed, env="Forest", expert=65.0, **rounds) for seed in range(3)]
    records[0]["status"] = "stopped: payoff at or below delta"
    for record in records:
        record["queries"] = 4_000
    text = Reader(render(records, "t", COMMAND)).text
    assert "1 stopped: payoff at or below delta; 2 finished" in text
    assert "4,000" in text
    assert "\nrounds\n" in text


# --- summary and comparisons ------------------------------------------------------------------------------------------


def test_summary_names_the_best_the_expert_and_the_second():
    (task,) = group_by_task(curve_records())
    best, second = task.learners[:2]
    text = summarize(task)
    assert text.startswith(f"On {CHEETAH}, AdRIL from 20 trajectories ")
    order = [number(best.score.mean), "2,154", "SQIL from 5 trajectories", number(second.score.mean)]
    assert [text.index(value) for value in order] == sorted(text.index(value) for value in order)
    assert "p < 0.001" in text


def test_summary_compares_the_best_two_with_a_two_sided_test():
    levels = (("adril", 1000.0), ("gail", 990.0))
    (task,) = group_by_task([make_record(name, seed, best=level) for name, level in levels for seed in range(5)])
    p = re.search(r"p = ([\d.]+)", summarize(task))
    ours, theirs = (list(learner.curve.final.values()) for learner in task.learners)
    assert float(p[1]) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, abs=0.006)
    assert "paired by seed" in summarize(task)


def test_differences_are_students_t_over_pairs_or_welchs_over_other_seeds():
    records = {seeds: [make_record("gail", seed, best=990.0) for seed in seeds] for seeds in ((0, 1, 2), (3, 4, 5, 6))}
    best = [make_record("adril", seed, best=1000.0) for seed in range(3)]
    for seeds, others in records.items():
        (task,) = group_by_task([*best, *others])
        ours, theirs = (list(learner.curve.final.values()) for learner in task.learners)
        found, p, paired = compare_means(*task.learners)
        test = stats.ttest_rel(ours, theirs) if paired else stats.ttest_ind(ours, theirs, equal_var=False)
        expected = test.confidence_interval(0.95)
        assert paired == (seeds == (0, 1, 2))
        assert found == pytest.approx((np.mean(ours) - np.mean(theirs), expected.low, expected.high))
        assert p == pytest.approx(test.pvalue)


@pytest.mark.parametrize(("best", "has_gap"), [(2500.0, False), (1000.0, True)])
def test_summary_gives_the_gap_only_if_the_best_does_not_reach_the_expert(best, has_gap):
    levels = (("adril", best), ("gail", 0.0))
    (task,) = group_by_task([make_record(name, seed, best=level) for name, level in levels for seed in range(5)])
    assert (f"gap of {number(task.learners[0].gap.mean)}" in summarize(task)) == has_gap


def test_summary_gives_the_last_return_only_if_it_is_lower_than_the_final_policies():
    records = [make_record("adril", seed) for seed in range(3)]
    assert "−1,400" not in summarize(group_by_task(records)[0])
    for record in records:
        record["evaluations"][-2]["returns"] = [-1400.0]
    assert "−1,400" in summarize(group_by_task(records)[0])


def test_best_learner_is_compared_with_the_others():
    best, *others = compare(group_by_task(curve_records())[0])
    assert (best.name, best.difference, best.wins) == ("AdRIL, 20 trajectories", "", "")
    assert [one.wins for one in others] == 2 * ["25 of 25"]
    assert all(one.paired for one in others)
    assert compare(group_by_task([make_record(seed=seed) for seed in range(3)])[0]) == []


def test_a_row_of_the_best_algorithm_with_fewer_demonstrations_may_be_second():
    """Rows are ranked, not algorithms: the second best row is named, and then the best of another algorithm."""
    levels = (("gail", 5, 500.0), ("gail", 20, 900.0), ("adril", 5, 1500.0), ("adril", 20, 2000.0))
    records = [
        make_record(name, seed, trajectories=count, best=best) for name, count, best in levels for seed in range(5)
    ]
    (task,) = group_by_task(records)
    text = summarize(task)
    assert [one.name_in_sentence for one in ranked(task)] == [
        f"{name} from {count} trajectories" for name, count, _ in reversed(levels)
    ]
    assert text.startswith(f"On {CHEETAH}, adril from 20 trajectories comes closest")
    assert "adril from 5 trajectories is second" in text
    assert "gail from 20 trajectories is the best of the other algorithms" in text


def test_runs_that_all_diverged_are_not_ranked_above_final_policies():
    diverged = [make_record("gail", seed, best=3000.0, final=False, status="diverged") for seed in range(3)]
    (task,) = group_by_task([*diverged, *(make_record("adril", seed, best=1000.0) for seed in range(3))])
    assert [one.name for one in ranked(task)] == ["adril", "gail"]
    assert summarize(task).startswith(f"On {CHEETAH}, adril comes closest")
    assert compare(task) == []


def test_the_headline_says_how_many_seeds_of_the_best_diverged():
    records = [make_record("adril", seed) for seed in range(3)]
    records.append(make_record("adril", 3, final=False, status="diverged", evaluations=2))
    assert "1 of its 4 seeds diverged" in summarize(group_by_task(records)[0])


def test_ties_count_as_half_a_pair():
    best = [make_record("adril", seed, evaluations=0) for seed in range(2)]
    other = [make_record("gail", seed, evaluations=0) for seed in range(2)]
    for records, returns in ((best, (3.0, 2.0)), (other, (2.0, 1.0))):
        for record, value in zip(records, returns, strict=True):
            record["evaluations"][-1]["returns"] = [value]
    assert compare(group_by_task([*best, *other])[0])[1].wins == "3.5 of 4"


def test_published_results_keep_their_citation():
    def cited(*what):
        return find_published(*what)._replace(source="Someone et al., 2021", citation="Someone, A Paper, Figure 3")

    page = render(curve_records(), "t", COMMAND, find_published=cited)
    assert "Published: Someone, A Paper, Figure 3." in page
    assert "adril, published (20 trajectories; Someone et al., 2021)" in page
    text = markdown(curve_records(), cited)
    assert "Published: Someone, A Paper, Figure 3." in text


def test_the_papers_numbers_name_the_paper():
    published = paper.find_published(CHEETAH, "bc", {})
    assert published.by_trajectories
    assert "ICML 2021" in published.citation


# --- normalised returns -----------------------------------------------------------------------------------------------


def exact_records(returns, **named):
    """Records whose final policies have these mean returns, one for each seed."""
    records = [make_record(seed=seed, evaluations=0, **named) for seed in range(len(returns))]
    for record, value in zip(records, returns, strict=True):
        record["evaluations"][-1]["returns"] = [value]
    return records


def test_normalised_returns_are_0_for_random_actions_and_1_for_the_expert():
    records = exact_records((0.0, 50.0, 100.0), env="One", expert=100.0)
    page = render(records, "t", COMMAND, random_returns={"One": 0.0})
    assert "<b>0.500 ± 0.289</b>" in page
    assert "Expert-normalised" not in render(records, "t", COMMAND)


def test_the_profile_is_the_share_of_runs_above_tau_with_wilsons_interval():
    records = exact_records((20.0, 60.0, 60.0, 90.0), env="One", expert=100.0)
    records.append(make_record("adril", 9, env="One", expert=100.0, evaluations=0, final=False, status="diverged"))
    (chart,) = json.loads(Reader(render(records, "t", COMMAND, random_returns={"One": 0.0})).scripts[0])[-1:]
    (series,) = chart["series"]
    for tau, share in ((0.0, 0.8), (0.5, 0.6), (0.85, 0.2), (0.95, 0.0)):
        _, text, size = min(series["points"], key=lambda point: abs(point[0] - tau))
        wilson = proportion(5 * share, 5)
        assert size == 5
        assert text == f"{number(share)} {bracket(wilson)}"
    assert chart["statistic"] == "share of runs above [95% interval]"


def test_a_profile_pools_tasks_only_if_every_learner_ran_on_all():
    both = [record for env in ("One", "Two") for record in exact_records((1.0, 2.0), env=env, expert=3.0)]
    known = {"One": 0.0, "Two": 0.0}
    assert "all tasks: share of runs" in render(both, "t", COMMAND, random_returns=known)
    more = [*both, *exact_records((1.0, 2.0), algorithm="bc", env="Two", expert=3.0)]
    page = render(more, "t", COMMAND, random_returns=known)
    assert "all tasks: share of runs" not in page
    assert page.count("share of runs above τ</figcaption>") == 2


def test_tasks_that_cannot_be_normalised_are_named_with_the_reason():
    records = [
        record
        for env, expert in (("One", 100.0), ("Two", None), ("Three", -5.0), ("Four", 1.0))
        for record in exact_records((1.0, 2.0), env=env, expert=expert)
    ]
    known = {"One": 0.0, "Two": 0.0, "Three": 0.0, "Four": "no simulator"}
    text = Reader(render(records, "t", COMMAND, random_returns=known)).text
    assert "Two (the expert's return is not known)" in text
    assert "Three (expert is -5: it must be above random, 0)" in text
    assert "Four (no simulator)" in text


def test_the_mean_over_tasks_has_welchs_interval():
    x, y = np.array([1.0, 2.0, 4.0]), np.array([10.0, 11.0, 15.0, 13.0])
    found = mean_of_means([Sample.of(x), Sample.of(y)])
    expected = stats.ttest_ind(x, -y, equal_var=False).confidence_interval(0.95)
    assert found == pytest.approx(((x.mean() + y.mean()) / 2, expected.low / 2, expected.high / 2))


# --- tables -----------------------------------------------------------------------------------------------------------


def test_markdown_escapes_pipes_and_backticks():
    text = markdown([make_record("bc", seed, label="a|b `c`") for seed in range(2)])
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "a\\|b \\`c\\`" in text


def test_markdown_has_the_mean_the_standard_error_and_the_gap():
    records = curve_records()
    sqil = [record for record in records if record["config"]["algorithm"]["name"] == "sqil"]
    sample = Sample.of([np.mean(record["evaluations"][-1]["returns"]) for record in sqil])
    (line,) = [line for line in markdown(records).splitlines() if line.startswith("| SQIL")]
    assert f"{sample.mean:.0f} ± {sample.standard_error:.0f}" in line
    assert f"{2154 - sample.mean:,.0f} ± {sample.standard_error:.0f}" in line


def test_csv_has_the_standard_columns_and_all_evaluations(tmp_path):
    records = [*curve_records(), {**make_record("gail", 9, status="missing"), "evaluations": []}]
    rows = result_rows(records)
    assert len(rows) == 15 * 21
    write_csv(tmp_path / "cells.csv", COLUMNS, rows)
    with (tmp_path / "cells.csv").open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    returns = np.array(records[0]["evaluations"][0]["returns"])
    assert float(first["mean_return"]) == pytest.approx(returns.mean(), abs=1e-3)
    assert float(first["std_return"]) == pytest.approx(returns.std(), abs=1e-3)
    assert first["x_kind"] == "env_steps"
    assert first["demonstrations"] == "bundled@5f2d5f2d5f2d"
    assert first["versions"] == "understudy=0.1.0 jax=0.11.2"


# --- figures, charts and clips ----------------------------------------------------------------------------------------


def test_figure_is_written_as_png_and_svg_with_a_panel_per_task(tmp_path):
    files = draw([*curve_records(), *offline_records()], tmp_path / "v1.5", find_published)
    assert [path.name for path in files] == ["v1.5.png", "v1.5.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_text().count('id="axes_') == 2
    assert draw([make_record(label="$x_", evaluations=1)], tmp_path / "one.svg") == [tmp_path / "one.svg"]


def test_long_names_do_not_shrink_the_axes_of_a_figure(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(drawing, "save", lambda figure, path: figures.append(figure))
    for names in (["a"], [f"{'a name with many settings=1.0, ' * 4}{index}" for index in range(10)]):
        draw(
            [make_record(label=name, evaluations=0, settings={"lr": i}) for i, name in enumerate(names)],
            tmp_path / "f.png",
        )
    for figure in figures:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure.draw_without_rendering()
    few, *_, many = (figure.axes[0].get_window_extent() for figure in figures)
    assert many.height > 0.8 * few.height
    assert many.width > 0.9 * few.width


def test_wide_intervals_of_two_seeds_do_not_flatten_the_curves():
    samples = {0.0: Sample(0.0, 10.0, 2), 1.0: Sample(10.0, 10.0, 2)}
    _, low, high = interval(samples[0.0])
    chart = Chart("t", "x", [Series("a", 0, samples)])
    assert chart.y[1] - chart.y[0] < 60 < high - low


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1423.4, 2176), (0.001, 0.0042), (25_000, 500_000), (-3e7, -1e6)])
def test_ticks_are_few_evenly_spaced_and_inside_the_range(low, high):
    values = ticks(low, high)
    assert 2 <= len(values) <= 8
    assert all(low <= tick <= high for tick in values)
    assert np.allclose(np.diff(values), values[1] - values[0])


def test_clip_is_embedded_and_other_bytes_are_rejected():
    gif = clip(Actor(Pendulum().expert(), Pendulum().spec), "Pendulum")
    assert gif.startswith(b"GIF89a")
    assert len(gif) < 500_000
    records = [make_record("bc", 0, env="Pendulum", evaluations=0)]
    shown = {"Pendulum": [Clip("BC, seed 0", gif), Clip("The expert", "it has no policy")]}
    reader = Reader(render(records, "t", COMMAND, shown))
    (image,) = reader.find("img")
    assert image["src"].startswith("data:image/gif;base64,R0lGOD")
    assert "BC, seed 0" in reader.text
    assert "No clip: it has no policy" in reader.text
    with pytest.raises(SettingError, match="PNG, GIF or WebP"):
        render(records, "t", COMMAND, {"Pendulum": [Clip("", b"<svg onload=alert(1)>")]})


def test_clip_of_a_forest_is_a_picture_and_an_environment_without_rendering_is_an_error():
    assert clip(Actor(Forest().expert(), Forest().spec), "Forest").startswith(b"\x89PNG")
    with pytest.raises(RenderError, match="has the render mode None"):
        clip(us.load_expert("CartPole-v1"), lambda: gymnasium.make("CartPole-v1"))
