"""The three packages' own models, built by their own code.

Their model files import torch alone, but importing a package runs its ``__init__``, which wants libraries for sound,
images and downloads. Those are not installed: what is missing gets a stand-in that raises as soon as it is called.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

STOOD_IN = ("PIL", "librosa", "requests", "resampy", "torchaudio", "torchvision", "tqdm", "webrtcvad")
"""What the packages import and their networks do not use."""


class StandIn(ModuleType):
    """A module of which every name is a function that raises."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"{self.__name__}.{name} is not installed here")

        return absent


class _Finder(MetaPathFinder, Loader):
    """Asked last, so that what is installed is used."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        known = any(name == each or name.startswith(f"{each}.") for each in STOOD_IN)
        return ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It stays empty."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Inside, imports of :data:`STOOD_IN` succeed; afterwards nothing of them is left."""
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, StandIn)]:
            del sys.modules[name]


def onet() -> Any:
    with stand_ins():
        from facenet_pytorch import ONet  # type: ignore[import-not-found]

        return ONet(pretrained=False)


def crepe() -> Any:
    with stand_ins():
        from torchcrepe import Crepe  # type: ignore[import-not-found]

        return Crepe("tiny")


def resemblyzer(path: str) -> Any:
    """The package's own code reads the file too: it has two tensors more than the network."""
    with stand_ins():
        from resemblyzer import VoiceEncoder  # type: ignore[import-not-found]

        return VoiceEncoder("cpu", verbose=False, weights_fpath=path)


def site() -> Path:
    """The folder that the packages are installed in."""
    with stand_ins():
        import torchcrepe

        return Path(torchcrepe.__file__).parents[1]
