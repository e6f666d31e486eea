"""The console in Chromium: a scripted person demonstrates, takes over, answers and compares."""

import pytest

import understudy as us
from support.console import CARTPOLE, PENDULUM, TRAINED, Console, Person

pytest.importorskip("starlette")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DAGGER = ("--algorithm", "dagger", "--preset", "quick")
TASKS = {"Pendulum": (PENDULUM, 20), "CartPole-v1": (CARTPOLE, 10)}
"""The rule that the person follows, and the steps of an episode: it ends before the clone has seen enough to go on."""
SHAPES = [(400, 800, False), (400, 800, True), (1200, 900, False), (1200, 900, True)]
MODES = ("demonstrate", "watch", "answer", "compare", "progress")


@pytest.fixture(scope="module")
def taught(chromium, tmp_path_factory):
    """A console whose person has demonstrated, trained two rounds and answered."""
    out = tmp_path_factory.mktemp("taught") / "console"
    with Console(out, "--env", "CartPole-v1", *DAGGER, "--questions", "5") as console:
        person = Person(chromium, console, CARTPOLE)
        person.demonstrate(2, 20)
        person.train()
        person.train()
        yield console, person


@pytest.fixture
def pendulum(chromium, tmp_path):
    with Console(tmp_path / "console", "--env", "Pendulum") as console:
        yield console, Person(chromium, console, PENDULUM)


@pytest.mark.parametrize("env", TASKS)
def test_dagger_on_a_persons_answers_beats_the_clone_of_the_same_demonstrations(chromium, tmp_path, env):
    rule, steps = TASKS[env]
    out = tmp_path / "console"
    with Console(out, "--env", env, *DAGGER, "--budget", "100") as console:
        person = Person(chromium, console, rule)
        assert person.demonstrate(10, steps) == [steps] * 10
        for _ in range(5):
            person.train()
        assert len(person.policies) == 5
        assert "80 of 100" in person.text("progress-numbers")
        person.click("save")
        person.says("saved", f"Saved in {out / 'run'}", TRAINED)  # demonstrations alone are saved before
        assert person.page.errors == []
        person.page.close()
    demonstrations = us.load(str(out / "demonstrations.npz"))
    assert demonstrations.episodes == 10
    clone = us.imitate(us.bc.preset("quick"), demonstrations).evaluate(env, episodes=20).scores()[0].learner
    learned = us.load_run(out / "run").evaluate(env, episodes=20).scores()[0].learner
    assert learned.low > clone.high


def test_keys_drive_while_the_clock_runs(pendulum):
    _, person = pendulum
    page = person.page
    person.start(step_by_step=False)
    page.key("ArrowLeft", up=False)
    page.until("document.querySelector('#pad output').textContent === '2'")  # Pendulum's torque grows to the left
    page.key("Space")
    person.says("stage-status", "It runs")
    rows = "[...document.getElementById('details-body').rows]"
    taken = f"{rows}.find(r => r.cells[0].textContent === 'action taken').cells[1].textContent"
    page.until(f"{taken} === '2' && Number(document.getElementById('read-t').textContent) > 5")
    page.key("ArrowLeft", down=False)
    page.until(f"{taken} === '0'")
    page.key("Space")
    person.says("stage-status", "Paused")
    assert person.number("read-return") < 0
    assert page.errors == []


def test_undo_goes_back_and_success_is_kept(pendulum):
    console, person = pendulum
    person.start()
    assert person.drive(30) == 30
    person.page.run(
        "document.getElementById('undo-unit').value = 'steps'; document.getElementById('undo-amount').value = 12"
    )
    person.click("undo")
    person.page.until("document.getElementById('read-t').textContent === '18'")
    person.page.until("document.querySelector('#details-body td').textContent === '18'")
    assert person.drive(25) == 25
    person.page.click("#success input[value=true]")
    person.page.until("document.querySelector('#success input[value=true]').checked")
    person.keep()
    assert person.page.run("[...document.querySelector('#episodes tbody tr').cells].map(c => c.textContent)")[
        2:5:2
    ] == ["25", "success"]
    assert us.load(str(console.out / "episodes" / "000001.npz")).observations.shape == (25, 3)


