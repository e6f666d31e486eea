"""Build the documentation site: `make docs`.

python tools/docs_site.py [OUT]             build it into OUT (default: out/site); open OUT/html/index.html
python tools/docs_site.py --serve [OUT]     build it and show it on http://localhost:8000

The pages are Markdown for GitHub. They are copied to OUT/source, where each gets its place in the navigation
(`site_sections`), links that leave docs/ are turned to copies of their targets, and the API pages get signatures.
Sphinx then builds OUT/html. Every warning of Sphinx is an error, such as a link that leads nowhere.
"""

import argparse
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import api_reference
import site_sections
from understudy.paper.theory.explorer.page import write_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = {
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    ROOT / "README.md": "index.md",
}
"""Pages of the site that are not in docs, and their names there. README.md's place is the front page."""
BUILT = {ROOT / "src" / "understudy" / "paper" / "theory" / "explorer" / "page.py": "theory-explorer.html"}
"""Pages that Sphinx does not make, by the module that writes them: a link to the module leads to its page."""
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<file>images/games/\w+\.svg)\)$", re.MULTILINE)


def main() -> int:
    """Prepare and build; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "out" / "site")
    parser.add_argument("--serve", action="store_true", help="show it on localhost")
    parser.add_argument("--port", type=int, default=8000, help="port of --serve")
    arguments = parser.parse_args()
    started = time.monotonic()
    status = build(arguments.out)
    if status:
        return status
    html = arguments.out / "html"
    print(f"{html / 'index.html'}: built in {time.monotonic() - started:.0f} s")
    return serve(html, arguments.port) if arguments.serve else 0


def build(out: Path) -> int:
    """Build the site in `out`; return Sphinx's exit status."""
    source, html = out / "source", out / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    stage(source)
    status = sphinx(source, html, out / "doctrees")
    if not status:
        for name in BUILT.values():
            write_page(html / name)
    return status


def sphinx(source: Path, html: Path, trees: Path) -> int:
    """Build prepared pages; return the exit status, which is not 0 if there is a warning."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    folders = ["-c", str(DOCS / "site"), "-d", str(trees), str(source), str(html)]
    return subprocess.run([*command, "--fresh-env", *folders], env={**os.environ, "JAX_PLATFORMS": "cpu"}).returncode


def stage(source: Path) -> None:
    """Write the pages as Sphinx reads them into `source`."""
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("site"))
    sections = site_sections.sections(page.stem for page in DOCS.glob("*.md"))
    for page in sorted(DOCS.rglob("*.md")):
        write(page, source / page.relative_to(DOCS), source, sections)
    for page, name in OUTSIDE.items():
        if name != "index.md":
            write(page, source / name, source, sections)


def write(page: Path, target: Path, source: Path, sections: site_sections.Sections) -> None:
    """One page, prepared."""
    text = page.read_text(encoding="utf-8")
    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(lambda link: relinked(link, page, target, source), part) for part in parts[::2]]
    text = FIGURE.sub(lambda figure: drawn(figure["file"]), "".join(parts))
    text = re.sub(r"(?<=\d) ± (?=\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", text)  # one line in a narrow column
    name = target.relative_to(source).with_suffix("").as_posix()
    text = api_reference.with_signatures(text) if name.startswith("api-") else text
    target.write_text(f"{text}\n{site_sections.toctrees(name, sections)}", encoding="utf-8")


def relinked(link: re.Match[str], page: Path, target: Path, source: Path) -> str:
    """A link of `page` as it must be on the staged page `target`. A file outside docs is copied to source/files."""
    name, mark, anchor = link["target"].partition("#")
    if not name or ":" in name:
        return link[0]
    file = (page.parent / name).resolve()
    if file in BUILT:
        return f'<a href="{Path(os.path.relpath(source / BUILT[file], target.parent)).as_posix()}">{link["text"]}</a>'
    if file in OUTSIDE:
        staged = source / OUTSIDE[file]
    elif file.is_relative_to(DOCS):
        staged = source / file.relative_to(DOCS)
    elif file.is_dir():
        return link["text"]  # a folder of the repository, which the site does not have
    else:
        staged = source / "files" / file.relative_to(ROOT)
        if file.is_file():
            staged.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, staged)
    if file == ROOT / "README.md":
        mark = anchor = ""
    # A page that is named by its file gets its title instead: Sphinx fills in an empty text.
    text = "" if re.fullmatch(r"`?[\w/-]+\.md`?", link["text"]) else link["text"]
    return f"[{text}]({Path(os.path.relpath(staged, target.parent)).as_posix()}{mark}{anchor})"


def drawn(file: str) -> str:
    """A drawing inside the page, where it follows the page's light and dark colours."""
    svg = re.sub(r"<style>.*?</style>", "", (DOCS / file).read_text(encoding="utf-8"), flags=re.DOTALL)
    return f'<div class="game">\n{"".join(line.strip() for line in svg.splitlines())}\n</div>'


def serve(html: Path, port: int) -> int:
    """Show the site until Ctrl-C; return the exit status."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=html)
    try:
        made = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        print(f"error: port {port} cannot be used ({error.strerror}): pass another one, --port N", file=sys.stderr)
        return 2
    with made as server:
        print(f"http://localhost:{server.server_port} (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
