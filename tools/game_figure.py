"""The game that an algorithm plays, drawn from its card: which samples the payoff compares, and how each player moves.

`tools/algorithm_pages.py` writes one figure for each algorithm to docs/images/games. Its colours follow the reader's
system; on the site they follow the page (docs/site/static/site.css).
"""

import textwrap
from html import escape

from taxonomy import SAMPLES
from understudy.game import Card
from understudy.game.algorithm import Moments

PAYOFFS: dict[Moments, str] = {"reward": "U₁", "off-Q": "U₂", "on-Q": "U₃"}
NO_REGRET, RESPONDS = "no-regret: small steps", "best response"
MOVES = {"primal": (NO_REGRET, RESPONDS), "dual": (RESPONDS, NO_REGRET), "-": ("", "")}
"""How the policy and f move, by the card's solver, which names the player that runs no-regret."""
WIDTH, HEIGHT, BOX = 480, 262, 84
LEFT, RIGHT, TOP, BOTTOM = (8, 196), (296, 176), 20, 166
STYLE = """<style>
.line { stroke: #3b4252; stroke-width: 1.6; fill: none }
.tip { fill: #3b4252 }
.text { fill: #1f2430; font: 13.5px Helvetica, Arial, sans-serif }
.head { font-weight: 600 }
.soft { fill: #5b6478 }
.learner { fill: #dcebf8; stroke: #2f7fc1; stroke-width: 1.6 }
.expert { fill: #fbe7d3; stroke: #e07a1f; stroke-width: 1.6 }
.payoff { fill: #ececf1; stroke: #3b4252; stroke-width: 1.6 }
@media (prefers-color-scheme: dark) {
  .line { stroke: #b6bfd0 } .tip { fill: #b6bfd0 } .text { fill: #eceff4 } .soft { fill: #b6bfd0 }
  .learner { fill: #16334d } .expert { fill: #4a2b0d } .payoff { fill: #2b303b; stroke: #b6bfd0 }
}
</style>"""


def figure(card: Card) -> str:
    """The SVG of an algorithm's game."""
    learner, expert = SAMPLES[card.moments]
    policy, f = players(card)
    edge, top, bottom = LEFT[0] + LEFT[1], TOP + BOX - 18, BOTTOM + 18
    parts = [
        box(LEFT, TOP, "learner", "learner's sample", textwrap.wrap(learner, 26)),
        box(LEFT, BOTTOM, "expert", "expert's sample", textwrap.wrap(expert, 26)),
        box(RIGHT, TOP, "learner", "policy π", policy),
        box(RIGHT, BOTTOM, "expert", "moment function f", f, dashed=card.fixed),
        arrow(edge, top, 232, 117),
        arrow(edge, bottom, 232, 145),
        arrow(262, 117, RIGHT[0], top),
        line(262, 145, RIGHT[0], bottom, dashed=True) if card.fixed else arrow(262, 145, RIGHT[0], bottom),
        '<circle class="payoff" cx="247" cy="131" r="22"/>',
        text(247, 136, PAYOFFS[card.moments], "head", middle=True),
        arrow(RIGHT[0], TOP + 22, edge, TOP + 22),
        text(250, TOP + 16, "acts", "soft", middle=True),
    ]
    if "expert" in card.needs:
        parts += [arrow(106, TOP + BOX, 106, BOTTOM), text(114, 138, "asks the expert", "soft")]
    title = f"<title>{escape(alt(card))}</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, title, STYLE, *parts, "</svg>", ""])


def players(card: Card) -> tuple[list[str], list[str]]:
    """What the boxes of the policy and of f say."""
    policy, f = MOVES[card.solver]
    return ["minimises", *filter(None, [policy])], (["fixed: it never moves"] if card.fixed else ["maximises", f])


def alt(card: Card) -> str:
    """The figure in words."""
    learner, expert = SAMPLES[card.moments]
    policy, f = (", ".join(words) for words in players(card))
    payoff = f"the payoff {PAYOFFS[card.moments]} compares {learner} with {expert}"
    return f"The game of {card.name}: {payoff}. Policy π: {policy}. Moment function f: {f}."


def box(column: tuple[int, int], y: int, kind: str, title: str, about: list[str], dashed: bool = False) -> str:
    """A box with a title and a few lines."""
    x, width = column
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    start = y + BOX / 2 - 9 * len(about) + 4
    words = [text(x + width / 2, start, title, "head", middle=True)]
    words += [text(x + width / 2, start + 19 * (i + 1), row, "", middle=True) for i, row in enumerate(about)]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{BOX}" rx="9"{dash}/>' + "".join(words)


def text(x: float, y: float, words: str, kind: str, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{f"text {kind}".strip()}" x="{x:g}" y="{y:g}"{anchor}>{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path class="line" d="M{x:g},{y:g} L{to_x:g},{to_y:g}"{dash}/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line with a tip at its end."""
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    dx, dy = (to_x - x) / length, (to_y - y) / length
    corners = [(to_x - 9 * dx - 4.5 * side * dy, to_y - 9 * dy + 4.5 * side * dx) for side in (1, -1)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in [(to_x, to_y), *corners])
    return line(x, y, to_x - 7 * dx, to_y - 7 * dy) + f'<polygon class="tip" points="{points}"/>'
