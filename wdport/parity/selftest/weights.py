"""One configuration's random weights in both frameworks: as drawn, and with shifts added to every bias."""

from __future__ import annotations

from typing import Any

import jax

from wdport.errors import InternalError
from wdport.families.roles import Faulty
from wdport.keras_runtime import set_variable
from wdport.mapping.arrays import apply_rule
from wdport.mapping.plan import Misfits, Plan, make_plan
from wdport.mapping.shipped import choose_table
from wdport.model import Array
from wdport.parity.reference import Live

DTYPES = ("float64", "float32")


class Weights:
    """A reference and ports with equal weights; a port is built when it is first needed.

    The ports' weights come from the reference's through the mapping table, as a file's would.
    """

    def __init__(self, family: Faulty, config: Any, seed: int) -> None:
        self.family, self.config, self.moved = family, config, False
        self.tensors = family.random_tensors(config, seed)
        self.table = choose_table(self.tensors, "selftest")
        self.plan = self._make_plan()
        modules = {dtype: family.build_reference(config, self.tensors, dtype) for dtype in DTYPES}
        self.reference = Live(modules, family.signature(config).make)
        self._ports: dict[str, Any] = {}

    def port(self, dtype: str) -> Any:
        """The Keras model of this dtype, with the current weights."""
        if dtype not in self._ports:
            with jax.enable_x64(dtype == "float64"):
                self._ports[dtype] = self.family.build(self.config, dtype)
                self._fill(dtype)
        return self._ports[dtype]

    def use(self, moved: bool) -> None:
        """Set the drawn weights in all models, or those with shifted biases."""
        self.reference.use(moved)
        if moved is not self.moved:
            self.moved = moved
            for dtype in self._ports:
                with jax.enable_x64(dtype == "float64"):
                    self._fill(dtype)

    def _fill(self, dtype: str) -> None:
        made: dict[str, Array] = {}
        for move in self.plan.moves:
            tensor, shift = self.tensors[move.source], self.reference.shifts.get(move.source)
            moved = tensor if shift is None or not self.moved else tensor + shift
            made |= zip(move.targets, apply_rule(move.rule, [moved], move.sizes), strict=True)
        for variable in self._ports[dtype].weights:
            set_variable(variable, made[variable.path])

    def _make_plan(self) -> Plan:
        family, config = self.family, self.config
        shapes = {name: array.shape for name, array in self.tensors.items()}
        constants = {name: constant.shape for name, constant in family.constants(config).items()}
        plan = make_plan(self.table, shapes, family.variables(config), constants, family.features(config))
        if isinstance(plan, Misfits):
            raise InternalError("selftest", plan.faults[0], "correct the table or the reference")
        return plan
