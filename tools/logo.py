"""Draw the logo: two masks of a theatre, an understudy behind the one that plays.

python tools/logo.py            write docs/site/static/logo.svg (masks and name) and icon.svg (masks alone)
python tools/logo.py --check    exit with status 1 if a file is out of date

The front mask is the learner, the outline behind it the expert: the same face, a step aside. Its colours are legible on
white and on black, so one file serves both.
"""

import sys
from pathlib import Path

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Path_
from matplotlib.textpath import TextPath

FOLDER = Path(__file__).parents[1] / "docs" / "site" / "static"
EXPERT, LEARNER, HOLE = "#e07a1f", "#2f7fc1", "#ffffff"
SIZE, SHIFT = 40, 12
"""Width of a mask, and how far the expert's stands to the side, in units of the drawing."""


def face(size: float) -> str:
    """The outline of a mask with its top left corner at 0: straight above, round below."""
    half = size / 2
    return f"M0,{size * 0.12:g} Q{half:g},{-size * 0.12:g} {size:g},{size * 0.12:g} V{half:g} A{half:g},{size * 0.62:g} 0 0 1 0,{half:g} Z"


def eye(x: float, y: float, size: float) -> str:
    """A closed half moon."""
    r = size * 0.13
    return f'<path d="M{x - r:g},{y:g} A{r:g},{r:g} 0 0 1 {x + r:g},{y:g} Z" fill="{HOLE}"/>'


def mouth(size: float) -> str:
    """A smile: the space between two arcs."""
    left, right, y = size * 0.24, size * 0.76, size * 0.62
    width = right - left
    arcs = f"M{left:g},{y:g} A{width / 2:g},{width / 2:g} 0 0 0 {right:g},{y:g} A{width * 0.7:g},{width * 0.7:g} 0 0 1 {left:g},{y:g} Z"
    return f'<path d="{arcs}" fill="{HOLE}"/>'


def masks() -> str:
    """Both masks in a box of 56 x 50."""
    line = f'<path d="{face(SIZE)}" transform="translate({SHIFT + 2} 4)" fill="none" stroke="{EXPERT}" stroke-width="3"/>'
    holes = eye(SIZE * 0.29, SIZE * 0.4, SIZE) + eye(SIZE * 0.71, SIZE * 0.4, SIZE) + mouth(SIZE)
    return f'{line}\n<g transform="translate(2 4)"><path d="{face(SIZE)}" fill="{LEARNER}"/>{holes}</g>'


def icon() -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 56 52" role="img"><title>understudy</title>\n{masks()}\n</svg>\n'


def logo() -> str:
    name = f'<path transform="translate(66 37) scale(1 -1)" d="{outline("understudy")}" fill="{LEARNER}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 264 52" role="img"><title>understudy</title>\n{masks()}\n{name}\n</svg>\n'


def outline(word: str) -> str:
    """A word as a path, so that it needs no font where it is shown. The font is Matplotlib's own."""
    path = TextPath((0, 0), word, size=30, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    letters = {Path_.MOVETO: "M", Path_.LINETO: "L", Path_.CURVE3: "Q", Path_.CURVE4: "C"}
    steps = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        steps.append("Z" if code == Path_.CLOSEPOLY else letters[code] + " ".join(f"{x:.1f}" for x in points))
    return "".join(steps)


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
