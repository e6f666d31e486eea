"""The report in a browser: it renders, its curves are there to see, its toggles work, and nothing complains."""

import base64
import re

import pytest

import browser
from study_cells import cell, counts, figure
from understudy.studies.report import render

pytestmark = pytest.mark.skipif(browser.found() is None, reason=browser.SKIPPED)

HOSTILE = "</script><img src=x onerror=\"document.title='run'\">"
SIZES = "els => els.map(e => e.getBoundingClientRect()).map(r => [r.width, r.height])"
VISIBLE = "els => els.filter(e => e.getClientRects().length && getComputedStyle(e).display !== 'none').length"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Curves, data sizes, a clip, trouble and hostile text, all on one page."""
    cells = [
        *figure(),
        *counts(),
        cell("gail", 7, trajectories=5, label="GAIL", status="diverged", handed=False, evaluations=3),
        cell("bc", 0, env=HOSTILE, label=HOSTILE + "long" * 40, evaluations=1),
    ]
    dot = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(cells, "A study", "study report", {"AntBulletEnv-v0": dot}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser(browser.found()) as running:
        yield running


@pytest.fixture(scope="module")
def desk(chromium, file):
    return chromium.page(file)


def over(page, selector, function):
    return page.run(f"({function})([...document.querySelectorAll({selector!r})])")


def test_curves_and_bands_are_visible(desk):
    means, bands = over(desk, "path.mean", SIZES), over(desk, "path.band.wide", SIZES)
    assert len(means) == 3 + 3 + 2 + 2
    assert len(bands) >= 3
    assert all(width > 50 and height > 1 for width, height in means + bands)
    areas = over(desk, ".area", SIZES)
    assert len(areas) == 3
    assert all(width > 600 and height > 200 for width, height in areas)


def test_nothing_is_complained_about_and_nothing_is_asked_of_the_network(desk):
    assert desk.errors == []
    assert desk.requests == []


def test_the_complaints_of_a_page_would_be_seen(chromium, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('one'); nothing.there</script><img src=gone.png>", encoding="utf-8")
    page = chromium.page(path)
    assert len(page.errors) >= 2
    assert len(page.requests) == 1


def test_hostile_text_is_shown_as_text(desk):
    assert desk.run("document.title") == "A study"
    assert over(desk, "img", "els => els.map(e => e.src.slice(0, 10))") == ["data:image"]
    assert HOSTILE in desk.run("document.body.innerText")


def test_the_pages_policy_runs_no_script_but_its_own(chromium, file, tmp_path):
    path = tmp_path / "injected.html"
    text = file.read_text(encoding="utf-8").replace("<main>", "<script>document.title = 'run'</script><main>")
    path.write_text(text, encoding="utf-8")
    page = chromium.page(path)
    assert page.run("document.title") == "A study"
    assert any("Content Security Policy" in error for error in page.errors)


def test_a_click_in_the_legend_hides_a_curve_and_another_shows_it_again(chromium, file):
    page = chromium.page(file)
    before = over(page, "figure path.mean", VISIBLE)
    click = "document.querySelector('button.key').click()"
    page.run(click)
    assert over(page, "figure path.mean", VISIBLE) == before - 1
    assert page.run("document.querySelector('button.key').getAttribute('aria-pressed')") == "false"
    page.run(click)
    assert over(page, "figure path.mean", VISIBLE) == before
    assert page.errors == []


def test_each_seed_is_shown_on_demand_in_its_own_plot(chromium, file):
    page = chromium.page(file)
    assert over(page, ".seeds path", VISIBLE) == 0
    page.run("document.querySelector('button[data-seeds]').click()")
    assert over(page, ".seeds path.line", VISIBLE) == 16
    assert over(page, ".seeds path.dot", VISIBLE) == 0
    page.run("document.querySelector('button[data-seeds]').click()")
    assert over(page, ".seeds path", VISIBLE) == 0


def test_the_pointer_reads_out_the_numbers_of_what_is_shown(chromium, file):
    page = chromium.page(file)
    move = (
        "(() => { const a = document.querySelector('.area'), b = a.getBoundingClientRect();"
        "a.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 5}));"
        "return document.querySelector('.readout').textContent })()"
    )
    told = page.run(move)
    assert re.match(r"2[2-7][05],000 environment steps\. AdRIL, 20 trajectories: [\d,]+ ± \d+", told)
    page.run("document.querySelector('button.key').click()")
    assert "AdRIL" not in page.run(move)


@pytest.mark.parametrize("width", [360, 768])
def test_a_phone_never_scrolls_sideways_and_its_tables_scroll_by_themselves(chromium, file, width):
    page = chromium.page(file, width=width, height=740)
    assert page.run("document.documentElement.scrollWidth") <= width
    outside = f"els => els.filter(e => e.getBoundingClientRect().right > {width}).map(e => e.outerHTML.slice(0, 80))"
    assert over(page, "main > *, figure, .area, button, .x span, img, .scroll, p, li", outside) == []
    if width == 360:
        assert over(page, ".scroll", "els => els.filter(e => e.scrollWidth > e.clientWidth).length") >= 2
        sizes = over(page, "button", SIZES)
        assert all(height >= 30 for _, height in sizes)


def test_dark_is_dark_and_its_text_can_be_read(chromium, file):
    colours = {}
    for dark in (False, True):
        page = chromium.page(file, dark=dark)
        for name in ("backgroundColor", "color"):
            value = page.run(f"getComputedStyle(document.body).{name}")
            colours[dark, name] = sum(map(int, re.findall(r"\d+", value)[:3]))
    assert colours[False, "backgroundColor"] > 700 > 150 > colours[False, "color"]
    assert colours[True, "backgroundColor"] < 150 < 600 < colours[True, "color"]


def test_print_hides_the_toggles_keeps_the_curves_and_starts_tasks_on_new_pages(chromium, file):
    page = chromium.page(file, width=720, dark=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(page.call("Page.printToPDF")["data"])))
    assert pages >= 3
    page.call("Emulation.setEmulatedMedia", media="print")
    assert over(page, "button.toggle", VISIBLE) == 0
    assert over(page, "path.mean", VISIBLE) == 10
    assert page.run("getComputedStyle(document.querySelectorAll('.task')[1]).breakBefore") == "page"
    assert page.run("document.documentElement.scrollWidth") <= 720


def test_keys_reach_every_toggle(chromium, file):
    page = chromium.page(file)
    page.run("document.querySelector('button[data-seeds]').focus()")
    for kind in ("rawKeyDown", "char", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
    assert page.run("document.querySelector('button[data-seeds]').getAttribute('aria-pressed')") == "true"
