"""Settings of Sphinx. `tools/docs_site.py` prepares the pages and calls Sphinx: run `make docs`."""

import logging
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src")]

import docstrings  # noqa: E402
import mathml  # noqa: E402
from understudy.core.version import __version__  # noqa: E402

logging.getLogger("jax").setLevel(logging.WARNING)  # it says where its cache is

project = "understudy"
author = "The understudy authors"
project_copyright = "the understudy authors, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["files"]

# The headings' anchors are those of GitHub, so a link works there and here.
myst_heading_anchors = 5
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True
# Code on the pages is mostly output and formulas; Python and shell blocks say what they are.
highlight_language = "none"
copybutton_exclude = ".linenos, .gp"

# A type is written as in the code, with the module left out.
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "__init__, __new__, __weakref__"}
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"understudy {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_logo = str(Path(__file__).parent / "static" / "logo.svg")
html_theme_options = {"sidebar_hide_name": True}
html_favicon = str(Path(__file__).parent / "static" / "icon.svg")
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"


def setup(app):
    mathml.setup(app)
    docstrings.setup(app)
