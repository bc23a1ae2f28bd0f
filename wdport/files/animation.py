"""Write a video part by part, or texts after every step of a generation: `.npy`, `.gif`, `.mp4` or `.txt`.

Parts are written as they come, so memory does not depend on the number of frames.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from wdport.base.errors import InternalError, UsageError
from wdport.files.atomic import replacing, whole_file, write_text
from wdport.files.figure import DRAWN, FRAMES_PER_SECOND, any_script
from wdport.files.model_target import Needed, Target, file_target
from wdport.models.interface import Array

TEXT_FORMATS: Final = (".gif", ".txt")
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
    return file_target(path, TEXT_FORMATS, inputs, force, "--animate", {".gif": DRAWN}, "animation")


def pages(frames: Sequence[Sequence[str]]) -> list[str]:
    """One page for every step from ``frames`` of texts, which may differ in number: a text that is done stays."""
    length = max(map(len, frames))
    # Evenly spaced, with the first and the last page among them.
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
            # matplotlib would read text between two dollar signs as a formula.
            text = page.replace("$", r"\$")
            figure.text(0.02, 0.97, text, family="monospace", size=10, va="top", linespacing=1.4)
            writer.grab_frame()


def _page(texts: Sequence[str]) -> str:
    lines = [line for text in texts for line in (*_wrapped(text), "")]
    return "\n".join(lines[:LINES]).rstrip("\n")


def _wrapped(text: str) -> list[str]:
    return [line for part in text.split("\n") for line in (textwrap.wrap(part, WIDTH) or [""])]


FORMATS: Final = (".npy", ".gif", ".mp4")
BYTES: Final = (".gif", ".mp4")
"""Formats of bytes, which hold one video of grey or RGB frames."""

NEEDS: Final = {".gif": Needed("PIL", "Pillow", "video"), ".mp4": Needed("av", "PyAV", "video")}


def video_target(path: Path, inputs: Mapping[str, Path], force: bool) -> Target:
    """Return the target of a decoded video; raises an error if it cannot be written."""
    return file_target(path, FORMATS, inputs, force, needs=NEEDS)


def require_frames(path: Path, shape: tuple[int, ...]) -> None:
    """Raise :class:`UsageError` unless a file of this format holds videos of this shape, (B, T, H, W, C)."""
    if path.suffix not in BYTES:
        return
    batch, _, height, width, channels = shape
    if batch != 1:
        raise UsageError(path, f"holds one video, not {batch}", "write a .npy file")
    if channels not in (1, 3):
        raise UsageError(path, f"cannot show {channels} channels", "write a .npy file")
    # H.264 with yuv420p stores colours at half the resolution, so both sides must be even.
    if path.suffix == ".mp4" and (height % 2 or width % 2):
        raise UsageError(path, f"cannot have an odd size, {height} x {width}", "write a .npy or .gif file")


def write_video(target: Target, shape: tuple[int, ...], parts: Iterable[Array], fps: float) -> int:
    """Write ``parts`` along the time axis of videos (B, T, H, W, C), ``shape`` in total; return the size of the file.

    ``.npy`` has the whole array as it is; ``.gif`` and ``.mp4`` (H.264) show the only video's bytes at ``fps`` frames
    per second, a GIF at :func:`gif_speed`. Raises :class:`MachineError` if writing fails, and leaves no temporary file.
    """
    if target.format == "npy":
        with whole_file(target.output) as file:
            _npy(file, shape, parts)
    else:
        with replacing(target.output) as (temporary,):
            {"gif": _gif, "mp4": _mp4}[target.format](temporary, _frames(parts), fps)
    return target.path.stat().st_size


def _npy(file: IO[bytes], shape: tuple[int, ...], parts: Iterable[Array]) -> None:
    written = 0
    for part in parts:
        if not written:
            header = {"descr": np.lib.format.dtype_to_descr(part.dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            start = file.tell()
        for index, video in enumerate(part):
            frame = video[0].nbytes
            # A part has some frames of every video, but a video's frames are adjacent in the file.
            file.seek(start + (index * shape[1] + written) * frame)
            file.write(np.ascontiguousarray(video).data)
        written += part.shape[1]
    if written != shape[1]:
        raise InternalError("video", f"has {written} frames where {shape[1]} were announced", "report it")


def _frames(parts: Iterable[Array]) -> Iterator[Array]:
    """The frames (H, W, C) of the only video, as RGB."""
    for part in parts:
        for frame in part[0]:
            yield np.repeat(frame, 3, axis=-1) if frame.shape[-1] == 1 else frame


def gif_speed(fps: float) -> float:
    """The frames per second of a GIF: it shows a frame for a whole number of hundredths of a second."""
    # Browsers show a frame for at least two, and play a shorter one slowly.
    return 100 / max(2, round(100 / fps))


def _gif(path: Path, frames: Iterator[Array], fps: float) -> None:
    from PIL import Image

    images = (Image.fromarray(frame) for frame in frames)
    first = next(images)
    duration = round(1000 / gif_speed(fps))
    first.save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _mp4(path: Path, frames: Iterator[Array], fps: float) -> None:
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = None
        for frame in frames:
            if stream is None:
                # FFmpeg takes a rate as a fraction; 1001 keeps those of NTSC, such as 30000/1001, exact.
                stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
                stream.height, stream.width = frame.shape[:2]
                stream.pix_fmt, stream.options = "yuv420p", {"crf": "16"}
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        # Flush the frames that the encoder holds back.
        container.mux(stream.encode())
