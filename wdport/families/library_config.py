"""Find the configuration of a library's model: its ``config.json``, the user's values, the library's defaults.

Names and shapes of the tensors also determine most sizes. Contradictions are reported in one error before a model is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from wdport.errors import MisfitError, printable
from wdport.fields import Fields, fields_of, json_setting
from wdport.limits import MAX_VALUES, MAX_VARIABLES
from wdport.mapping.axes import Shape
from wdport.model import UNITS, Document, Resolved, Source

C = TypeVar("C", bound=Fields)

FIX: Final = "correct config.json, or give the right value with `--config FILE` or `--set NAME=VALUE`"


@dataclass(frozen=True)
class LibraryConfig(Generic[C]):
    """How the ``config.json`` of one class of a library is read.

    ``load`` makes the configuration of its values and raises ``ValueError``; ``contradictions`` are those with the
    shapes of the tensors. ``part`` and ``model`` are words for errors: "network", "an image model".
    """

    configuration: type[C]
    class_name: str
    library: str
    part: str
    model: str
    load: Callable[[Document], C]
    contradictions: Callable[[C, Mapping[str, Shape]], Iterable[str]]

    @property
    def supported(self) -> str:
        return f"the fields of {self.class_name} in {self.library} are supported"

    def read(self, document: Document, where: str | Path) -> dict[str, object]:
        """The fields of a ``config.json`` of diffusers, or part of one; raises :class:`MisfitError` for other classes
        and unknown names. Names that begin with ``_`` are the library's own notes."""
        own = {name: value for name, value in document.items() if not name.startswith("_")}
        kind = document.get("_class_name", self.class_name)
        if kind != self.class_name:
            fix = f"{self.class_name} is supported; other classes need their own table (`--mapping`)"
            raise MisfitError(where, f"_class_name is {quoted(kind)}", fix)
        self.require_known(own, fields_of(self.configuration), where)
        return own

    def parse_setting(self, key: str, text: str) -> object:
        """One ``--set KEY=VALUE``, the value as JSON or text; raises :class:`UsageError`."""
        return json_setting(self.configuration, key, text)

    def require_known(self, names: Iterable[str], known: Iterable[str], where: str | Path) -> None:
        """Raise :class:`MisfitError` for names that are not among ``known``."""
        if unknown := [name for name in names if name not in set(known)]:
            raise MisfitError(where, f"unknown field {quoted(unknown[0])}", self.supported, unknown)

    def require_document(self, source: Source, documents: Iterable[Document], other: str = "") -> None:
        """Raise :class:`MisfitError` if none of the documents has a value."""
        if not any(documents):
            what = f"there is no config.json with the {self.part}'s configuration"
            raise MisfitError(source.path, what, f"give the model's folder, or `--config FILE`{other}")

    def resolve(self, source: Source, values: Mapping[str, Document]) -> Resolved:
        """The configuration of values by their origin, the last of which counts; raises :class:`MisfitError` naming
        every contradiction."""
        if any(name in UNITS for name in values["flag"]):
            what = f"{self.model} has no series to normalise"
            raise MisfitError(source.path, what, "leave out `--norm-stats` and `--data`")
        merged = {name: value for each in values.values() for name, value in each.items()}
        given = {name: origin for origin, each in values.items() for name in each}
        try:
            config = self.load(merged)
        except ValueError as error:
            raise MisfitError(source.path, str(error), FIX) from None
        if wrong := list(self.contradictions(config, source.shapes)):
            raise MisfitError(source.path, "; ".join(wrong), FIX, wrong)
        return Resolved(config, {name: given.get(name, "default") for name in fields_of(self.configuration)})

    def schema(self, library: str, head: Document, more: Document | None = None) -> dict[str, Any]:
        """The JSON Schema of the file: ``head``, every field that is read, and ``more``; names that begin with ``_``
        are the library's notes."""
        article = "an" if self.class_name[0] in "AO" else "a"
        declared = fields_of(self.configuration)
        return {
            "type": "object",
            "description": f"Configuration of {article} {self.class_name} as {library} writes it. "
            "Absent fields have its defaults.",
            "properties": {**head, **{name: each.schema() for name, each in declared.items()}, **(more or {})},
            "patternProperties": {"^_": {}},
            "additionalProperties": False,
        }

    def diffusers_schema(self) -> dict[str, Any]:
        """The JSON Schema of a ``config.json`` of diffusers."""
        return self.schema(
            "diffusers", {"_class_name": {"description": "Class of the model.", "const": self.class_name}}
        )


def quoted(value: object) -> str:
    """A value of a file for an error message."""
    return printable(repr(value), 60)


def require_sizes(variables: int, values: int) -> None:
    """Raise ``ValueError`` if a model of about so many variables and values exceeds the size limits."""
    for count, most, word in ((variables, MAX_VARIABLES, "variables"), (values, MAX_VALUES, "values")):
        if count > most:
            raise ValueError(f"the sizes are those of a model of about {count} {word}, at most {most} are supported")
