"""EuroBertForMaskedLM as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.families.masked_lm.battery import signature
from wdport.families.masked_lm.config import TOKENIZER, Config
from wdport.families.masked_lm.resolve import load, parse_setting, read_settings, resolve
from wdport.mapping.axes import Shape
from wdport.model import Array, Constant, Document, Resolved, Signature, Source, Stated, Vocabulary

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.masked_lm.port import MaskedLM
    from wdport.families.mutants import Mutant
    from wdport.families.roles import (
        Accompanied,
        Completing,
        Configured,
        Documented,
        Faulty,
        Referenced,
        TokenNetwork,
    )


class MaskedLMFamily:
    """A masked language model in the roles of :mod:`wdport.families.roles`, except sampling and training."""

    name = "masked_lm"
    bounds: Mapping[str, Bound] = MappingProxyType({})
    rests_on: Mapping[str, tuple[str, ...]] = MappingProxyType({
        "max_position_embeddings": (), "attention_dropout": (), "mask_token_id": (), "pad_token_id": ("C",),
    })  # fmt: skip
    causes_known = False
    kept = (TOKENIZER,)
    shown: Mapping[str, str] = MappingProxyType({
        "vocab_size": "tokens", "hidden_size": "channels", "num_hidden_layers": "layers",
        "num_attention_heads": "heads", "num_key_value_heads": "key heads", "tie_word_embeddings": "tied head",
    })  # fmt: skip

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        return read_settings(document, where)

    def settings_schema(self) -> dict[str, object]:
        from wdport.families.masked_lm.form import settings_schema

        return settings_schema()

    def parse_setting(self, key: str, text: str) -> object:
        return parse_setting(key, text)

    def resolve(self, source: Source, config: Document, flags: Document) -> Resolved:
        return resolve(source, config, flags)

    def features(self, config: Config) -> frozenset[str]:
        """Kinds of heads, by their names under ``when:`` in the table."""
        if not config.tie_word_embeddings:
            return frozenset({"untied"})
        return frozenset({"tied", "tied_bias"} if config.mlp_bias else {"tied"})

    def variables(self, config: Config) -> dict[str, Shape]:
        return dict(_variables(config))

    def constants(self, config: Config) -> dict[str, Constant]:
        return {}

    def load_config(self, values: Document) -> Config:
        return load(values)

    def keras_document(self, config: Config) -> dict[str, object]:
        return {
            "module": "wdport.families.masked_lm.port",
            "class_name": "MaskedLM",
            "config": {"name": "masked_lm", "dtype": "float32", "config": config.to_dict()},
            "registered_name": "wdport>MaskedLM",
            "compile_config": {},
        }

    def signature(self, config: Config) -> Signature:
        return signature(config)

    def build(self, config: Config, dtype: str | None = None) -> MaskedLM:
        import keras  # noqa: F401  before our modules that need it: importing it imports the port

        from wdport.families.masked_lm.port import MaskedLM
        from wdport.keras_runtime import unfilled

        with unfilled():
            return MaskedLM(config, dtype=dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  as in build

        from wdport.keras_runtime import unfilled

        return unfilled()

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        from wdport.families.masked_lm.reference import build_reference

        return build_reference(config, tensors, dtype)

    def stated_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        from wdport.families.masked_lm.reference import build_reference

        return build_reference(config, tensors, dtype, stated)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        from wdport.families.masked_lm.reference import misread

        return misread(config, module)

    def reference_of(self, config: Config) -> str:
        from wdport.families.masked_lm.reference import reference_of

        return reference_of(config)

    def library_of(self, config: Config) -> str:
        from wdport.families.masked_lm.reference import library_of

        return library_of(config)

    def port_tables(self, model: MaskedLM) -> dict[str, Array]:
        return {}

    def keep(self, model: MaskedLM, files: Mapping[str, bytes]) -> None:
        model.tokenizer_json = files.get(TOKENIZER, b"").decode(errors="replace")

    def tokenizer(self, model: MaskedLM) -> str:
        return str(model.tokenizer_json)

    def vocabulary(self, config: Config) -> Vocabulary:
        mask = config.mask_token_id
        return Vocabulary(config.vocab_size, mask if mask is not None and mask < config.vocab_size else None)

    def token_network(self, model: MaskedLM) -> TokenNetwork:
        from wdport.families.masked_lm.predictor import Predictor

        return Predictor(model)

    def mutants(self, config: Config) -> tuple[Mutant, ...]:
        import keras  # noqa: F401  as in build

        from wdport.families.masked_lm.mutants import mutants

        return mutants(config)

    def gates(self, config: Config) -> Sequence[Gate]:
        return ()

    def smallest(self) -> Config:
        return next(iter(self.examples().values()))

    def examples(self) -> dict[str, Config]:
        from wdport.families.masked_lm.examples import examples

        return examples()

    def random_tensors(self, config: Config, seed: int) -> dict[str, Array]:
        from wdport.families.masked_lm.examples import random_tensors

        return random_tensors(config, seed)


@lru_cache(maxsize=16)
def _variables(config: Config) -> Mapping[str, Shape]:
    """Every variable of the Keras model, which is built once for this, without values."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the port

    from wdport.families.masked_lm.port import MaskedLM
    from wdport.keras_runtime import described, variables_by_path

    with described():
        model = MaskedLM(config, dtype="float32")
    return {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}


FAMILY = MaskedLMFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Faulty, Documented, Referenced, Configured, Completing, Accompanied] = (FAMILY,) * 6
