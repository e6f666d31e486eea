"""Formulas of the documentation as MathML, written when the site is built.

Browsers draw MathML themselves, so the pages need no script, no fonts and no network. docutils, which Sphinx needs
anyway, has the converter. A formula that it cannot read is an error of the build.
"""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

log = logging.getLogger(__name__)


def setup(app: Any) -> None:
    """Register the renderer "mathml" with Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))


def inline(translator: Any, node: nodes.math) -> None:
    """A formula within a line."""
    translator.body.append(converted(node))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    translator.body.append(f'<div class="math">{converted(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def converted(node: nodes.Element, as_block: bool = False) -> str:
    """MathML; a warning, which fails the build, names the formula that cannot be read."""
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        log.warning("formula cannot be converted to MathML (%s): %s", error, node.astext(), location=node)
        return ""
