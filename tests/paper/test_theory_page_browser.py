"""The interactive page in Chromium: sliders redraw, the game plays, no errors and no requests. Skipped without it."""

import pytest

from understudy.paper.theory.explorer import page, tables

pytestmark = pytest.mark.slow

CURVES = "[...document.querySelectorAll('#bounds-chart path.mean')].map(e => e.getAttribute('d')).join()"
CELL = "document.querySelector('#bounds-table tbody tr:nth-child({}) td:nth-child({})').textContent"
VALUE = "document.getElementById('{}-value').textContent"
CERTIFICATE = "Number(document.getElementById('round-value').textContent.match(/certificate ([\\d.]+)/)[1])"
WIDE = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page with fewer horizons, so that it is made in seconds."""
    path = tmp_path_factory.mktemp("theory") / "theory.html"
    few = {task: task._replace(horizons=task.horizons[:4], ways_back=task.ways_back[:4]) for task in tables.TASKS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "GROUPS", tuple(tuple(few[task] for task in group) for group in tables.GROUPS))
        page.write_page(path)
    return path


@pytest.fixture
def opened(chromium, file):
    made = chromium.page(file)
    yield made
    assert made.errors == []
    assert made.requests == []
    made.close()


def press(opened, selector, code, number):
    """Arrow keys on a focused element."""
    opened.run(f"document.querySelector('{selector}').focus()")
    for kind in ("rawKeyDown", "keyUp"):
        opened.call("Input.dispatchKeyEvent", type=kind, code=code, key=code, windowsVirtualKeyCode=number)


@pytest.mark.parametrize("slider", ["horizon", "epsilon", "back"])
def test_an_arrow_key_on_a_slider_redraws_the_gaps(opened, slider):
    before, value = opened.run(CURVES), opened.run(VALUE.format(slider))
    numbers = opened.run("document.querySelector('#bounds-table').innerText")
    code, number = ("ArrowLeft", 37) if slider == "horizon" else ("ArrowRight", 39)
    press(opened, f"#{slider}", code, number)
    assert opened.run(VALUE.format(slider)) != value
    assert opened.run(f"document.getElementById('{slider}').getAttribute('aria-valuetext')") != value
    assert opened.run("document.querySelector('#bounds-table').innerText") != numbers
    assert (opened.run(CURVES) != before) == (slider != "horizon")  # T moves the cursor along the same curves


def test_the_numbers_are_those_of_the_table(opened):
    """LOOP, T = 32, ε = 1/1024."""
    assert opened.run(VALUE.format("epsilon")).startswith("1/1024")
    gap = 1 / 1024 * 31
    assert float(opened.run(CELL.format(1, 3))) == pytest.approx(gap, rel=1e-3)
    assert float(opened.run(CELL.format(2, 3))) == pytest.approx(32 * gap, rel=1e-3)
    opened.click("#task label:nth-child(2)")
    assert float(opened.run(CELL.format(3, 3))) == pytest.approx(1, rel=1e-3)
    assert "32" in opened.run(VALUE.format("back"))
    assert opened.run("document.getElementById('back').disabled")


@pytest.mark.parametrize("choice", ["view", "along", "scale"])
def test_a_choice_redraws_the_curves(opened, choice):
    before = opened.run(CURVES)
    opened.click(f"#{choice} label:nth-child(2)")
    assert opened.run(CURVES) != before


def test_nothing_is_drawn_where_no_learner_has_the_payoff(opened):
    opened.click("#task label:nth-child(2)")
    opened.run("const e = document.getElementById('epsilon'); e.value = e.max; e.dispatchEvent(new Event('input'))")
    assert opened.run(CELL.format(2, 2)) == "none: εT > 1"
    assert opened.run(CELL.format(2, 3)) == "–"


@pytest.mark.parametrize("side", [1, 2])
def test_the_game_plays_and_its_certificate_falls(opened, side):
    opened.click(f"#side label:nth-child({side})")
    board, first = opened.run("document.getElementById('board').innerHTML"), opened.run(CERTIFICATE)
    opened.click("#step")
    assert opened.run("document.getElementById('board').innerHTML") != board
    opened.click("#back-one")
    assert opened.run("document.getElementById('board').innerHTML") == board
    opened.click("#play")
    assert opened.run("document.getElementById('play').textContent") == "Pause"
    opened.until(f"{CERTIFICATE} < {first / 3}")
    opened.click("#play")
    shown = opened.run(VALUE.format("round"))
    assert opened.run("new Promise(done => setTimeout(done, 700)).then(() => " + VALUE.format("round") + ")") == shown
    opened.click("#restart")
    assert opened.run(CERTIFICATE) == first


@pytest.mark.parametrize("width", [360, 400, 768])
@pytest.mark.parametrize("dark", [False, True])
def test_narrow_windows_do_not_scroll_sideways(opened, width, dark):
    opened.look(width, 800, dark)
    opened.run("document.querySelector('details').open = true")
    assert not opened.run(WIDE)
    background = opened.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark


def test_every_control_has_a_name(opened):
    unnamed = """[...document.querySelectorAll('input, button, svg')].filter(e => !(e.getAttribute('aria-label')
        || e.textContent.trim() || (e.labels && e.labels.length && e.labels[0].textContent.trim())))"""
    assert opened.run(f"{unnamed}.length") == 0
