"""Show texts after every step of a generation: a `.gif`, or a `.txt` with a page for every step."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wdport.files.atomic import replacing, write_text
from wdport.files.figure import DRAWN, FRAMES_PER_SECOND, any_script
from wdport.files.target import Target, file_target

FORMATS: Final = (".gif", ".txt")
TEXTS: Final = 6
"""Texts that are shown: the first ones."""

MOST: Final = 120
"""Frames."""

WIDTH: Final = 80
LINES: Final = 40
_PAGE: Final = "\f"
_CALM: Final = 4
"""Frames per second of texts with few steps."""


def frames_target(path: Path, force: bool, inputs: Mapping[str, Path]) -> Target:
    """Return the target of an animation; raises an error if it cannot be written."""
    return file_target(path, FORMATS, inputs, force, "--animate", {".gif": DRAWN}, "animation")


def pages(frames: Sequence[Sequence[str]]) -> list[str]:
    """One page for every step from ``frames`` of texts, which may differ in number: a text that is done stays."""
    length = max(map(len, frames))
    chosen = [round(index * (length - 1) / max(1, min(length, MOST) - 1)) for index in range(min(length, MOST))]
    return [_page([texts[min(step, len(texts) - 1)] for texts in frames]) for step in chosen]


def write_frames(target: Target, frames: Sequence[Sequence[str]]) -> None:
    """Write the pages of these texts: drawn one after another, pausing on the last, or separated by form feeds."""
    drawn = pages(frames)
    if target.format == "txt":
        write_text(target.output, f"\n{_PAGE}".join(drawn) + "\n")
        return
    from matplotlib.animation import PillowWriter
    from matplotlib.figure import Figure

    lines = max(page.count("\n") + 1 for page in drawn)
    figure = Figure(figsize=(8.0, 0.25 * lines + 0.4))
    speed = FRAMES_PER_SECOND if len(drawn) > 5 * _CALM else _CALM
    writer = PillowWriter(fps=speed)
    with replacing(target.output) as (temporary,), writer.saving(figure, temporary, dpi=80), any_script():
        for page in (*drawn, *[drawn[-1]] * (2 * speed)):
            figure.clear()
            text = page.replace("$", r"\$")
            figure.text(0.02, 0.97, text, family="monospace", size=10, va="top", linespacing=1.4)
            writer.grab_frame()


def _page(texts: Sequence[str]) -> str:
    lines = [line for text in texts for line in (*_wrapped(text), "")]
    return "\n".join(lines[:LINES]).rstrip("\n")


def _wrapped(text: str) -> list[str]:
    return [line for part in text.split("\n") for line in (textwrap.wrap(part, WIDTH) or [""])]
