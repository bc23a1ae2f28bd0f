"""Wrong arguments of the public functions that no other test gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.bad.ground import ground
from tests.make import SETTINGS
from wdport.base.errors import WdportError
from wdport.conversion.converted_optimizer import save_optimizer
from wdport.conversion.stream_writer import Storage
from wdport.files.animation import require_frames
from wdport.files.inputs import InputFiles
from wdport.files.model_target import Target, choose_target
from wdport.files.outputs import OutputPath
from wdport.uses.data.units import read_units
from wdport.uses.training.training_data import arrays_of

TABLE = Path(wdport.__file__).parents[1] / "mappings" / "waveletdiff.yaml"


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good.ckpt", "good.keras"):
        shutil.copy(ground() / name, tmp_path)
    (tmp_path / "names.json").write_text("{}")


def convert(output: str = "a.keras", **options: object) -> None:
    wdport.convert("good.ckpt", output, values=SETTINGS, **options)  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a shipped table": (lambda: wdport.load_model("good.keras", mapping=TABLE),
                        "mapping: is not a table of your own model"),
    "an unknown optimizer": (lambda: convert(with_optimizer=True, optimizer="lion"), "is 'lion'; choose one of adam"),
    "an unknown dtype": (lambda: convert("a.safetensors", dtype="int8"), "unknown dtype 'int8'; use one of"),
    "shards of a file": (lambda: Storage(max_shard_size=1 << 30).streams(Target(OutputPath(Path("a.keras")), "keras")),
                         "requires a folder"),
    "a folder that is a file": (lambda: convert("names.json", max_shard_size=1 << 30), "names.json: is not a folder"),
    "statistics and data": (lambda: read_units("a.npz", "a.npy", None),
                            "cannot be combined with data, from which it is computed"),
    "two videos in a file": (lambda: require_frames(Path("a.mp4"), (2, 1, 4, 4, 3)), "holds one video, not 2"),
    "two channels": (lambda: require_frames(Path("a.mp4"), (1, 1, 4, 4, 2)), "cannot show 2 channels"),
    "an odd height": (lambda: require_frames(Path("a.mp4"), (1, 1, 5, 4, 3)), "cannot have an odd size, 5 x 4"),
    "no name for a file": (lambda: choose_target(InputFiles(checkpoint="/"), None, False),
                           "is a directory; give a checkpoint file"),
    "values in a text": (lambda: wdport.convert("a.pt", values="num_heads=8"),  # type: ignore[arg-type]
                         "values: is a str; give a dict of texts by name"),
    "values in a list": (lambda: wdport.verify("a.pt", "a.keras", values=["num_heads=8"]),  # type: ignore[arg-type]
                         "values: is a list; give a dict of texts by name"),
    "no name of an optimizer's file": (
        lambda: save_optimizer(None, None, "a.bin", like="b"),  # type: ignore[arg-type]
        "a.bin: is not a name for an optimizer; end it in .optimizer.safetensors",
    ),
    "all samples for validation": (lambda: wdport.train(None, "good.npy", "run", validation_split=1.0),
                                   "validation_split: invalid value 1.0; give a number from 0 and below 1"),
    "samples of text": (lambda: arrays_of(np.array(["a"]), "float32", None, None, {"x": True}),
                        "data: are not an array of numbers"),
    "samples of another format": (lambda: arrays_of("a.csv", "float32", None, None, {"x": True}),
                                  "a.csv: is not an .npy file"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(WdportError) as caught:
        call()
    assert message in str(caught.value)
