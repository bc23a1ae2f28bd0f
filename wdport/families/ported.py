"""What the families of wdport's own Keras classes have in common: the roles that follow from their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from wdport import fields
from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.mapping.axes import Shape
from wdport.model import Array, Constant, Document, KerasModel

C = TypeVar("C", bound=fields.Fields)


class PortedFamily(Generic[C]):
    """A family whose Keras class is ``keras_class`` in the module ``port`` of its folder, built of a
    ``configuration``."""

    name: str
    configuration: type[C]
    keras_class: ClassVar[str]
    bounds: Mapping[str, Bound] = MappingProxyType({})

    @property
    def rests_on(self) -> Mapping[str, tuple[str, ...]]:
        return fields.rests_on(self.configuration)

    @property
    def shown(self) -> Mapping[str, str]:
        return fields.summary(self.configuration)

    def features(self, config: C) -> frozenset[str]:
        return frozenset()

    def variables(self, config: C) -> dict[str, Shape]:
        return dict(described_variables(self.name, self.keras_class, config))

    def constants(self, config: C) -> dict[str, Constant]:
        return {}

    def port_tables(self, model: KerasModel) -> dict[str, Array]:
        return {}

    def gates(self, config: C) -> Sequence[Gate]:
        return ()

    def load_config(self, values: Document) -> C:
        return self.configuration.from_dict(values)

    def keras_document(self, config: C) -> dict[str, object]:
        return {
            "module": f"wdport.families.{self.name}.port",
            "class_name": self.keras_class,
            "config": {"name": self.name, "dtype": "float32", "config": config.to_dict()},
            "registered_name": f"wdport>{self.keras_class}",
            "compile_config": {},
        }

    def build(self, config: C, dtype: str | None = None) -> KerasModel:
        with self.unfilled():
            return port_class(self.name, self.keras_class)(config, dtype=dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  before our modules that need it: importing it imports the ports

        from wdport.keras_runtime import unfilled

        return unfilled()


def port_class(family: str, name: str) -> Any:
    """The Keras class of this name in a family's port."""
    import keras  # noqa: F401  as above

    return getattr(import_module(f"wdport.families.{family}.port"), name)


@lru_cache(maxsize=16)
def described_variables(family: str, name: str, config: fields.Fields) -> Mapping[str, Shape]:
    """Path and shape of every variable of a Keras model, which is built once for this, without values."""
    keras_class = port_class(family, name)
    from wdport.keras_runtime import described, variables_by_path

    with described():
        model = keras_class(config, dtype="float32")
    return {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}
