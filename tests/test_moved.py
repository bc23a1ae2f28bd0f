"""Modules that moved are the same under their earlier names, and converted files of then open now."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import keras
import numpy as np
import pytest

import wdport
from tests.uses.ts2vec.make import save
from wdport.base.former_names import MOVED, present_name

EARLIER = {
    "wdport.sampling.request": "wdport.uses.sampling.request",
    "wdport.wavelets": "wdport.uses.wavelets",
    "wdport.families.unet2d.family": "wdport.uses.unet2d.family",
    "wdport.exporting.loader": "wdport.uses.exporting.loader",
    "wdport.training.recipe": "wdport.optimizers.recipe",
}


def test_present_names_are_those_of_modules() -> None:
    assert {name: import_module(present).__name__ for name, present in MOVED.items()} == MOVED
    assert {name: present_name(name) for name in EARLIER} == EARLIER
    assert [present_name(name) for name in ("wdport.cli.main", "wdport.datasets", "keras", *EARLIER.values())] == [
        None
    ] * (3 + len(EARLIER))


@pytest.mark.parametrize(
    "names", [EARLIER.items(), [pair[::-1] for pair in EARLIER.items()]], ids=["earlier", "present"]
)
def test_each_module_is_loaded_once_whichever_name_is_first(names: list[tuple[str, str]]) -> None:
    code = "from importlib import import_module\nimport wdport\n" + "".join(
        f"assert import_module({first!r}) is import_module({second!r})\n" for first, second in names
    )
    code += f"assert import_module({EARLIER['wdport.wavelets']!r}).__spec__.name == {EARLIER['wdport.wavelets']!r}\n"
    code += "try:\n    import wdport.sampling.nothing\nexcept ModuleNotFoundError as error:\n    print(error.name)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["wdport.uses.sampling.nothing"]


WRITTEN_BEFORE = Path(__file__).parent / "uses" / "ts2vec" / "before-the-move.keras"
"""What `convert` wrote at 6af795d6, whose families were in `wdport.families`, of the encoder that `save` writes."""


def test_files_that_name_an_earlier_module_open(tmp_path: Path) -> None:
    now = wdport.convert(save(tmp_path / "encoder.pt"), tmp_path / "now.keras").output
    loads = (wdport.load_model, keras.saving.load_model)
    models = [load(path) for load in loads for path in (now, WRITTEN_BEFORE)]
    assert len({type(model) for model in models}) == 1
    first, *others = ([np.asarray(variable) for variable in model.weights] for model in models)
    assert first
    assert all(np.array_equal(*pair) for other in others for pair in zip(first, other, strict=True))
