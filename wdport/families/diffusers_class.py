"""A class of diffusers as the reference of a family: whether it is installed, and how it is built."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from torch import nn

from wdport.model import Stated


@dataclass(frozen=True)
class DiffusersClass:
    """The model class ``name``; ``defaults`` are those of its fields, and ``others`` are not its fields."""

    name: str
    defaults: Mapping[str, object] = field(repr=False)
    others: tuple[str, ...] = ()

    def installed(self, values: Mapping[str, object]) -> Any:
        """The class, if it is installed and has every field that ``values`` need, else ``None``."""
        try:
            found = getattr(importlib.import_module("diffusers"), self.name)
        except (ImportError, AttributeError):
            return None
        return found if set(self._arguments(values)) <= set(inspect.signature(found.__init__).parameters) else None

    def release(self, values: Mapping[str, object]) -> str:
        """The class and its release, for a report; "" if it is not :meth:`installed`."""
        if self.installed(values) is None:
            return ""
        return f"{self.name} of diffusers {importlib.import_module('diffusers').__version__}"

    def described(self, values: Mapping[str, object]) -> str:
        """Whose code the reference is, for a report."""
        return self.release(values) or "wdport's own PyTorch code; with diffusers installed it is the library's"

    def build(
        self, values: Mapping[str, object], stated: Stated | None, changed: Callable[[Any], Any] = lambda made: made
    ) -> nn.Module | None:
        """The model with random weights, of the ``stated`` configuration as the library reads it, else of ``values``;
        of the ``changed`` class. ``None`` if it is not :meth:`installed`."""
        if (found := self.installed(values)) is None:
            return None
        if stated is None:
            return cast(nn.Module, changed(found)(**self._arguments(values)))
        document = {name: value for name, value in {**stated.document, **stated.values}.items()
                    if name not in self.others}  # fmt: skip
        return cast(nn.Module, changed(found).from_config(document))

    def misread(
        self, values: Mapping[str, object], module: Any, load: Callable[[Mapping[str, object]], Any]
    ) -> list[str]:
        """The fields that the library, whose ``module`` it built of a stated configuration, reads otherwise than
        ``values``; ``load`` makes a configuration of fields."""
        theirs = load({name: each for name, each in module.config.items() if name in values}).to_dict()
        return [f"{name} is {each!r} as diffusers reads config.json, and {values[name]!r} here"
                for name, each in theirs.items() if name not in self.others and each != values[name]]  # fmt: skip

    def _arguments(self, values: Mapping[str, object]) -> dict[str, object]:
        """The fields that differ from the defaults."""
        return {name: value for name, value in values.items()
                if name not in self.others and value != self.defaults[name]}  # fmt: skip
