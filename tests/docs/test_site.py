"""The documentation site: every page has its place, every public name its example, and the build needs nobody else."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import api_reference
import docs_site
import docstrings
import site_sections
import understudy as us

DOCS = docs_site.DOCS
API_PAGES = sorted(DOCS.glob("api-*.md"))
NEEDED_AT_VIEW_TIME = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


def described():
    return {name: text for page in API_PAGES for name, text in api_reference.sections(page.read_text("utf-8")).items()}


def test_every_public_name_is_on_one_api_page():
    listed = [name for page in API_PAGES for name in api_reference.names(page.read_text(encoding="utf-8"))]
    assert sorted(listed) == sorted(us.__all__), "write a section `## `us.NAME`` with an example in a docs/api-*.md"
    assert sorted(page.stem for page in API_PAGES) == sorted(site_sections.API)


@pytest.mark.parametrize("name", us.__all__)
def test_every_public_name_has_an_example_that_uses_it(name):
    """tests/docs/test_docs.py runs the examples."""
    examples = re.findall(r"```python\n(.*?)```", described()[name], re.DOTALL)
    assert any(re.search(rf"\bus\.{name}\b", example) for example in examples)


@pytest.mark.parametrize("name", [name for name in us.__all__ if name not in ("ALGORITHMS", "__version__")])
def test_every_public_name_is_typed_and_documented(name):
    thing = getattr(us, name)
    assert api_reference.described(name, thing)
    assert (thing.__doc__ or "").strip()


def test_every_page_is_in_the_navigation():
    found = site_sections.sections(page.stem for page in DOCS.glob("*.md"))
    reached = {name for names in found.values() for name in names} | {*us.ALGORITHMS, *site_sections.API, "index"}
    assert {page.stem for page in DOCS.glob("*.md")} <= reached
    inside = {name for names in found.values() for name in names} - {
        *(Path(n).stem for n in docs_site.OUTSIDE.values())
    }
    assert all((DOCS / f"{name}.md").is_file() for name in inside)


def test_a_new_page_is_a_guide_and_a_new_algorithm_has_its_place():
    found = site_sections.sections(["bc", "juggling"])
    assert "juggling" in found["Guides"]
    assert all("bc" not in names for names in found.values())
    assert "\nbc\n" in site_sections.toctrees("algorithms", found)


def test_links_out_of_docs_lead_to_copies_and_pages_show_their_titles(tmp_path):
    docs_site.stage(tmp_path / "source")
    text = (tmp_path / "source" / "bc.md").read_text(encoding="utf-8")
    assert "[benchmarks/bc.py](files/benchmarks/bc.py)" in text
    assert (tmp_path / "source" / "files" / "benchmarks" / "bc.py").is_file()
    assert "[](theory.md)" in text
    assert '<div class="game"><svg' in text.replace("\n", "")
    assert "[design.md]" not in (tmp_path / "source" / "contributing.md").read_text(encoding="utf-8")
    theory = (tmp_path / "source" / "theory.md").read_text(encoding="utf-8")
    assert '<a href="theory-explorer.html">The interactive page</a>' in theory


def test_docstrings_keep_code_tables_and_stars():
    text = [
        "Say *this* for `name`s in all_of it.",
        "",
        "a(b)   one",
        "c(d)   two",
        "",
        "Args:",
        "    x: A `y`,",
        "        long.",
    ]
    assert docstrings.converted(text) == [
        *(r"Say \*this\* for ``name``\ s in all\_of it.", ""),
        *("::", "", "    a(b)   one", "    c(d)   two", ""),
        *("**Parameters**", "", "- ``x``: A ``y``,", "  long.", ""),
    ]
    assert docstrings.readable(None, "", "", None, None, "(x: dict = <factory>)", None)[0] == "(x: dict = ...)"


class Page(HTMLParser):
    """What a page loads, what it links to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {value for value in (given.get("id"), given.get("name")) if value}
        if (attribute := NEEDED_AT_VIEW_TIME.get(tag)) and given.get(attribute):
            self.loaded.append(given[attribute])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    assert docs_site.build(out) == 0, "Sphinx found something: run `make docs`"
    return out / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_the_site_has_a_page_for_every_algorithm_and_a_search_index(site):
    assert all((site / f"{name}.html").is_file() for name in us.ALGORITHMS)
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert all(f'"{name}"' in index for name in (*us.ALGORITHMS, "api-training", "choose"))


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site, pages):
    assert not [url for page in pages.values() for url in page.loaded if re.match(r"(https?:)?//", url)]
    for path in (*site.rglob("*.css"), *site.rglob("*.svg")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(@import\s|url\(\s*[\"']?)[\"']?(https?:)?//", text), path
    scripts = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.js"))
    assert not re.search(r"(import\(|fetch\(|\.src\s*=)\s*[\"'](https?:)?//", scripts)


@pytest.mark.slow
def test_every_link_and_anchor_of_the_site_leads_somewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), f"{path.name}: {link}"
            assert not anchor or target not in pages or anchor in pages[target].anchors, f"{path.name}: {link}"


@pytest.mark.slow
def test_the_site_has_the_interactive_page_and_links_to_it(site, pages):
    assert all("theory-explorer.html" in pages[site / name].links for name in ("theory.html", "index.html"))
    assert "understudy theory --page" in (site / "theory-explorer.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_formulas_are_mathml(site):
    text = (site / "taxonomy.html").read_text(encoding="utf-8")
    assert "<math" in text
    assert "U_1" not in re.sub(r"<[^>]*>", "", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["[gone](nowhere.md)", "[gone](#nowhere)", "$\\nosuchcommand$"], ids=["page", "anchor", "math"]
)
def test_what_leads_nowhere_fails_the_build(tmp_path, text):
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text(f"# Title\n\n{text}\n", encoding="utf-8")
    assert docs_site.sphinx(source, tmp_path / "html", tmp_path / "trees") != 0