def test_the_mapping_is_edited_and_stored_for_the_environment(pendulum):
    _, person = pendulum
    page = person.page
    page.click("#mapping summary")
    person.click("add")
    person.says("add", "Press it now")
    page.key("KeyQ")
    person.says("mapping-status", "Saved")
    page.run("""(() => {
        const field = document.querySelector('#bindings li:last-child input');
        field.value = 1.5;
        field.dispatchEvent(new Event('change'));
    })()""")
    person.says("mapping-status", "Saved")
    page.until("document.querySelector('#bindings li:last-child button').textContent === 'Q'")
    page.reload()
    person.ready()
    person.start()
    page.key("KeyQ", up=False)
    page.until("document.querySelector('#pad output').textContent === '1.5'")
    page.key("KeyQ", down=False)
    page.until("document.querySelector('#pad output').textContent === '0'")


def test_a_reload_in_the_middle_loses_nothing(pendulum):
    _, person = pendulum
    person.demonstrate(1, 5)
    person.start()
    assert person.drive(20) == 20
    person.page.reload()
    person.ready()
    person.page.until("document.getElementById('read-t').textContent === '20'")
    assert person.kept == 1
    person.page.run("document.getElementById('details').open = true")
    person.page.until("!document.getElementById('step').disabled")
    assert person.drive(25) == 25
    person.keep()
    assert person.kept == 2


def test_a_killed_server_is_found_again_with_everything_confirmed(pendulum):
    console, person = pendulum
    person.demonstrate(1, 5)
    person.start()
    assert person.drive(20) == 20
    console.kill()
    person.says("connection", "No connection")
    assert person.page.run(
        "document.getElementById('go').disabled && document.querySelector('[data-mode=watch]').disabled"
    )
    assert "There is no connection" in person.text("banner")
    console.start()
    person.ready()
    assert person.kept == 1
    person.page.until("document.getElementById('read-t').textContent === '20'")
    person.page.run("document.getElementById('details').open = true")
    person.page.until("!document.getElementById('step').disabled")
    assert person.drive(25) == 25
    person.keep()
    assert us.load(str(console.out / "episodes" / "000002.npz")).observations.shape == (25, 3)


def test_a_second_tab_watches_and_can_take_control(chromium, pendulum):
    console, first = pendulum
    second = chromium.page(console.address)
    word = "document.getElementById('connection').textContent"
    second.until(f"{word} === 'You watch'")
    first.start()
    first.drive(7)
    second.until("document.getElementById('read-t').textContent === '7'")
    assert second.run(
        "[...document.querySelectorAll('#panel-stage button, nav button')].every(b => b.disabled || b.hidden)"
    )
    second.click("#take-control")
    second.until(f"{word} === 'You have control'")
    first.says("connection", "You watch")
    second.until("!document.getElementById('keep').disabled")
    second.click("#keep")
    first.says("episode-counts", "1 episode kept")
    second.close()
    first.says("connection", "You have control")
    assert first.page.errors == []


def test_a_person_takes_over_and_hands_back(taught):
    _, person = taught
    page = person.page
    person.mode("watch")
    person.start(step_by_step=True)
    for _ in range(3):
        person.step()
    person.says("who", "policy 2 drives")
    page.key("KeyT")
    person.says("who", "you drive")
    page.key("ArrowRight", up=False)
    for _ in range(4):
        before = int(person.number("read-t"))
        page.key("Enter")
        page.until(f"document.getElementById('read-t').textContent === '{before + 1}'")
    page.key("ArrowRight", down=False)
    page.key("KeyT")
    person.says("who", "policy 2 drives")
    page.key("Enter")
    page.until("document.getElementById('read-t').textContent === '8'")
    page.until("document.getElementById('read-interventions').textContent === '4'")
    before = person.kept
    person.keep()
    row = page.run("[...document.querySelector('#episodes tbody tr').cells].map(c => c.textContent)")
    assert row[1:3] == ["correction of policy 2", "8"]
    assert row[5] == "4"
    person.mode("demonstrate")
    assert person.kept == before + 1


