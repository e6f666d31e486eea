"""Charts as inline SVG: curves with bands, published curves dotted, and traces of single seeds that can be toggled.

The drawing stretches with the page, its strokes do not, and axis labels are HTML text, so that a chart is readable on
screens of any width and on paper.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from understudy.core.statistics import Interval, Sample, interval
from understudy.studies.report.formatting import bracket, number, plus_minus

WIDTH, HEIGHT = 1000.0, 500.0
COLOURS = 6
"""Number of colours in page.css."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A curve or set of points: one entry of the legend."""

    name: str
    colour: int
    samples: dict[float, Sample]
    traces: Sequence[Sequence[Point]] = ()
    published: bool = False
    bars: bool = False
    """Draw intervals as bars at the points, not as a band."""
    shift: float = 0.0
    """Horizontal offset of its points, so that bars do not overlap."""
    joined: bool = True
    """Join the points by a line."""
    flat: bool = False
    """Draw its only sample, which every x has, as a dashed line over the whole width, with its interval at the end."""
    marked: bool = True
    """Draw a dot at each point."""
    intervals: Mapping[float, Interval] | None = None
    """x → interval, where it is not Student's t of the sample."""
    note: str = ""
    """A remark in the legend, after the name."""

    def interval_at(self, x: float) -> Interval:
        """The 95% interval of the mean at one of its x."""
        return interval(self.samples[x]) if self.intervals is None else self.intervals[x]

    def text_at(self, x: float) -> str:
        """The numbers of a point: mean ± standard error, or the value with its own interval."""
        if self.intervals is None:
            return plus_minus(self.samples[x])
        return f"{number(self.samples[x].mean)} {bracket(self.intervals[x])}"


