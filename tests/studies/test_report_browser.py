"""The report in Chromium: visible curves, working toggles, no errors and no requests. Skipped without Chromium."""

import base64
import re

import pytest

from support.study_records import CHEETAH, curve_records, make_record, offline_records
from understudy.core.statistics import Sample
from understudy.studies.plan import Protocol
from understudy.studies.published import Published
from understudy.studies.report import render
from understudy.studies.report.clips import Clip
from understudy.studies.report.compare import Side, compare_studies
from understudy.studies.report.compare_page import render_comparison

pytestmark = pytest.mark.slow

HOSTILE = "</script><img src=x onerror=\"document.title='run'\">"
PROFILES = 1 + 2 + 2 + 2 + 2
"""Curves of the profiles: of one, two, two, two and two learners, by task and number of trajectories."""
SIZES = "els => els.map(e => e.getBoundingClientRect()).map(r => [r.width, r.height])"
VISIBLE = "els => els.filter(e => e.getClientRects().length && getComputedStyle(e).display !== 'none').length"


def find_published(env, algorithm, hyperparameters):
    """A published curve of each online algorithm, and published points of each offline one."""
    by_steps = {x: Sample(float(x) / 250, 50.0, 5) for x in range(0, 500_000, 25_000)}
    by_trajectories = {count: Sample(80.0 * count, 30.0, 5) for count in (5, 10, 25)}
    return Published(algorithm, by_steps, 20, by_trajectories)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page with curves, trajectory counts, a clip, a diverged run and hostile text."""
    records = [
        *curve_records(),
        *offline_records(),
        make_record("gail", 7, trajectories=5, label="GAIL", status="diverged", final=False, evaluations=3),
        make_record("bc", 0, env=HOSTILE, label=HOSTILE + "long" * 40, evaluations=1, x_kind="round"),
    ]
    dot = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
    path = tmp_path_factory.mktemp("report") / "report.html"
    clips = {"AntBulletEnv-v0": [Clip("bc, seed 2", dot), Clip("The expert", "no display")]}
    random = {CHEETAH: -1400.0, "AntBulletEnv-v0": 300.0}
    page = render(records, "A study", "study report", clips, (), find_published, random, None, "[[task]]\n" + "x" * 500)
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def desktop(chromium, file):
    return chromium.page(file)


def over(page, selector, function):
    return page.run(f"({function})([...document.querySelectorAll({selector!r})])")


def test_curves_and_bands_are_visible(desktop):
    means, bands = over(desktop, "path.mean", SIZES), over(desktop, "path.band.wide", SIZES)
    assert len(means) == 3 + 3 + 2 + 2 + PROFILES
    assert len(bands) >= 3
    assert all(width > 50 and height > 1 for width, height in means + bands)
    areas = over(desktop, ".area", SIZES)
    assert len(areas) == 3 + 5
    assert all(width > 600 and height > 200 for width, height in areas)


def test_page_has_no_errors_and_makes_no_requests(desktop):
    assert desktop.errors == []
    assert desktop.requests == []


def test_errors_and_requests_of_a_page_are_detected(chromium, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('one'); nothing.there</script><img src=gone.png>", encoding="utf-8")
    page = chromium.page(path)
    assert len(page.errors) >= 2
    assert len(page.requests) == 1


def test_hostile_text_is_shown_as_text(desktop):
    assert desktop.run("document.title") == "A study"
    assert over(desktop, "img", "els => els.map(e => e.src.slice(0, 10))") == ["data:image"]
    assert HOSTILE in desktop.run("document.body.innerText")


def test_content_security_policy_blocks_injected_scripts(chromium, file, tmp_path):
    path = tmp_path / "injected.html"
    text = file.read_text(encoding="utf-8").replace("<main>", "<script>document.title = 'run'</script><main>")
    path.write_text(text, encoding="utf-8")
    page = chromium.page(path)
    assert page.run("document.title") == "A study"
    assert any("Content Security Policy" in error for error in page.errors)


def test_a_click_in_the_legend_toggles_a_curve(chromium, file):
    page = chromium.page(file)
    before = over(page, "figure path.mean", VISIBLE)
    click = "document.querySelector('button.key').click()"
    page.run(click)
    assert over(page, "figure path.mean", VISIBLE) == before - 1
    assert page.run("document.querySelector('button.key').getAttribute('aria-pressed')") == "false"
    page.run(click)
    assert over(page, "figure path.mean", VISIBLE) == before
    assert page.errors == []


def test_seeds_button_toggles_the_traces_of_its_own_chart(chromium, file):
    page = chromium.page(file)
    assert over(page, ".seeds path", VISIBLE) == 0
    page.run("document.querySelector('button[data-seeds]').click()")
    assert over(page, ".seeds path.line", VISIBLE) == 16
    assert over(page, ".seeds path.dot", VISIBLE) == 0
    page.run("document.querySelector('button[data-seeds]').click()")
    assert over(page, ".seeds path", VISIBLE) == 0


def test_pointer_shows_the_numbers_of_visible_curves(chromium, file):
    page = chromium.page(file)
    move = (
        "(() => { const a = document.querySelector('.area'), b = a.getBoundingClientRect();"
        "a.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 5}));"
        "return document.querySelector('.readout').textContent })()"
    )
    text = page.run(move)
    assert re.match(
        r"2[2-7][05],000 environment steps, mean ± standard error over seeds\. AdRIL, 20 trajectories: [\d,]+ ± \d+",
        text,
    )
    page.run("document.querySelector('button.key').click()")
    assert "AdRIL" not in page.run(move)


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_page_does_not_scroll_sideways_except_its_tables(chromium, file, width):
    page = chromium.page(file, width=width, height=740)
    assert page.run("document.documentElement.scrollWidth") <= width
    outside = f"els => els.filter(e => e.getBoundingClientRect().right > {width}).map(e => e.outerHTML.slice(0, 80))"
    assert over(page, "main > *, figure, .area, button, .x span, img, .scroll, p, li", outside) == []
    if width == 360:
        assert over(page, ".scroll", "els => els.filter(e => e.scrollWidth > e.clientWidth).length") >= 2
        sizes = over(page, "button", SIZES)
        assert all(height >= 30 for _, height in sizes)


def test_dark_mode_has_a_dark_background_and_light_text(chromium, file):
    colours = {}
    for dark in (False, True):
        page = chromium.page(file, dark=dark)
        for name in ("backgroundColor", "color"):
            value = page.run(f"getComputedStyle(document.body).{name}")
            colours[dark, name] = sum(map(int, re.findall(r"\d+", value)[:3]))
    assert colours[False, "backgroundColor"] > 700 > 150 > colours[False, "color"]
    assert colours[True, "backgroundColor"] < 150 < 600 < colours[True, "color"]


def test_print_hides_toggles_keeps_curves_and_breaks_pages_between_tasks(chromium, file):
    page = chromium.page(file, width=720, dark=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(page.call("Page.printToPDF")["data"])))
    assert pages >= 3
    page.call("Emulation.setEmulatedMedia", media="print")
    assert over(page, "button.toggle", VISIBLE) == 0
    assert over(page, "path.mean", VISIBLE) == 10 + PROFILES
    assert page.run("getComputedStyle(document.querySelectorAll('.task')[1]).breakBefore") == "page"
    assert page.run("document.documentElement.scrollWidth") <= 720


def test_toggles_work_with_the_keyboard(chromium, file):
    page = chromium.page(file)
    page.run("document.querySelector('button[data-seeds]').focus()")
    for kind in ("rawKeyDown", "char", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
    assert page.run("document.querySelector('button[data-seeds]').getAttribute('aria-pressed')") == "true"


@pytest.mark.parametrize("width", [400, 1100])
def test_a_comparison_fits_the_screen_and_draws_every_pair(chromium, tmp_path, width):
    protocol = Protocol(seeds=3)
    sides = [
        Side(
            f"runs/{name}",
            name + HOSTILE,
            protocol,
            [
                {**one, "display": {**one["display"], "label": f"{one['display']['label']}{HOSTILE}"}}
                for one in offline_records()
            ],
        )
        for name in "ab"
    ]
    path = tmp_path / "compare.html"
    path.write_text(render_comparison(compare_studies(*sides), ["study report --compare a b"]), encoding="utf-8")
    page = chromium.page(path, width=width, height=740)
    assert page.run("document.documentElement.scrollWidth") <= width
    drawn = over(page, ".forest svg", SIZES)
    assert len(drawn) == 6
    assert all(wide > 150 and high > 10 for wide, high in drawn)
    assert page.errors == []
    assert page.requests == []
