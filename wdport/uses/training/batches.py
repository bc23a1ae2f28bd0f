"""The batches of the training data, as the data set that ``fit`` reads, and which of them are for validation."""

from __future__ import annotations

from copy import copy
from typing import Any

import jax
import keras
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import UsageError
from wdport.uses.training.placement import Placement
from wdport.uses.training.training_data import StateSource


class TrainingBatches(keras.utils.PyDataset):
    """Clean states on the device, or states and their condition, and the weight of every state.

    The order of an epoch follows from the seed and the number of the epoch alone, so that a resumed run needs no state
    of a generator; without a seed, it is that of the data. The last batch is filled up with states of weight 0, so that
    every step has the same shapes. ``states`` are the numbers of those that are read, all by default.
    """

    def __init__(
        self, source: StateSource, batch_size: int, seed: int | None, placement: Placement, states: range | None = None
    ) -> None:
        super().__init__()
        self.source, self.batch_size, self.seed, self.placement = source, batch_size, seed, placement
        self.states = range(source.count) if states is None else states
        self.per_epoch = -(-len(self.states) // batch_size)
        self._held = placement.everywhere(source.held)
        self._take = jax.jit(source.take, out_shardings=placement.batch_sharding)
        self.begin(0)

    def of(self, states: range) -> TrainingBatches:
        """Batches of other states of the same data, which stay on the device, in the order of the data."""
        other = copy(self)
        other.states, other.seed, other.per_epoch = states, None, -(-len(states) // self.batch_size)
        other.begin(0)
        return other

    def begin(self, epoch: int, skipped: int = 0) -> None:
        """Read this epoch from now on, without its first ``skipped`` batches."""
        self.skipped = skipped
        order = np.arange(self.states.start, self.states.stop)
        if self.seed is not None:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        fill = self.per_epoch * self.batch_size - len(order)
        self._numbers = np.concatenate([order, np.resize(order, fill)]).astype(np.int32)
        self._weights = (np.arange(len(self._numbers)) < len(order)).astype(np.float32)

    @property
    def num_batches(self) -> int:
        """The batches of the epoch that are left."""
        return self.per_epoch - self.skipped

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        """The inputs and the weights of a batch, see :class:`~wdport.uses.training.model.DiffusionTraining`."""
        first = (self.skipped + index) * self.batch_size
        numbers = self._numbers[first : first + self.batch_size]
        inputs: Any = self._take(self._held, self.placement.batch(numbers, self.source.feed))
        others = [self.placement.batch(numbers, array.__getitem__) for array in self.source.others]
        inputs = self.source.structure([inputs, *others])
        if (condition := self.source.condition) is not None:
            inputs = inputs, self.placement.batch(numbers, condition.__getitem__)
        weights = self.placement.batch(self._weights[first : first + self.batch_size], np.asarray)
        return inputs, weights


def split(source: StateSource, share: float) -> tuple[range, range]:
    """The numbers of the states for training and, the last ones, for validation; between them are those that share data
    with both.

    Raises :class:`UsageError` if one of the two is empty.
    """
    first = source.count - int(share * source.count)
    training, validation = range(max(first - source.overlap, 0)), range(first, source.count)
    if not (training and validation):
        what = f"{share:g} of {source.count} states leaves none for {'validation' if training else 'training'}"
        raise UsageError("validation_split", what, "give another share, or more data")
    return training, validation
