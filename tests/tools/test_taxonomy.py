"""The taxonomy of README.md and docs/index.md is the one that the cards state."""

import re

import pytest

import taxonomy


@pytest.mark.parametrize("page", taxonomy.PAGES, ids=lambda page: page.name)
def test_the_page_is_fresh(page):
    assert taxonomy.updated(page) == page.read_text(encoding="utf-8")


def test_every_algorithm_is_in_the_tables_once():
    listed = re.findall(r"`(\w+)`", taxonomy.readme_table())
    assert sorted(listed) == sorted(taxonomy.ALGORITHMS)
    assert sorted(re.findall(r"\[(\w+)\.md\]", taxonomy.index_table())) == sorted(taxonomy.ALGORITHMS)
