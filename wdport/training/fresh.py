"""New models with random weights, for training from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from wdport.data.series import Series, series_of
from wdport.data.units import units_of
from wdport.errors import MisfitError, require_paths
from wdport.families.registry import all_families
from wdport.families.roles import ConfiguredBeside, Family, Fresh
from wdport.mapping.strict_yaml import read_yaml
from wdport.model import Array, Document, KerasModel, Recipe


def new_model(
    config: str | PathLike[str] | Mapping[str, object],
    data: Array | Series | str | PathLike[str],
    *,
    values: Mapping[str, str] | None = None,
    seed: int = 0,
    dtype: str | None = None,
    transform: str | None = None,
) -> KerasModel:
    """Return a model with random initial weights, for training from scratch.

    Args:
        config: the training configuration, a YAML file or its contents.
        data: the series that it will be trained on, which gives the number of features, their names, mean and standard
            deviation.
        values: single configuration values as text, such as ``{"num_heads": "8"}``.
        seed: seed of the weights.
        dtype: Keras dtype policy, as for :func:`wdport.load_model`.
        transform: how windows are made of the data, as for :func:`wdport.convert`; by default z-scores.

    Returns:
        The Keras model, built; its variables are the same under every policy but float64.

    Raises:
        InputError: a file cannot be read.
        MisfitError: the configuration has unknown or invalid settings.
    """
    family, resolved, _ = new_configuration(config, data, values, transform)
    model: KerasModel = family.fresh(resolved, seed, dtype)
    return model


def new_configuration(
    config: str | PathLike[str] | Mapping[str, object],
    data: Array | Series | str | PathLike[str],
    values: Mapping[str, str] | None,
    transform: str | None,
) -> tuple[Any, Any, dict[str, object]]:
    """The family of a new model, its configuration, and the sizes that the file does not state; raises as
    :func:`new_model`."""
    document, where = _document(config)
    family: Any = trainable_family(where, document)
    settings = family.read_settings(document, where)
    settings.update({name: family.parse_setting(name, text) for name, text in (values or {}).items()})
    settings.update(units_of(series_of(data), transform).fresh_flags())
    return family, *family.fresh_config(settings, where)


def recipe_of(config: str | PathLike[str] | Mapping[str, object], public: bool = False) -> Recipe:
    """How the model is trained by a training configuration, or by the public script with it; raises as
    :func:`new_model`."""
    document, where = _document(config)
    return family_recipe(trainable_family(where, document), document, where, public)


def family_recipe(family: Any, document: Document, where: str | Path, public: bool) -> Recipe:
    """The same for a family with the role :class:`~wdport.families.roles.Fresh`."""
    # Read for its errors: unknown and invalid settings are refused before anything is taken from the file.
    if document or not public:
        family.read_settings(document, where)
    recipe: Recipe = family.recipe(document, where, public)
    return recipe


def _document(config: str | PathLike[str] | Mapping[str, object]) -> tuple[Document, str | Path]:
    if isinstance(config, Mapping):
        return config, "config"
    require_paths("config", config=config)
    document = read_yaml(Path(config), "give the training configuration").plain()
    if not isinstance(document, Mapping):
        raise MisfitError(Path(config), "is not a mapping of sections", "give the training configuration")
    return document, Path(config)


def trainable_family(where: str | Path = "config", document: Document | None = None) -> Family:
    """The family whose models are trained from scratch: the only one, or that of the configuration; raises
    :class:`MisfitError`."""
    families: list[Family] = [family for family in all_families() if isinstance(family, Fresh)]
    if document is not None and len(families) > 1:
        families = [
            family for family in families if isinstance(family, ConfiguredBeside) and family.is_configuration(document)
        ]
    if len(families) != 1:
        raise MisfitError(where, f"could be of {len(families)} families", "convert a checkpoint instead")
    return families[0]
