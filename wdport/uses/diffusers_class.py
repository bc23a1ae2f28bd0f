"""A released class of diffusers as the reference of a family: how it is built, and what it reads otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from wdport.base.errors import MachineError
from wdport.base.fields import Fields
from wdport.models.interface import Array, Stated
from wdport.recording.float64 import lifted
from wdport.uses.libraries import release, released_class

LIBRARY = "diffusers"


@dataclass(frozen=True)
class DiffusersClass:
    """The model class ``name``; ``defaults`` are those of its fields, and ``others`` are not its fields. ``changed``
    makes the class of the reference from it."""

    name: str
    defaults: Mapping[str, object] = field(repr=False)
    others: tuple[str, ...] = ()
    changed: Callable[[Any], Any] = lambda library_class: library_class

    def require(self, values: Mapping[str, object]) -> Any:
        """The class; raises :class:`MachineError` if it is not installed, or lacks a field that ``values`` need."""
        library_class = released_class(LIBRARY, self.name)
        # `from_config` drops a field that it does not know with a warning, and the model would be another one.
        if lacking := set(self._arguments(values)) - set(inspect.signature(library_class.__init__).parameters):
            what = f"{self.name} of {release(LIBRARY)} has no field {min(lacking)}, and is the reference"
            raise MachineError(LIBRARY, what, f"pip install 'wdport[{LIBRARY}]'")
        return library_class

    def release(self, values: Mapping[str, object]) -> str:
        """The class and its release, for a report; raises as :meth:`require`."""
        self.require(values)
        return f"{self.name} of {LIBRARY} {release(LIBRARY)}"

    def build(self, values: Mapping[str, object], stated: Stated | None = None) -> nn.Module:
        """The model with random weights, of the ``stated`` configuration as the library reads it, else of ``values``.
        Raises as :meth:`require`."""
        library_class = self.changed(self.require(values))
        if stated is None:
            return cast(nn.Module, library_class(**self._arguments(values)))
        document = {name: value for name, value in {**stated.document, **stated.values}.items()
                    if name not in self.others}  # fmt: skip
        return cast(nn.Module, library_class.from_config(document))

    def build_reference(
        self, config: Fields, tensors: Mapping[str, Array], dtype: str, stated: Stated | None = None
    ) -> nn.Module:
        """The model of :meth:`build` in evaluation mode with these weights, every one of them used; ``dtype`` float32
        or float64. Raises as :meth:`require`."""
        # Buffers outside the state_dict, such as frequencies, are computed at construction: in float64 only if it is
        # lifted.
        with lifted() if dtype == "float64" else nullcontext():
            model = self.build(config.to_dict(), stated)
        kind = getattr(torch, dtype)
        # Without `assign`, torch would copy the values into the parameters of the model, which are float32.
        model.load_state_dict({name: torch.from_numpy(array).to(kind) for name, array in tensors.items()}, assign=True)
        return model.eval()

    def misread(
        self, values: Mapping[str, object], module: Any, load: Callable[[Mapping[str, object]], Any]
    ) -> list[str]:
        """The fields that the library, whose ``module`` it built of a stated configuration, reads otherwise than
        ``values``; ``load`` makes a configuration of fields."""
        # Through our own reader, so that two spellings of one value compare equal.
        theirs = load({name: value for name, value in module.config.items() if name in values}).to_dict()
        return [f"{name} is {value!r} as {LIBRARY} reads config.json, and {values[name]!r} here"
                for name, value in theirs.items() if name not in self.others and value != values[name]]  # fmt: skip

    def _arguments(self, values: Mapping[str, object]) -> dict[str, object]:
        """The fields that differ from the defaults."""
        return {name: value for name, value in values.items()
                if name not in self.others and value != self.defaults[name]}  # fmt: skip
