"""Draw the picture of README.md, docs/picture.svg: a network in PyTorch, its port, and how far the two differ.

The network is README's. `python examples/picture.py` ports it, verifies the port and replaces the picture.
"""

from __future__ import annotations

import os
import re
import sys
from html import escape
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
LEFT, RIGHT, GAP = 372, 466, 10
"""Widths of the two upper cards, and the space between cards."""

UPPER, LOWER = 240, 156
"""Heights of the cards."""

LOWEST, HIGHEST = -17, -9
"""Powers of ten of the axis of the differences."""

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1c2733 }
.code { font: 10px ui-monospace, Menlo, Consolas, monospace; white-space: pre }
.head { font-weight: 600 }
.small { font-size: 10px; fill: #5a6876 }
.card { fill: #f6f8fa; stroke: #d0d7de }
.rule { stroke: #c3ccd5 }
.bound { stroke: #c2352b; stroke-dasharray: 5 3 }
.bad { fill: #c2352b }
.line { fill: none; stroke: #1769aa; stroke-width: 1.5 }
.dot { fill: #1769aa }
"""


def class_in(source: str, name: str) -> list[str]:
    """The lines of a class, without decorators."""
    found = re.search(rf"^class {name}\b.*?(?=\n\n\n|\Z)", source, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[0].splitlines()


def card(left: float, top: float, size: tuple[float, float], title: str) -> str:
    return (f'<rect class="card" x="{left + 0.5}" y="{top + 0.5}" width="{size[0] - 1}" height="{size[1] - 1}" rx="6"/>'
            f'<text class="head" x="{left + 12}" y="{top + 21}">{escape(title)}</text>')  # fmt: skip


def code(left: float, lines: list[str]) -> str:
    rows = (f'<text class="code" x="{left + 12}" y="{46 + 14 * row}" xml:space="preserve">{escape(line)}</text>'
            for row, line in enumerate(lines))  # fmt: skip
    return "".join(rows)


def chart(top: float, width: float, errors: list[tuple[str, float]], bound: float) -> str:
    """The largest difference of every layer's outputs, in the order of the computation."""
    begin, end, high, low = 52, width - 14, top + 40, top + LOWER - 28

    def y(value: float) -> float:
        place = (max(log10(max(value, 1e-300)), LOWEST) - LOWEST) / (HIGHEST - LOWEST)
        return round(low - place * (low - high), 1)

    parts = []
    for power in range(LOWEST, HIGHEST + 1, 4):
        at = y(10.0**power)
        parts.append(f'<line class="rule" x1="{begin}" y1="{at}" x2="{end}" y2="{at}"/>')
        parts.append(f'<text class="small" x="{begin - 6}" y="{at + 3}" text-anchor="end">1e{power}</text>')
    parts.append(f'<line class="bound" x1="{begin}" y1="{y(bound)}" x2="{end}" y2="{y(bound)}"/>')
    parts.append(f'<text class="small bad" x="{end}" y="{y(bound) + 13}" text-anchor="end">fails above 1e-10</text>')
    step = (end - begin) / len(errors)
    points = [(round(begin + step * (index + 0.5), 1), y(error)) for index, (_, error) in enumerate(errors)]
    parts.append(f'<polyline class="line" points="{" ".join(f"{x},{at}" for x, at in points)}"/>')
    for (x, at), (name, _) in zip(points, errors, strict=True):
        parts.append(f'<circle class="dot" cx="{x}" cy="{at}" r="3"/>')
        parts.append(f'<text class="small" x="{x}" y="{low + 17}" text-anchor="middle">{escape(name)}</text>')
    return "".join(parts)


def main() -> None:
    import torch

    import wdport

    blocks = re.findall(
        r"^```python\n# digits\.py\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        Path("digits.py").write_text(blocks[0])
        import digits  # type: ignore[import-not-found]

        torch.manual_seed(0)
        torch.save(digits.Digits().state_dict(), "digits.pt")
        port = wdport.write_port("digits:Digits", ["image: b 1 28 28"])
        Path("digits_keras.py").write_text(port.source)
        Path("digits_keras.yaml").write_text(port.table)
        wdport.convert("digits.pt", "digits.keras", mapping="digits_keras.yaml")
        verdict = wdport.verify("digits.pt", "digits.keras", mapping="digits_keras.yaml")
        assert port.proved
        assert verdict
        errors = [(tap.reference, tap.cumulative) for tap in verdict.taps]
        os.chdir(ROOT)
    width, height, right = LEFT + GAP + RIGHT, UPPER + GAP + LOWER, LEFT + GAP
    body = [
        card(0, 0, (LEFT, UPPER), "PyTorch"), code(0, class_in(blocks[0], "Block")),
        card(right, 0, (RIGHT, UPPER), "Keras, written by wdport port"), code(right, class_in(port.source, "Block")),
        card(0, UPPER + GAP, (width, LOWER), "Largest relative difference after every layer, in float64"),
        chart(UPPER + GAP, width, errors, verdict.bound("logic")),
    ]  # fmt: skip
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img"><style>{STYLE}</style>\n' + "\n".join(body) + "\n</svg>\n")  # fmt: skip
    (ROOT / "docs/picture.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
