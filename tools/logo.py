"""Draw the logo: two masks of a theatre, the learner's in front of the expert's.

python tools/logo.py            write docs/site/static/logo.svg (masks and name) and icon.svg (masks alone)
python tools/logo.py --check    exit with status 1 if a file is out of date

The outline is the expert's mask, the filled one the learner's: the same face, a step aside. The colours are legible on
white and on black, so one file serves both. Letters are paths, so no font is needed where the logo is shown.
"""

import sys
from pathlib import Path

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

FOLDER = Path(__file__).parents[1] / "docs" / "site" / "static"
EXPERT, LEARNER, HOLE = "#e07a1f", "#2f7fc1", "#ffffff"
SIZE, SHIFT = 40, 12
"""Width of a mask, and how far the expert's stands to the side, in units of the drawing."""
LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}


def face() -> str:
    """The outline of a mask with its top left corner at 0: straight above, round below."""
    half, edge = SIZE / 2, SIZE * 0.12
    top = f"M0,{edge:g} Q{half:g},{-edge:g} {SIZE},{edge:g}"
    return f"{top} V{half:g} A{half:g},{SIZE * 0.62:g} 0 0 1 0,{half:g} Z"


def eye(x: float, y: float) -> str:
    """A half moon."""
    r = SIZE * 0.13
    return f'<path d="M{x - r:g},{y:g} A{r:g},{r:g} 0 0 1 {x + r:g},{y:g} Z" fill="{HOLE}"/>'


def mouth() -> str:
    """A smile: the space between two arcs."""
    left, right, y = SIZE * 0.24, SIZE * 0.76, SIZE * 0.62
    deep, flat = (right - left) / 2, (right - left) * 0.7
    lower = f"A{deep:g},{deep:g} 0 0 0 {right:g},{y:g}"
    return f'<path d="M{left:g},{y:g} {lower} A{flat:g},{flat:g} 0 0 1 {left:g},{y:g} Z" fill="{HOLE}"/>'


def masks() -> str:
    """Both masks in a box of 56 x 52."""
    behind = f'transform="translate({SHIFT + 2} 4)" fill="none" stroke="{EXPERT}" stroke-width="3"'
    holes = eye(SIZE * 0.29, SIZE * 0.4) + eye(SIZE * 0.71, SIZE * 0.4) + mouth()
    front = f'<g transform="translate(2 4)"><path d="{face()}" fill="{LEARNER}"/>{holes}</g>'
    return f'<path d="{face()}" {behind}/>\n{front}'


def outline(word: str) -> str:
    """A word as a path, in the font that Matplotlib brings."""
    path = TextPath((0, 0), word, size=30, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    steps = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        closed = code == Outline.CLOSEPOLY
        steps.append("Z" if closed else LETTERS[code] + " ".join(f"{x:.1f}" for x in points))
    return "".join(steps)


def svg(width: int, *parts: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 52" role="img">'
    return "\n".join([head, "<title>understudy</title>", *parts, "</svg>", ""])


def icon() -> str:
    return svg(56, masks())


def logo() -> str:
    name = f'<path transform="translate(66 37) scale(1 -1)" d="{outline("understudy")}" fill="{LEARNER}"/>'
    return svg(264, masks(), name)


FILES = {FOLDER / "logo.svg": logo, FOLDER / "icon.svg": icon}


def main() -> None:
    stale = [file for file, draw in FILES.items() if not file.is_file() or file.read_text(encoding="utf-8") != draw()]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file} is out of date: run `make tables`")
        raise SystemExit(1 if stale else 0)
    for file in stale:
        file.write_text(FILES[file](), encoding="utf-8")
        print(f"wrote {file}")


if __name__ == "__main__":
    main()
