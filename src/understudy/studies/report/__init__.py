"""The report of a study: an HTML page, figures for papers, Markdown and CSV tables.

`learners` groups records by task and learner; the other modules show them. Published numbers are an argument
(`studies.published`). The page needs no JavaScript library and no network.
"""

from understudy.studies.report.clips import clip
from understudy.studies.report.figures import draw
from understudy.studies.report.html import render
from understudy.studies.report.table import COLUMNS, markdown, result_rows

__all__ = ["COLUMNS", "clip", "draw", "markdown", "render", "result_rows"]
