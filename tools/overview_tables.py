"""Tables over all algorithms, from their cards and pages and from the stored results; and the list of public names.

They are in docs/choose.md, docs/algorithms.md and docs/api.md, between the markers of `tables.py`, which writes them.
A new algorithm is in them by itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path

import api_reference
from comparison import markdown, read
from understudy.algorithms import ALGORITHMS
from understudy.game import QUICK, Algorithm

PAGES = ("choose.md", "algorithms.md", "api.md")
TASKS = ("Pendulum", "CartPole-v1", "Forest")
"""Tasks of the preset "quick"."""
ORDER = ("off-Q", "reward", "on-Q")
CORES, GPU = "2 cores, cpu", "NVIDIA H200"
COSTS = {
    "bc": ("a gradient step", "bc-speed.csv", "understudy, one run"),
    "advil": ("a gradient step of both players", "off-q-speed.csv", "AdVIL, understudy, one run"),
    "valuedice": ("a gradient step of both players", "off-q-speed.csv", "ValueDICE, understudy, one run"),
    "sac": ("a gradient step of plain SAC; f and other losses come on top", "sac-speed.csv", "understudy, one run"),
    "daequil": ("a round", "on-q-speed.csv", "DAeQuIL, understudy, one run"),
}
"""What was timed: of an algorithm, or of the RL player that several share; the file, and the row of it."""


def make_tables(results: Path) -> dict[str, str]:
    """All tables by name."""
    docs = results.absolute().parent
    return {
        "needs": needs_table(),
        "measured": measured_table(results),
        "cost": cost_table(results),
        "failures": failures_table(docs),
        "algorithms": algorithms_table(),
        "api": api_table(docs),
    }


def ordered() -> list[type[Algorithm]]:
    """The algorithms by their moments, as in the taxonomy, then by name."""
    return sorted(ALGORITHMS.values(), key=lambda cls: (ORDER.index(cls.card.moments), cls.card.name))


def page(cls: type[Algorithm], anchor: str = "") -> str:
    """A link to an algorithm's page."""
    return f"[`{cls.card.name}`]({cls.card.name}.md{anchor})"


def needs_table() -> str:
    """What each algorithm needs, promises and uses up, from its card and its default settings."""
    rows = []
    for cls in ordered():
        card = cls.card
        extra = (" with action values" if card.values else "") + (", next states" if card.next_states else "")
        rows.append([page(cls), ", ".join(card.needs) + extra, ", ".join(card.actions), card.bound, use(cls)])
    return markdown(["algorithm", "needs", "actions", "gap", "default run uses up"], rows)


def use(cls: type[Algorithm]) -> str:
    """Environment steps or episodes of a run with default settings."""
    learner = cls()
    if steps := getattr(learner, "round_steps", None):
        return f"{learner.rounds * steps:,} environment steps"
    if learner.episodes_per_round:
        asked = "; the expert is asked at all or some of their states" if "expert" in cls.card.needs else ""
        return f"{(learner.rounds - 1) * learner.episodes_per_round} episodes{asked}"
    return "no environment steps"


def measured_table(results: Path) -> str:
    """Returns of the preset "quick", and every stored file with rows of the algorithm."""
    quick = quick_returns(results)
    files = stored(results)
    rows = []
    for cls in ordered():
        name = cls.card.name
        cells = [quick.get((name, task), "") for task in TASKS]
        rows.append([page(cls), *cells, ", ".join(families(files.get(name, []))) or "none"])
    return markdown(["algorithm", *TASKS, "all stored results"], rows)


