"""Families whose models are those of a library's class: its ``config.json``, the user's values, the library's defaults.

Names and shapes of the tensors also determine most sizes. Contradictions are reported in one error before a model is
built. The reference is the library's class, in the module ``reference`` of the family's folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from wdport.base.errors import MisfitError, did_you_mean, printable
from wdport.base.fields import OFF, Fields, fields_of, json_setting, marked
from wdport.families.ported import PortedFamily
from wdport.families.shapes import Shapes
from wdport.models.interface import UNITS, Array, ConfigurationSource, Document, Resolved, Stated
from wdport.uses.libraries import released_class

if TYPE_CHECKING:
    from torch.nn import Module

C = TypeVar("C", bound=Fields)

NONE: Final = "null"
"""Value for a part that the tensors, or the network, do not have."""

FIX: Final = "give the right value with `--set NAME=VALUE` or `--config FILE`, or correct config.json"


class LibraryFamily(PortedFamily[C]):
    """A family of the models of ``library_class``, which ``library`` has; ``version`` is the one whose fields and
    defaults the configuration has. ``part`` and ``model_phrase`` are words for errors: "network", "an image model"."""

    library: ClassVar[str] = "diffusers"
    version: ClassVar[str] = "0.42.1"
    library_class: ClassVar[str]
    part: ClassVar[str] = "network"
    model_phrase: ClassVar[str]
    elsewhere: ClassVar[str] = ""
    """What else to do about a model without a configuration."""

    @property
    def supported(self) -> str:
        """What to use in place of an unknown field."""
        return f"the fields of {self.library_class} in {self.library} {self.version} are supported"

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """The fields of a ``config.json`` of diffusers, or part of one; raises :class:`MisfitError` for other classes
        and unknown names. Names that begin with ``_`` are the library's own notes."""
        kind = document.get("_class_name", self.library_class)
        if kind != self.library_class:
            fix = f"{self.library_class} is supported; other classes need their own table (`--mapping`)"
            raise MisfitError(where, f"_class_name is {quoted(kind)}", fix)
        self.require_known(document, fields_of(self.configuration), where)
        return {name: value for name, value in document.items() if not name.startswith("_")}

    def require_known(self, names: Iterable[str], declared: Iterable[str], where: str | Path) -> None:
        """Raise :class:`MisfitError` for names that are not among ``declared``, and not the library's own notes."""
        supported = list(declared)
        if unknown := [name for name in names if name not in supported and not name.startswith("_")]:
            # A field of another class may resemble one of this class: only a typo is corrected.
            fix = did_you_mean(unknown[0], supported, self.supported, 0.8)
            raise MisfitError(where, f"unknown field {quoted(unknown[0])}", fix, unknown)

    def parse_setting(self, key: str, text: str) -> object:
        return json_setting(self.configuration, key, text)

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
        document = self.read_settings(source.document(), source.path)
        self.require_document(source, document, config)
        return self.resolve_values(source, {"config.json": document, "config": config, "flag": flags})

    def require_document(self, source: ConfigurationSource, *documents: Document) -> None:
        """Raise :class:`MisfitError` if none of the documents has a value."""
        if not any(documents):
            what = f"there is no config.json with the {self.part}'s configuration"
            raise MisfitError(source.path, what, f"give the model's folder, or `--config FILE`{self.elsewhere}")

    def resolve_values(self, source: ConfigurationSource, values: Mapping[str, Document]) -> Resolved:
        """The configuration of values by their origin, the last of which counts; raises :class:`MisfitError` naming
        every contradiction."""
        if any(name in UNITS for name in values["flag"]):
            what = f"{self.model_phrase} has no series to normalise"
            raise MisfitError(source.path, what, "leave out `--norm-stats` and `--data`")
        value_origins = {name: origin for origin, document in values.items() for name in document}
        try:
            config = self._merged(values)
        except ValueError as error:
            raise MisfitError(self._blamed(values) or source.path, str(error), FIX) from None
        if wrong := list(self.contradictions(config, source.shapes)):
            raise MisfitError(source.path, "; ".join(wrong), FIX, wrong)
        origins = {name: value_origins.get(name, "default") for name in fields_of(self.configuration)}
        return Resolved(config, origins, notes=tuple(self.notes(config)))

    def _merged(self, values: Mapping[str, Document]) -> C:
        """Later documents replace values of earlier ones: the library's file, then --config, then --set."""
        return self.load_config({name: value for document in values.values() for name, value in document.items()})

    def _blamed(self, values: Mapping[str, Document]) -> str:
        """The option without which the values are valid, or ""."""
        for origin, option in (("flag", "--set"), ("config", "--config")):
            with suppress(ValueError):
                self._merged({**values, origin: {}})
                return option
        return ""

    def contradictions(self, config: C, shapes: Shapes) -> Iterator[str]:
        """Contradictions with the tensors, in words; what these do not determine is skipped."""
        ours = {**config.to_dict(), **self.compared(config)}
        for name, theirs in self.sizes(shapes).items():
            label, mine = value if isinstance(value := ours[name], tuple) else (name, value)
            # Sizes are found in the tensors by name; a missing tensor is reported by the plan, which names it.
            if theirs is not None and theirs != mine:
                yield f"{label} is {_word(mine)}, but {_word(theirs)} in the tensors"

    def compared(self, config: C) -> dict[str, object]:
        """What the configuration has in place of a field in :meth:`sizes`, and its name if that is another one."""
        return {}

    def notes(self, config: C) -> Iterator[str]:
        """Notes on values without effect."""
        for name in marked(self.configuration, OFF):
            if value := getattr(config, name):
                yield f"{name} {value} is off, as always in inference"

    def settings_schema(self) -> dict[str, object]:
        return self.schema({"_class_name": {"description": "Class of the model.", "const": self.library_class}})

    def schema(self, head: Document, more: Document | None = None) -> dict[str, Any]:
        """The JSON Schema of the file: ``head``, every field that is read, and ``more``; names that begin with ``_``
        are the library's notes."""
        article = "an" if self.library_class[0] in "AO" else "a"
        declared = fields_of(self.configuration)
        return {
            "type": "object",
            "description": f"Configuration of {article} {self.library_class} as {self.library} writes it. "
            "Absent fields have its defaults.",
            "properties": {**head, **{name: field.schema() for name, field in declared.items()}, **(more or {})},
            # The library writes its release and the class's name into keys with an underscore.
            "patternProperties": {"^_": {}},
            "additionalProperties": False,
        }

    def stated_reference(self, config: C, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        return self.reference_module.build_reference(config, tensors, dtype, stated)

    def is_configuration_of_library(self, document: Document) -> bool:
        return document.get("_class_name") == self.library_class

    def random_module(self, document: Document, seed: int, where: Path) -> Module:
        self.read_settings(document, where)
        released = released_class(self.library, self.library_class)
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                return cast("Module", self.create(released, dict(document)))
            except Exception as error:  # the libraries have no class of their own for them
                what = f"{self.library} rejects it ({printable(' '.join(str(error).split()), 120)})"
                raise MisfitError(where, what, "correct it") from None

    def create(self, released: Any, document: dict[str, object]) -> Any:
        """The library's class with random weights."""
        return released.from_config(document)

    def misread(self, config: C, stated: Stated, module: Module) -> list[str]:
        return self.reference_module.LIBRARY.misread(config.to_dict(), module, self.load_config)

    def library_of(self, config: C) -> str:
        return self.reference_module.LIBRARY.release(config.to_dict())


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def quoted(value: object) -> str:
    """A value of a file for an error message."""
    return printable(repr(value), 60)
