"""A study's cells for people to look at: a page, figures for papers, tables for READMEs and spreadsheets."""

from understudy.studies.report.clips import clip
from understudy.studies.report.figures import draw
from understudy.studies.report.html import render
from understudy.studies.report.table import COLUMNS, markdown, rows

__all__ = ["COLUMNS", "clip", "draw", "markdown", "render", "rows"]
