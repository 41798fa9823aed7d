"""The chart of warm capacity over time, as SVG, and as PNG where rsvg-convert is installed. Pure except for `write`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 960, 480
LEFT, RIGHT, TOP, BOTTOM = 68, 28, 84, 60
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
_TEXT, _GRID, _MUTED = "#24292f", "#d8dee4", "#57606a"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: hours and percent, and how it is drawn."""

    name: str
    points: Points
    colour: str
    width: float = 2.0


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over hours and percent, with a dashed line at one percentage."""

    title: str
    subtitle: str
    lines: Sequence[Line]
    hours: int
    mark: float
    mark_text: str

    def svg(self) -> str:
        """Return the chart as SVG."""
        parts = [*self._frame(), *self._axes(), *self._curves(), *self._legend(), "</svg>"]
        return "\n".join(parts) + "\n"

    def _x(self, hours: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(hours, self.hours) / self.hours

    def _frame(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="{_FONT}" role="img">'
        )
        yield f"<title>{self.title}</title>"
        yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        yield _label(LEFT, 30, self.title, size=17, weight="bold")
        yield _label(LEFT, 52, self.subtitle, size=12, colour=_MUTED)

    def _axes(self) -> Iterator[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for percent in range(0, 101, 20):
            y = _y(percent)
            yield _stroke((LEFT, y), (right, y), _GRID, 1)
            yield _label(LEFT - 10, y + 4, f"{percent} %", anchor="end", colour=_MUTED)
        for hour in range(0, self.hours + 1, _step(self.hours)):
            x = self._x(hour)
            yield _stroke((x, bottom), (x, bottom + 5), _MUTED, 1)
            yield _label(x, bottom + 21, f"{hour}", anchor="middle", colour=_MUTED)
        middle = (LEFT + right) / 2
        text = "hours since the image was changed"
        yield _label(middle, HEIGHT - 14, text, anchor="middle", colour=_MUTED)
        y = _y(self.mark)
        yield _stroke((LEFT, y), (right, y), _MUTED, 1, dash="5 4")
        yield _label(right - 4, y + 15, self.mark_text, anchor="end", size=11, colour=_MUTED)

    def _curves(self) -> Iterator[str]:
        for line in self.lines:
            points = " ".join(f"{self._x(at):.1f},{_y(percent):.1f}" for at, percent in line.points)
            yield (
                f'<polyline points="{points}" fill="none" stroke="{line.colour}" '
                f'stroke-width="{line.width}" stroke-linejoin="round"/>'
            )
            if line.points:
                at, percent = line.points[-1]
                yield f'<circle cx="{self._x(at):.1f}" cy="{_y(percent):.1f}" r="3.5" fill="{line.colour}"/>'

    def _legend(self) -> Iterator[str]:
        x = float(LEFT)
        for line in self.lines:
            yield _stroke((x, 70), (x + 24, 70), line.colour, 3)
            yield _label(x + 31, 74, line.name)
            x += 31 + 7.2 * len(line.name) + 24


def _y(percent: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / 100


def _step(hours: int) -> int:
    return max(1, hours // 10)


def _stroke(
    begin: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    width: float,
    *,
    dash: str = "",
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"{dashes}/>'
    )


def _label(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    colour: str = _TEXT,
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{text}</text>'
    )


def write(chart: Chart, folder: Path, name: str) -> Mapping[str, Path]:
    """Write the chart as SVG and, with rsvg-convert, as PNG; return the files by format."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"svg": folder / f"{name}.svg"}
    files["svg"].write_text(chart.svg())
    converter = shutil.which("rsvg-convert")
    if converter is None:
        print(f"{name}.png is not updated: rsvg-convert (librsvg2-bin) is missing", file=sys.stderr)
        return files
    files["png"] = folder / f"{name}.png"
    size = ("--zoom", "2")
    subprocess.run(
        [converter, *size, "--output", str(files["png"]), str(files["svg"])],
        check=True,
        timeout=60,
    )
    return files
