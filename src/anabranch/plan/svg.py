"""The picture of a plan as SVG, for notebooks: a box per node, the answer on top, streams at the bottom."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

from anabranch.plan.explain import Node, Picture

CHARACTER = 6.6  # the width of one, in a monospaced font of 11 px
LINE = 15
PADDING = 8
GAP = 24
WRAP = 44
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='11'"
STYLES = {"title": "font-weight='bold' fill='#1b2733'", "detail": "fill='#4a5a6a'", "measured": "fill='#0a6e4f'"}


@dataclass(slots=True)
class _Box:
    """A node with its lines of text, and where it is: the middle of its upper edge."""

    lines: list[tuple[str, str]]
    below: list[_Box]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(text) for _, text in self.lines) * CHARACTER + 2 * PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PADDING

    @property
    def spread(self) -> float:
        """The width of it and all that stands below."""
        beneath = sum(box.spread for box in self.below) + GAP * max(len(self.below) - 1, 0)
        return max(self.width, beneath)


def as_svg(picture: Picture) -> str:
    """The picture as one `<svg>` element."""
    root = _box(picture.root)
    _place(root, root.spread / 2 + GAP, GAP)
    boxes = list(_all(root))
    width = max(root.spread, len(picture.exchange) * CHARACTER) + 2 * GAP
    height = max(box.y + box.height for box in boxes) + 2 * GAP
    body = [_edge(box, other) for box in boxes for other in box.below]
    body += [_drawn(box) for box in boxes]
    body.append(f"<text x='{GAP}' y='{height - PADDING:.0f}' {FONT} fill='#4a5a6a'>{escape(picture.exchange)}</text>")
    size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' role='img' {size}>{''.join(body)}</svg>"


def _box(node: Node) -> _Box:
    lines: list[tuple[str, str]] = []
    for kind, texts in (("title", (node.title,)), ("detail", node.details), ("measured", node.measured)):
        lines += [(kind, line) for text in texts for line in textwrap.wrap(text, WRAP) or [""]]
    return _Box(lines, [_box(below) for below in node.below])


def _place(box: _Box, x: float, y: float) -> None:
    box.x, box.y = x, y
    left = x - (sum(other.spread for other in box.below) + GAP * max(len(box.below) - 1, 0)) / 2
    for other in box.below:
        _place(other, left + other.spread / 2, y + box.height + GAP)
        left += other.spread + GAP


def _all(box: _Box) -> list[_Box]:
    return [box, *(found for other in box.below for found in _all(other))]


def _edge(box: _Box, other: _Box) -> str:
    start, end = box.y + box.height, other.y
    middle = (start + end) / 2
    path = f"M {other.x:.1f} {end:.1f} C {other.x:.1f} {middle:.1f}, {box.x:.1f} {middle:.1f}, {box.x:.1f} {start:.1f}"
    return f"<path d='{path}' fill='none' stroke='#9aa7b4'/>"


def _drawn(box: _Box) -> str:
    left = box.x - box.width / 2
    frame = f"x='{left:.1f}' y='{box.y:.1f}' width='{box.width:.1f}' height='{box.height:.1f}' rx='5'"
    drawn = [f"<rect {frame} fill='#f6f8fa' stroke='#9aa7b4'/>"]
    for n, (kind, text) in enumerate(box.lines):
        place = f"x='{left + PADDING:.1f}' y='{box.y + PADDING + (n + 0.8) * LINE:.1f}'"
        drawn.append(f"<text {place} {FONT} {STYLES[kind]}>{escape(text)}</text>")
    return "".join(drawn)
