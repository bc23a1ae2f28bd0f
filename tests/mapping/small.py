"""A small WaveletDiff as a plan sees it: names and shapes of the PyTorch module and of the Keras model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from wdport.mapping.axes import Shape
from wdport.mapping.plan import Misfits, Plan, make_plan
from wdport.mapping.table import Table, shipped_tables
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.reference import WaveletDiff
from wdport.uses.waveletdiff.variables import variables

CONFIGS = {
    "official": Config((5, 5, 8, 13), 3, 16, 4, 2, 8),
    "official, one layer, two groups": Config((9, 9), 1, 12, 3, 1, 4, noise_schedule="cosine"),
    "official, no cross-level": Config((5, 5, 8), 7, 8, 1, 1, 6, cross_level_attention=False),
    "qk_norm": Config((5, 5, 8, 13), 3, 16, 4, 2, 8, qk_norm=True),
    "qk_norm, no cross-level": Config((5, 5, 8), 2, 8, 2, 1, 6, qk_norm=True, cross_level_attention=False),
    "qk_norm, scale embedding": Config((9, 9), 1, 12, 3, 1, 4, qk_norm=True, scale_embedding=True),
}


@dataclass(frozen=True)
class Case:
    """Everything that `make_plan` is given, and what of it PyTorch calls a parameter or a buffer."""

    config: Config
    table: Table
    sources: Mapping[str, Shape]
    parameters: frozenset[str]
    buffers: frozenset[str]

    def plan(self) -> Plan | Misfits:
        constants = {name: constant.shape for name, constant in FAMILY.constants(self.config).items()}
        features = FAMILY.features(self.config)
        return make_plan(self.table, self.sources, variables(self.config), constants, features)

    def without(self, *names: str) -> Case:
        return replace(self, sources={name: s for name, s in self.sources.items() if name not in names})

    def having(self, shapes: Mapping[str, Shape]) -> Case:
        """With these tensors as well, or of these shapes."""
        return replace(self, sources={**self.sources, **shapes})

    def faults(self) -> tuple[str, ...]:
        """Every misfit; none at all is a failure."""
        plan = self.plan()
        assert isinstance(plan, Misfits)
        assert plan.faults
        return plan.faults


@cache
def case(name: str) -> Case:
    """One of the configurations, from the PyTorch reference's own names and shapes."""
    config = CONFIGS[name]
    model = WaveletDiff(config)
    (table,) = (t for t in shipped_tables() if t.variant == ("qk_norm" if config.qk_norm else "official"))
    return Case(
        config,
        table,
        {key: tuple(value.shape) for key, value in model.state_dict().items()},
        frozenset(key for key, _ in model.named_parameters()),
        frozenset(key for key, _ in model.named_buffers()),
    )
