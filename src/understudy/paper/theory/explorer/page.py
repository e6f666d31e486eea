"""The page: one HTML file with its data, style and scripts inside. It opens without a server or a network."""

from importlib import resources
from pathlib import Path

from understudy.core.storage import atomic_file
from understudy.paper.theory.explorer.rounds import game_data
from understudy.paper.theory.explorer.tables import tables
from understudy.studies.report.markup import document, report_style

TITLE = "Theory you can play with"
GENERATOR = '<meta name="generator" content="understudy theory --page">'
START = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{GENERATOR}'
"""The first characters of the file, by which a later page may replace it."""
SCRIPTS = ("chart.js", "bounds.js", "game.js")


def render() -> str:
    """The page as HTML. All numbers are computed here, by `tabular`."""
    data = {"bounds": tables(), "game": game_data()}
    style = report_style() + _asset("page.css")
    script = '"use strict";\n' + "\n".join(map(_asset, SCRIPTS))
    return document(TITLE, GENERATOR, [_asset("body.html")], data, style, script)


def write_page(path: Path) -> None:
    """Compute the tables and write the page."""
    with atomic_file(path) as partial:
        partial.write_text(render(), encoding="utf-8")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