def test_a_person_compares_two_policies(taught):
    _, person = taught
    page = person.page
    person.mode("compare")
    person.click("next-pair")
    for side in ("left", "right"):
        page.until(f"document.querySelector('#{side}-player canvas').dataset.shown?.endsWith('-{side}/0')", TRAINED)
    assert page.run("document.getElementById('left-title').textContent") == "Left"
    page.key("Digit1")
    person.says("pair-question", "You chose left")
    assert page.run("document.getElementById('left-title').textContent").startswith("Left: policy ")
    page.until("document.querySelectorAll('#rates tbody tr').length === 2")
    rates = page.run("[...document.querySelectorAll('#rates tbody tr')].map(r => r.cells[1].textContent.split(' ')[0])")
    assert sorted(rates) == ["0%", "100%"]


def test_questions_show_their_state_reason_and_count(taught):
    _, person = taught
    page = person.page
    person.mode("answer")
    page.until("document.getElementById('count-answered').textContent === '5'")
    assert "Asked: " in person.text("answer-hint")
    assert "Why: " in person.text("question-reason")
    shown = "document.querySelector('#answer-player canvas').dataset.shown"
    page.until(shown, TRAINED)
    page.run("""(() => {
        const range = document.querySelector('#answer-player input');
        range.value = 0;
        range.dispatchEvent(new Event('input'));
    })()""")
    page.until(f"{shown}.endsWith('/0')", TRAINED)
    assert page.run("document.querySelectorAll('#question-list [data-status=answered]').length") == 5


@pytest.mark.parametrize(("width", "height", "dark"), SHAPES)
def test_the_page_fits_narrow_and_wide_screens(taught, width, height, dark):
    _, person = taught
    page = person.page
    page.look(width, height, dark)
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
    for mode in MODES:
        person.mode(mode)
        assert page.run("document.documentElement.scrollWidth") <= width
        section = "document.querySelector('main > section:not([hidden])')"
        assert page.run(f"{section}.getBoundingClientRect().height") > 100
        shown = f"[...{section}.querySelectorAll('button')].filter(b => b.getClientRects().length)"
        assert page.run(f"{shown}.filter(b => b.getBoundingClientRect().right > {width}).map(b => b.id)") == []
    page.look(1100, 900, False)


def test_every_control_has_a_name_and_a_visible_focus(taught):
    _, person = taught
    page = person.page
    for mode in MODES:
        person.mode(mode)
        unnamed = page.run("""[...document.querySelectorAll('button, input, select, canvas')]
            .filter(node => node.getClientRects().length)
            .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length))
            .map(node => node.outerHTML)""")
        assert unnamed == []
    person.mode("demonstrate")
    seen = []
    for _ in range(12):
        page.key("Tab")
        number = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
        frame = (
            "document.activeElement.closest('.screen') ?? document.activeElement"  # the picture's frame has its outline
        )
        seen.append(page.run(f"[{number}, getComputedStyle({frame}).outlineStyle]"))
    assert len({number for number, _ in seen}) == 12
    assert all(style == "solid" for _, style in seen)


def test_the_page_makes_no_request_to_others_and_has_no_errors(taught):
    console, person = taught
    own = console.address.split("?")[0]
    assert [url for url in person.page.requests if not url.startswith((own, own.replace("http", "ws"), "blob:"))] == []
    assert person.page.errors == []


def test_hostile_names_are_shown_as_text(chromium, tmp_path):
    """A name of the output directory is text from outside."""
    out = tmp_path / "<img src=x onerror=document.title=1>"
    with Console(out, "--env", "CartPole-v1") as console:
        person = Person(chromium, console, CARTPOLE)
        assert "<img" in person.text("about")
        assert person.page.run("document.querySelectorAll('img').length") == 0
        assert person.page.run("document.title").startswith("CartPole-v1")
        blocked = person.page.run("""new Promise((resolve) => {
            document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
            const script = document.createElement('script');
            script.textContent = 'document.title = 1';
            document.body.append(script);
        })""")
        assert blocked.startswith("script-src")
        person.page.close()


def test_ending_on_the_page_ends_the_server(chromium, tmp_path):
    with Console(tmp_path / "console", "--env", "CartPole-v1") as console:
        person = Person(chromium, console, CARTPOLE)
        person.demonstrate(1, 5)
        person.mode("progress")
        person.click("end")
        person.page.click("#confirm button[value=yes]")
        person.says("connection", "Ended")
        assert console.process.wait(60) == 0
        assert "You can close this page" in person.text("banner")
        person.page.close()
