"""The network for generation: :meth:`MaskedLM.part` as a pure function of the model's weights."""

from __future__ import annotations

from weakref import ref

import keras
from jax import Array as Tensor

from wdport.families.masked_lm.port import MaskedLM
from wdport.model import KerasVariable


class Predictor:
    """Implements :class:`wdport.families.roles.TokenNetwork`."""

    def __init__(self, model: MaskedLM) -> None:
        # What keeps this network, with its compiled programs, must not keep the model alive.
        self._model = ref(model)

    def weights(self) -> list[Tensor]:
        return [variable.value for variable in self._variables()]

    def predict(
        self, weights: list[Tensor], tokens: Tensor, visible: Tensor, positions: Tensor, first: Tensor, count: int
    ) -> Tensor:
        # Values as arguments: a program that closed over them would hold them as constants.
        mapping = list(zip(self._variables(), weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return self._live_model().part(tokens, visible, positions, first, count)

    def _variables(self) -> list[KerasVariable]:
        return list(self._live_model().weights)

    def _live_model(self) -> MaskedLM:
        model = self._model()
        if model is None:
            raise ReferenceError("the model no longer exists")
        return model
