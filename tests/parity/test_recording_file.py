"""The arrays of a recording: what the recorder writes, and what it refers to as part of another array."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.parity.test_bad_recordings import made
from wdport.parity.recording_file import RecordingFile
from wdport.recording.recording_writer import RecordingWriter as _Writer


def test_every_reference_gives_the_bits_that_were_put(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal(size=(3, 5))
    draw[0] = 0.0, -0.0, np.nan, np.inf, -1e300
    relu = np.where(draw > 0, draw, 0.0)
    with np.errstate(over="ignore"):
        single, narrow = draw.astype(np.float32), relu.astype(np.float32)
    derived = [draw, relu, single, narrow, single.astype(np.float64), narrow.astype(np.float64)]
    # Of another shape, dtype or sign of zero: not made of those above.
    others = [relu.reshape(5, 3), np.minimum(draw, 0.0), -relu, np.maximum(single, 0).astype(np.float16), np.arange(4)]
    others += [np.where(others[4] > 1, others[4], 0)]
    writer = _Writer(str(tmp_path / "run.npz"))
    references = [writer.put(array) for array in (*derived, *others)]
    writer.close(made()[0])
    file = RecordingFile(tmp_path / "run.npz")
    cache: dict[str, np.ndarray] = {}
    for array, reference in zip((*derived, *others), references, strict=True):
        read = file.array(reference, cache)
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes()), reference
    file.close()
    assert references[: len(derived)] == ["0", "0:p", "0:s", "0:ps", "0:d", "0:pd"]
    assert references[len(derived) :] == [str(number) for number in range(1, 1 + len(others))]