def quick_returns(results: Path) -> dict[tuple[str, str], str]:
    """Return of the preset "quick" by algorithm and task: mean and lowest seed, and the expert's."""
    found = {}
    for row in read(results / "quick.csv"):
        found[row["algorithm"], row["env"]] = shown(float(row["return"]), float(row["lowest"]), row["expert_return"])
    for path in sorted(results.glob("*.csv")):
        returned: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for row in read(path):
            if row.get("preset") == QUICK and row.get("x_kind") in ("returned", "final") and row.get("expert_return"):
                returned.setdefault((row["algorithm"], row["env"]), []).append(row)
        for key, rows in returned.items():
            values = [float(row["mean_return"]) for row in rows]
            found.setdefault(key, shown(sum(values) / len(values), min(values), rows[0]["expert_return"]))
    return found


def shown(mean: float, lowest: float, expert: str) -> str:
    return f"{mean:.0f} ({lowest:.0f}), expert {float(expert):.0f}"


def stored(results: Path) -> dict[str, list[str]]:
    """Files with rows of each algorithm."""
    found: dict[str, list[str]] = {}
    for path in sorted(results.glob("*.csv")):
        names = {row.get("algorithm") or re.split("[:, ]", row.get("learner", ""))[0] for row in read(path)}
        for name in names & {*ALGORITHMS}:
            found.setdefault(name, []).append(path.name)
    return found


def families(files: Sequence[str]) -> Iterator[str]:
    """A link to each file; of several whose names begin alike, one link to the list of all files."""
    stems = [file.removesuffix(".csv").split("-") for file in files]
    for _, group in groupby(sorted(stems), lambda words: words[0]):
        own = list(group)
        shared = [words[0] for words in takewhile(lambda words: len({*words}) == 1, zip(*own, strict=False))]
        several = f"[{'-'.join(shared)} ({len(own)})](results/README.md#how-each-file-was-made)"
        yield several if len(own) > 1 else f"[{'-'.join(own[0])}](results/{'-'.join(own[0])}.csv)"


def cost_table(results: Path) -> str:
    """Milliseconds on two CPU cores and on a GPU, with the algorithms that they are of."""
    rows = []
    for name, (what, file, label) in COSTS.items():
        timed = {row["machine"]: value(row) for row in read(results / file) if row["what"] == label}
        classes = [cls for cls in ordered() if name in (cls.card.name, *cls.__dataclass_fields__)]
        links = ", ".join(map(page, classes))
        rows.append([links, what, timed.get(CORES, ""), timed.get(GPU, ""), f"[{file}](results/{file})"])
    return markdown(["algorithms", "what", "ms on two CPU cores", "ms on one H200", "data"], rows)


def value(row: Mapping[str, str]) -> str:
    return next(f"{float(row[column]):.3g}" for column in ("ms_a_step", "ms_a_round") if column in row)


def failures_table(docs: Path) -> str:
    """The first two known failures, from the section "What can go wrong" of the algorithm's page."""
    rows = []
    for cls in ordered():
        file = docs / f"{cls.card.name}.md"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        section = re.search(r"^## What can go wrong\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        named = re.findall(r"^- \*\*(.+?)\.?\*\*", section[1], re.MULTILINE) if section else []
        rows.append([page(cls, "#what-can-go-wrong"), " ".join(f"{words}." for words in named[:2])])
    return markdown(["algorithm", "failures to know first"], rows)


def algorithms_table() -> str:
    """Every algorithm with its place and the first sentence of its docstring."""
    rows = []
    for cls in ordered():
        sentence = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        rows.append([page(cls), cls.card.title, cls.card.moments, cls.card.solver, sentence])
    return markdown(["name", "algorithm", "moments", "solver", "in a sentence"], rows)


def api_table(docs: Path) -> str:
    """Every public name, by page."""
    return markdown(["page", "names"], [[link, ", ".join(names)] for link, names in api_pages(docs)])


def api_pages(docs: Path) -> Iterator[tuple[str, list[str]]]:
    for file in sorted(docs.glob("api-*.md")):
        text = file.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        names = [f"[`{name}`]({file.name}#us{name.lower()})" for name in api_reference.names(text)]
        yield f"[{title}]({file.name})", names
