"""What makes the project findable agrees with itself: one version, a citation, a changelog, templates."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import understudy as us

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_has_one_source():
    assert "version" in PROJECT["project"]["dynamic"]
    source = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert f'__version__ = "{us.__version__}"' in source


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert released[0][0] == us.__version__
    assert released == sorted(released, key=lambda entry: entry[1], reverse=True)


def test_the_citation_names_the_paper_and_the_software():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license", "type"} <= citation.keys()
    assert citation["version"] == us.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    released = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{us.__version__}] - {citation['date-released']}" in released
    paper = citation["preferred-citation"]
    assert (paper["type"], paper["year"], paper["start"], paper["end"]) == ("conference-paper", 2021, 10022, 10032)
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert authors in readme
    assert f"title={{{paper['title']}}}" in readme


@pytest.mark.parametrize("file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda file: file.name)
def test_a_template_is_a_form(file):
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    if file.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in form["body"])


def test_every_extra_of_the_site_is_pinned():
    pins = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    for requirement in PROJECT["project"]["optional-dependencies"]["docs"]:
        name = re.split(r"[<>=]", requirement)[0].lower()
        assert name in pins
        assert metadata.version(name)
