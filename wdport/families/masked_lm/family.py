"""EuroBertForMaskedLM as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wdport.families.masked_lm.battery import signature
from wdport.families.masked_lm.config import TOKENIZER, Config
from wdport.families.masked_lm.resolve import CONFIG, read_settings, resolve, settings_schema
from wdport.families.ported import PortedFamily
from wdport.model import Array, Stated, Vocabulary

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.masked_lm.port import MaskedLM
    from wdport.families.roles import (
        Accompanied,
        Completing,
        Configured,
        Documented,
        Family,
        Referenced,
        TokenNetwork,
    )


class MaskedLMFamily(PortedFamily[Config]):
    """A masked language model in the roles of :mod:`wdport.families.roles`, except sampling and training."""

    name = "masked_lm"
    configuration = Config
    keras_class = "MaskedLM"
    kept = (TOKENIZER,)
    read_settings = staticmethod(read_settings)
    settings_schema = staticmethod(settings_schema)
    parse_setting = CONFIG.parse_setting
    resolve = staticmethod(resolve)
    signature = staticmethod(signature)

    def features(self, config: Config) -> frozenset[str]:
        """Kinds of heads, by their names under ``when:`` in the table."""
        if not config.tie_word_embeddings:
            return frozenset({"untied"})
        return frozenset({"tied", "tied_bias"} if config.mlp_bias else {"tied"})

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        from wdport.families.masked_lm.reference import build_reference

        return build_reference(config, tensors, dtype)

    def stated_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        from wdport.families.masked_lm.reference import build_reference

        return build_reference(config, tensors, dtype, stated)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        from wdport.families.masked_lm.reference import misread

        return misread(config, module)

    def library_of(self, config: Config) -> str:
        from wdport.families.masked_lm.reference import library_of

        return library_of()

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


FAMILY = MaskedLMFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Configured, Completing, Accompanied] = (FAMILY,) * 6
