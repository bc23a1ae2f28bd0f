"""What is interrupted: every format of every verb, through the command line's own entry and the code that writes.

`convert` runs whole. Of the others what comes after the arithmetic runs, which a process that is forked for every
fault cannot afford; `test_faults.py` also kills whole commands.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wdport.base.errors import error_of
from wdport.cli.documents import give, require_document
from wdport.cli.execute import group
from wdport.cli.main import main
from wdport.files import report_formats
from wdport.files.animation import video_target, write_video
from wdport.files.atomic import track_write, write_text
from wdport.files.figure import draw_samples, figure_target
from wdport.files.model_target import Target, file_target
from wdport.files.outputs import writable
from wdport.files.samples_writer import write_samples
from wdport.files.sealed_archive import sealed_archive
from wdport.parity.reports import write_reports
from wdport.recording.errors import Refusal
from wdport.recording.recording_writer import RecordingWriter as _Writer
from wdport.uses.cli.generate import FORMATS, document_of, write_texts
from wdport.uses.exporting.artifact import write_artifact
from wdport.uses.generation.api import Generated
from wdport.uses.sampling.output import _reporting_interruption
from wdport.uses.sampling.parts import Parts

PARTS, EACH = 3, 40
"""Of the samples."""


@dataclass(frozen=True)
class Job:
    """``act`` writes ``outputs`` into a folder, of the ``edition`` "old" or "new", and gives the exit code."""

    name: str
    outputs: tuple[str, ...]
    act: Callable[[Path, str], int]
    paired: bool = False


def prepare(folder: Path) -> None:
    """What the jobs read, in a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "tests.faults.inputs", str(folder)], check=True)


def _converted(suffix: str) -> Job:
    name = f"out.{suffix}"

    def act(folder: Path, edition: str) -> int:
        settings = (folder.parent / "settings").read_text().split()
        checkpoint = str(folder.parent / f"{edition}.ckpt")
        return main(["convert", checkpoint, "-o", str(folder / name), "--force", *settings])

    return Job(f"convert {suffix}", (name, f"{name}.wdport.json"), act, True)


def _written(verb: str, outputs: tuple[str, ...], write: Callable[[Path, str], None]) -> Job:
    """A job whose arithmetic is left out: ``write`` in the place of the verb."""

    def act(folder: Path, edition: str) -> int:
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, group, "invoke", group.invoke)
            group.invoke = lambda _: write(folder, edition)  # type: ignore[method-assign, assignment]
            return main([verb])

    return Job(verb, outputs, act)


def _values(edition: str, index: int = 0) -> np.ndarray:
    return np.random.default_rng([edition == "new", index]).normal(size=(EACH, 24, 3)).astype(np.float32)


