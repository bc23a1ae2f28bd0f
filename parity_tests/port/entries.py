"""What an entry of the corpus is, and the decorator that makes a function one."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from tests.real.references import StandIn

Builder = Callable[[], nn.Module]

ENTRIES: list[Entry] = []
"""Every entry, as the modules of ``models`` declare them."""


@dataclass(frozen=True)
class Entry:
    """A PyTorch model of the corpus.

    Attributes:
        name: unique; the library and the function that builds it.
        group: the library and, where it has several, the kind of model.
        inputs: what ``--input`` takes, one each; the names are those of the arguments of ``forward``.
        build: returns the module with random weights, the same on every call, in evaluation mode.
        unseen: whether nobody looks at its results before the end.
    """

    name: str
    group: str
    inputs: tuple[str, ...]
    build: Builder
    unseen: bool = False

    @property
    def target(self) -> str:
        """What ``--reference`` takes."""
        return f"{self.build.__module__}:{self.build.__name__}"


def entry(group: str, *inputs: str) -> Callable[[Builder], Builder]:
    """A function that builds a module becomes an entry of this group with these inputs."""

    def decorated(function: Builder) -> Builder:
        @functools.wraps(function)
        def build() -> nn.Module:
            import_torchvision()
            with torch.random.fork_rng(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(0)
                return function().eval()

        ENTRIES.append(Entry(f"{group.split()[0]}_{function.__name__}", group, inputs, build))
        return build

    return decorated


def import_torchvision() -> None:
    """Import torchvision, if it is installed, without its compiled operators, which the models do not call.

    The index's wheel of torchvision is built for a torch with CUDA. Beside another one it fails to load its operators,
    and then fails to describe them: what describes them gets a stand-in. timm and transformers import it too, if it is
    installed.
    """
    described = "torchvision._meta_registrations"
    if "torchvision" in sys.modules:
        return
    sys.modules[described] = StandIn(described)
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        del sys.modules[described]
