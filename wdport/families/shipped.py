"""What wdport ships besides its core: model families, and what one does with a converted model.

The core names them here and imports none of them: a module is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

SHIPPED: Final[Mapping[str, str]] = MappingProxyType({
    "waveletdiff": "WaveletDiff",
    "ts2vec": "TS2Vec",
    "unet2d": "UNet2D",
    "masked_lm": "MaskedLM",
    "wan_vae": "WanVAE",
})  # fmt: skip
"""The Keras class of every family, in the module ``port`` of its folder; the family itself is in ``family``."""

OWN_PACKAGE: Final = "wdport"
"""Where Keras registers these classes."""

HOME: Final = "wdport.uses"
"""The package with these families, and with what one does with a converted model."""

PORTS: Final = (*(f"{HOME}.{name}.port" for name in SHIPPED), f"{HOME}.wavelets.layers")
"""Modules that register Keras classes when imported."""

CANARY: Final = f"{HOME}.waveletdiff.canary"
"""The module with the faults that `verify` tries before it judges by a policy; it needs torch."""

USES: Final[Mapping[str, str]] = MappingProxyType({
    "gates": f"{HOME}.gates.provided:GATES",
    "canary": f"{HOME}.gates.sampler_faults:canary_kills",
    "units": f"{HOME}.data.units:read_units",
    "artifacts": f"{HOME}.cli.verification:verify_exported",
})  # fmt: skip
"""What the core asks of the uses, each as MODULE:NAME: the gates of :class:`wdport.parity.gates_of_uses.UseGates`, the
known faults of :data:`wdport.parity.selftest.inject.UseFaults`, the units of
:class:`wdport.conversion.data_units.DataUnits`, and the programs of :data:`wdport.cli.verify.VerifyExported`."""


def provided(name: str) -> object:
    """The object of one entry of :data:`USES`."""
    module, _, attribute = USES[name].partition(":")
    return getattr(import_module(module), attribute)