def _sampled(suffix: str) -> Job:
    name = f"out.{suffix}"

    def write(folder: Path, edition: str) -> None:
        path = folder / name
        writable(path, {}, force=True)
        with Parts(path, {"edition": edition}, anew=True) as parts, _reporting_interruption(parts, PARTS * EACH, path):
            for index in range(parts.done // EACH, PARTS):
                parts.save(index * EACH, {"series": _values(edition, index)})
            write_samples(Target(writable(path), suffix), PARTS * EACH, parts.blocks)
            parts.remove()

    return _written(f"sample {suffix}", (name,), write)


def _recorded(folder: Path, edition: str) -> None:
    """As `wdport record` and the recorder do."""
    path = folder / "out.run.npz"
    writable(path, {}, force=True)
    try:
        with track_write(path):
            try:
                writer = _Writer(str(path))
                try:
                    for index in range(4):
                        writer.put(_values(edition, index))
                    writer.close({"edition": edition})
                except BaseException:
                    writer.abandon()
                    raise
            except OSError as error:
                raise Refusal(5, str(path), f"could not be written ({error.strerror})", "check its folder") from error
    except Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal


def _reported(folder: Path, edition: str) -> None:
    verdict = pickle.loads((folder.parent / f"{edition}.verdict").read_bytes())
    write_reports(verdict, **{kind: folder / f"out.{kind}" for kind in report_formats.FORMATS})


def _exported(folder: Path, edition: str) -> None:
    target = Target(writable(folder / "out.stablehlo"), "stablehlo")
    write_artifact(target, {"edition": edition}, {"denoiser": bytes(20_000)}, [_values(edition, i) for i in range(4)])


def _encoded(folder: Path, edition: str) -> None:
    with sealed_archive(writable(folder / "out.npz")) as file:
        np.savez(file, latents=_values(edition), logvar=_values(edition, 1))


def _decoded(suffix: str) -> Job:
    name = f"out.{suffix}"

    def write(folder: Path, edition: str) -> None:
        frames = np.uint8(np.abs(_values(edition) * 80.0) % 256.0).reshape(1, 20, 12, 12, 1)
        write_video(video_target(folder / name, {}, True), frames.shape, np.split(frames, 4, axis=1), 16.0)

    return _written(f"decode {suffix}", (name,), write)


def _generated(suffix: str) -> Job:
    name = f"out.{suffix}"

    def write(folder: Path, edition: str) -> None:
        tokens = [np.int32(np.abs(each).ravel() * 1000.0) for each in _values(edition)]
        found = Generated(tokens, [each % 7 for each in tokens], np.ones(EACH), 3)
        settings = {"mask": 0, "end": None, "forbid": [], "steps": None, "length": 0, "block_length": None,
                    "threshold": 0.95, "edit": None, "temperature": 0.0, "top_k": None, "top_p": None, "seed": 0,
                    "dtype": "float32"}  # fmt: skip
        target = file_target(folder / name, FORMATS, {}, True)
        write_texts(target, document_of("model.keras", None, found, settings, 0.0))

    return _written(f"generate {suffix}", (name,), write)


def _evaluated(folder: Path, edition: str) -> None:
    """The document and the page, whose content is as long as a real one's."""
    document = require_document(str(folder / "out.json"), {}, {}, True)
    page = writable(folder / "out.html", {}, True, "--html", "html")
    scores = {"scores": _values(edition).ravel()[:500].tolist()}
    give("evaluation", lambda: scores, document, lambda: edition)
    write_text(page, f"<!DOCTYPE html>{edition * 50_000}")


def _drawn(folder: Path, edition: str) -> None:
    draw_samples(figure_target(folder / "out.png", force=True), _values(edition)[:4])


def _suggested(folder: Path, edition: str) -> None:
    write_text(writable(folder / "out.yaml", {}, True), f"layout: {edition}\n" * 200)


REPORTS = tuple(f"out.{kind}" for kind in report_formats.FORMATS)
JOBS = {
    job.name: job
    for job in (
        *map(_converted, ("keras", "weights.h5", "safetensors")),
        *map(_sampled, ("npz", "npy", "csv", "parquet")),
        _written("record", ("out.run.npz",), _recorded),
        _written("verify reports", REPORTS, _reported),
        _written("export", ("out.stablehlo",), _exported),
        _written("encode", ("out.npz",), _encoded),
        *map(_decoded, ("npy", "gif", "mp4")),
        *map(_generated, ("txt", "json", "npz")),
        _written("sample --plot", ("out.png",), _drawn),
        _written("map suggest", ("out.yaml",), _suggested),
        _written("evaluate", ("out.json", "out.html"), _evaluated),
    )
}


def states(job: Job, folder: Path, contents: dict[str, dict[str, bytes]]) -> Iterator[str]:
    """ "old", "new", "none" or "partial" for each output."""
    for name in job.outputs:
        path = folder / name
        held = path.read_bytes() if path.exists() else None
        yield "none" if held is None else next((e for e, known in contents.items() if known[name] == held), "partial")