@dataclass(frozen=True)
class Chart:
    """Series over the same axes. With `categories`, x is the index of a category."""

    title: str
    x_title: str
    series: Sequence[Series]
    expert: float | None = None
    categories: Sequence[str] = ()
    y_title: str = "Return"
    over: str = "seeds"
    """What a point's mean and standard error are over."""
    statistic: str = ""
    """What the number of a point is, if it is no mean."""
    faint: bool = False
    """Draw bands lighter, because many of them coincide."""
    mark: float | None = None
    """The x of the expert, a vertical line."""
    x: tuple[float, float] = field(init=False)
    y: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        xs = [x for one in self.series for x in one.samples]
        ys = [mean for one in self.series for mean in _required_y(one)] + ([] if self.expert is None else [self.expert])
        left, right = (-0.5, len(self.categories) - 0.5) if self.categories else (min(xs), max(xs))
        if not self.categories:
            left = min(left, 0.0) if left < 0.25 * right else left
            margin = 0.02 * (right - left) or max(abs(right), 1.0) * 0.5
            left, right = left - margin, right + margin
        low, high = min(ys), max(ys)
        beyond = (1.5 if all(one.bars for one in self.series) else 0.5) * (high - low)
        ends = [end for one in self.series for end in _interval_ends(one)]
        low, high = max(min([low, *ends]), low - beyond), min(max([high, *ends]), high + beyond)
        margin = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
        object.__setattr__(self, "x", (left, right))
        object.__setattr__(self, "y", (low - margin, high + margin))

    def html(self, index: int) -> str:
        """The figure with its legend and toggles. `index` is unique on the page."""
        seeds = any(len(one.traces) > 1 for one in self.series)
        toggle = '<button type="button" class="toggle" data-seeds aria-pressed="false">each seed</button>'
        keys = "".join(self._key(number_, one) for number_, one in enumerate(self.series))
        expert = '<span class="key plain expert"><i></i>the expert</span>' if self.has_expert else ""
        ticks_y = ticks(*self.y)
        labels_y = "".join(f'<span style="bottom:{self._height(y):.2f}%">{short_number(y)}</span>' for y in ticks_y)
        gutter = max(len(short_number(y)) for y in ticks_y)
        labels_x = "".join(f'<span style="left:{left:.2f}%">{escape(text)}</span>' for left, text in self._labels_x())
        return (
            f'<figure class="chart{" faint" if self.faint else ""}" data-chart="{index}">'
            f"<figcaption>{escape(self.title)}</figcaption>"
            f'<div class="legend">{keys}{expert}{toggle if seeds else ""}</div>'
            f'<div class="plot" style="--gutter:{gutter}ch"><div class="y" aria-hidden="true">{labels_y}</div>'
            f'<div class="area">{self._svg(index, ticks_y)}<div class="cursor" hidden></div></div>'
            f'<div class="x" aria-hidden="true">{labels_x}</div></div>'
            f'<p class="axis">{escape(self.x_title)}</p><output class="readout" aria-live="off"></output></figure>'
        )

    def data(self) -> dict[str, Any]:
        """The numbers that page.js shows under the pointer."""
        return {
            "x": self.x,
            "unit": self.x_title,
            "over": self.over,
            "statistic": self.statistic or f"mean ± standard error over {self.over}",
            "categories": list(self.categories),
            "series": [
                {
                    "name": one.name,
                    "points": [[x, one.text_at(x), sample.size] for x, sample in sorted(one.samples.items())],
                }
                for one in self.series
            ],
        }

    @property
    def has_expert(self) -> bool:
        """Whether the expert is drawn."""
        return self.expert is not None or self.mark is not None

    def _svg(self, index: int, ticks_y: Sequence[float]) -> str:
        grid = "".join(f'<path class="grid" d="M0 {self._y(y)}H{WIDTH:.0f}"/>' for y in ticks_y)
        expert = "" if self.expert is None else f'<path class="expert" d="M0 {self._y(self.expert)}H{WIDTH:.0f}"/>'
        if self.mark is not None:
            expert += f'<path class="expert" d="{self._path([(self.mark, y) for y in self.y])}"/>'
        drawn = "".join(self._series(number_, one) for number_, one in enumerate(self.series))
        return (
            f'<svg role="img" aria-labelledby="t{index} d{index}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
            f'preserveAspectRatio="none"><title id="t{index}">{escape(self.title)}</title>'
            f'<desc id="d{index}">{escape(self._description())}</desc>{grid}{drawn}{expert}</svg>'
        )

    def _description(self) -> str:
        parts = [f"{self.y_title} against {self.x_title}."]
        for one in self.series:
            points = sorted(one.samples.items())
            (first, start), (last, end) = points[0], points[-1]
            text = f"{one.name}: {number(start.mean)}{'' if one.flat else f' at {self._name_x(first)}'}"
            if len(points) > 1 and not one.flat:
                text += f", {number(end.mean)} at {self._name_x(last)}"
            parts.append(text + ".")
        if self.expert is not None:
            parts.append(f"The expert: {number(self.expert)}.")
        return " ".join(parts)

    def _series(self, index: int, one: Series) -> str:
        if one.flat:
            return self._level(index, one)
        points, traces = sorted(one.samples.items()), one.traces
        at = [(x + one.shift, sample) for x, sample in points]
        mean = [(x, sample.mean) for x, sample in at]
        parts = []
        if one.bars or len(points) == 1:
            ends = [one.interval_at(x) for x, _ in points]
            parts += [self._bar(x, sample, end, one.published) for (x, sample), end in zip(at, ends, strict=True)]
        else:
            around = [(x, s.mean - s.standard_error, s.mean + s.standard_error) for x, s in at]
            wide = [(x + one.shift, *one.interval_at(x)[1:]) for x, _ in points]
            parts += [] if one.published else [self._band("wide", wide), self._band("narrow", around)]
        seeds = "".join(
            f'<path class="line" d="{self._path(trace)}"/>'
            if len(trace) > 1
            else f'<path class="dot" d="{self._path(trace)}h0"/>'
            for trace in ([(x + one.shift, y) for x, y in trace] for trace in traces)
        )
        if len(mean) > 1 and one.joined:
            parts.append(f'<path class="mean" d="{self._path(mean)}"/>')
        dots = "".join(f"{self._path([point])}h0" for point in mean) if one.marked else ""
        parts.append(f'<path class="dot" d="{dots}"/><g class="seeds">{seeds}</g>')
        return f'<g class="series {_colour(one)}" data-series="{index}">{"".join(parts)}</g>'

    def _level(self, index: int, one: Series) -> str:
        """A dashed line, its interval as a bar near the right edge, and a line for each seed."""
        levels = [number_ for number_, other in enumerate(self.series) if other.flat]
        order, (left, right) = levels.index(index), self.x
        sample = next(iter(one.samples.values()))
        bar = self._bar(right - (0.015 + 0.02 * order) * (right - left), sample, interval(sample), one.published)
        line = (
            f'<path class="mean" stroke-dashoffset="{8 * order}" d="{self._path([(x, sample.mean) for x in self.x])}"/>'
        )
        ends = [[(x, trace[0][1]) for x in self.x] for trace in one.traces]
        seeds = "".join(f'<path class="line" d="{self._path(trace)}"/>' for trace in ends)
        inner = f'{bar}{line}<path class="dot" d=""/><g class="seeds">{seeds}</g>'
        return f'<g class="series {_colour(one)}" data-series="{index}">{inner}</g>'

    def _bar(self, x: float, sample: Sample, ends: Interval, published: bool) -> str:
        _, low, high = ends
        error = sample.standard_error
        svg = ""
        if math.isfinite(low) and not published:
            svg += f'<path class="bar" d="{self._path([(x, low), (x, high)])}"/>'
        if math.isfinite(error):
            svg += f'<path class="bar thick" d="{self._path([(x, sample.mean - error), (x, sample.mean + error)])}"/>'
        return svg

    def _band(self, kind: str, ends: Sequence[tuple[float, float, float]]) -> str:
        known = [end for end in ends if math.isfinite(end[1])]
        if len(known) < 2:
            return ""
        around = [(x, high) for x, _, high in known] + [(x, low) for x, low, _ in reversed(known)]
        return f'<path class="band {kind}" d="{self._path(around)}Z"/>'

    def _key(self, index: int, one: Series) -> str:
        return (
            f'<button type="button" class="key {_colour(one)}" data-series="{index}" aria-pressed="true"><i></i>'
            f"{escape(one.name)}{f' <small>{escape(one.note)}</small>' if one.note else ''}</button>"
        )

    def _labels_x(self) -> list[tuple[float, str]]:
        left, right = self.x
        named = (
            list(enumerate(self.categories)) if self.categories else [(x, short_number(x)) for x in ticks(left, right)]
        )
        return [(100 * (x - left) / (right - left), text) for x, text in named]

    def _name_x(self, x: float) -> str:
        return self.categories[int(x)] if self.categories else f"{x:,.0f}"

    def _path(self, points: Sequence[Point]) -> str:
        left, right = self.x
        return "M" + "L".join(f"{WIDTH * (x - left) / (right - left):.1f} {self._y(y)}" for x, y in points)

    def _y(self, y: float) -> str:
        return f"{HEIGHT * (1 - self._height(y) / 100):.1f}"

    def _height(self, y: float) -> float:
        """Height above the bottom in percent, clipped far outside the drawing."""
        low, high = self.y
        return min(max(100 * (y - low) / (high - low), -1000.0), 1000.0)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in a range, in steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def short_number(value: float) -> str:
    """The label of a tick: 250k, 1.5M, −1,000, 0.2."""
    size = abs(value)
    if size >= 1e6:
        text = f"{value / 1e6:g}M"
    elif size >= 1e4:
        text = f"{value / 1e3:g}k"
    else:
        text = f"{value:,.0f}" if size >= 10 or value == int(value) else f"{value:.3g}"
    return text.replace("-", "−")


def _colour(one: Series) -> str:
    repeat = one.colour // COLOURS
    dashes = f" dashes{min(repeat, 2)}" if repeat else ""
    kind = " published" if one.published else " level" if one.flat else ""
    return f"c{one.colour % COLOURS}{kind}{dashes}"


def _required_y(one: Series) -> list[float]:
    """Values that the y axis must show: means ± standard errors, and every seed."""
    values = [y for trace in one.traces for _, y in trace]
    for sample in one.samples.values():
        error = sample.standard_error if math.isfinite(sample.standard_error) else 0.0
        values += [sample.mean - error, sample.mean + error]
    return values


def _interval_ends(one: Series) -> list[float]:
    """Ends of the intervals, which the y axis shows unless they are too far away, as with two seeds."""
    intervals = [] if one.published else [one.interval_at(x) for x in one.samples]
    return [end for bounds in intervals for end in bounds[1:] if math.isfinite(end)]
