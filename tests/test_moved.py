"""Modules that moved are the same under their earlier names, and converted files of then open now."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

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
