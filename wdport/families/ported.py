"""What the families of wdport's own Keras classes have in common: the roles that follow from their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from wdport.base import fields
from wdport.base.errors import MisfitError, UsageError, did_you_mean
from wdport.base.fields import fields_of, json_setting
from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import Bound
from wdport.families.shapes import Shapes, contradicted, require_determined
from wdport.families.shipped import OWN_PACKAGE
from wdport.mapping.axes import Shape
from wdport.models.interface import UNITS, Array, ConfigurationSource, Constant, Document, KerasModel, Resolved

if TYPE_CHECKING:
    from torch.nn import Module

C = TypeVar("C", bound=fields.Fields)


class PlainFamily:
    """A family whose network has no optional parts, and which has no tables or gates; if it is sampled, with every
    configuration."""

    bounds: Mapping[str, Bound] = MappingProxyType({})

    def features(self, config: Any) -> frozenset[str]:
        return frozenset()

    def constants(self, config: Any) -> dict[str, Constant]:
        return {}

    def port_tables(self, model: KerasModel) -> dict[str, Array]:
        return {}

    def gates(self, config: Any) -> Sequence[Gate]:
        return ()

    def unsampled(self, config: Any) -> str:
        return ""


class PortedFamily(PlainFamily, Generic[C]):
    """A family whose Keras class is ``keras_class`` in the module ``port`` of its folder, built of a
    ``configuration``; Keras registers the class under ``package``. The function ``build_reference`` of the module
    ``reference`` makes the PyTorch model."""

    name: str
    configuration: type[C]
    keras_class: ClassVar[str]
    package: ClassVar[str] = OWN_PACKAGE

    @property
    def port(self) -> str:
        """The module of the Keras class, next to that of the family."""
        return f"{type(self).__module__.rpartition('.')[0]}.port"

    @property
    def registered_name(self) -> str:
        """The name under which Keras registers the class."""
        return f"{self.package}>{self.keras_class}"

    @property
    def rests_on(self) -> Mapping[str, tuple[str, ...]]:
        return fields.rests_on(self.configuration)

    @property
    def shown(self) -> Mapping[str, str]:
        return fields.summary(self.configuration)

    @property
    def model_phrase(self) -> str:
        """What a model is, for errors: "an encoder"."""
        return f"a {self.name} model"

    def sizes(self, shapes: Shapes) -> Mapping[str, object]:
        """The fields that the shapes of a checkpoint's tensors determine; ``None`` for one that these do not."""
        return {}

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """The fields in a configuration file; raises :class:`MisfitError` for an unknown name or a wrong value."""
        declared = fields_of(self.configuration)
        values: dict[str, object] = {}
        for name, value in document.items():
            if name not in declared:
                fix = did_you_mean(str(name), declared, f"use some of {', '.join(declared)}")
                raise MisfitError((where, name), "is not a field of this model's configuration", fix)
            try:
                values[name] = declared[name].checked(value, self.configuration.wording)
            except ValueError as error:
                raise MisfitError(where, str(error), "correct the value") from None
        return values

    def parse_setting(self, key: str, text: str) -> object:
        return json_setting(self.configuration, key, text, "configuration")

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        """The configuration of the sizes and of given values; raises :class:`MisfitError` if a size or a required field
        is not known, a given value contradicts the shapes or is invalid, and :class:`UsageError` for statistics."""
        if any(name in flags for name in UNITS):
            fix = "leave out `--norm-stats` and `--data`: normalise the series before encoding"
            raise UsageError("statistics", f"{self.model_phrase} keeps none", fix)
        sizes = self.sizes(source.shapes)
        require_determined(sizes, source.path)
        stated = [(name, value, "config") for name, value in config.items()]
        stated += [(name, value, "flag") for name, value in flags.items()]
        if faults := contradicted(stated, sizes):
            raise MisfitError(source.path, "; ".join(faults), "correct the value or leave it out", faults)
        values: dict[str, Any] = {**{name: value for name, value, _ in stated}, **sizes}
        origins = {**{name: origin for name, _, origin in stated}, **dict.fromkeys(sizes, "shapes")}
        try:
            resolved = self.configuration.from_dict(values)
        except ValueError as error:
            fix = "use a checkpoint of this model" if not stated else "give the right values with `--config` or `--set`"
            raise MisfitError(source.path, str(error), fix) from None
        return Resolved(resolved, {name: origins.get(name, "assumed") for name in fields_of(self.configuration)})

    def variables(self, config: C) -> dict[str, Shape]:
        return dict(described_variables(self.port, self.keras_class, config))

    def load_config(self, values: Document) -> C:
        return self.configuration.from_dict(values)

    def keras_document(self, config: C) -> dict[str, object]:
        return {
            "module": self.port,
            "class_name": self.keras_class,
            "config": {"name": self.name, "dtype": "float32", "config": config.to_dict()},
            "registered_name": self.registered_name,
            "compile_config": {},
        }

    def build(self, config: C, dtype: str | None = None) -> KerasModel:
        with self.unfilled():
            return port_class(self.port, self.keras_class)(config, dtype=dtype)

    @property
    def reference_module(self) -> Any:
        """The module ``reference`` next to that of the family, which needs torch."""
        return import_module(f"{type(self).__module__.rpartition('.')[0]}.reference")

    def build_reference(self, config: C, tensors: Mapping[str, Array], dtype: str) -> Module:
        return self.reference_module.build_reference(config, tensors, dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        from wdport.models.keras_runtime import unfilled

        return unfilled()


def port_class(port: str, name: str) -> Any:
    """The Keras class of this name in a family's module ``port``."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    return getattr(import_module(port), name)


@lru_cache(maxsize=16)
def described_variables(port: str, name: str, config: fields.Fields) -> Mapping[str, Shape]:
    """Path and shape of every variable of a Keras model, which is built once for this, without values."""
    keras_class = port_class(port, name)
    from wdport.models.keras_runtime import described, shapes_by_path

    with described():
        return shapes_by_path(keras_class(config, dtype="float32"))
