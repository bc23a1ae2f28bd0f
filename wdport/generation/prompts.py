"""Arrange prompts of any length, with gaps anywhere, in one batch: given tokens first, wanted tokens after them.

A network with explicit positions reads tokens in any order. So filling a gap and writing on are the same task: the
wanted tokens of every sample are side by side, logits are computed only for them, and a sample's arrangement depends on
the others only by its padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wdport.errors import UsageError
from wdport.model import Array, Vocabulary

BLOCK: Final = 32
"""Tokens of a block if ``length`` is given, as in the library; fewer, if no sample wants as many, are the same."""

ROUNDED: Final = 16
"""Given tokens are padded to a multiple of this, and wanted ones without blocks, so that few programs are compiled."""


@dataclass(frozen=True)
class Arranged:
    """Prompts as arrays (B, N), N = ``start`` + blocks of ``block`` tokens.

    Before ``start`` are the given tokens of each sample, padded on the left; from there on its wanted tokens, as
    ``mask``, padded on the right. ``positions`` are the tokens' places in the text, ``visible`` is false for padding.
    """

    tokens: Array
    visible: Array
    positions: Array
    start: int
    block: int
    mask: int

    def __getitem__(self, rows: slice) -> Arranged:
        """Some of the samples."""
        parts = self.tokens[rows], self.visible[rows], self.positions[rows]
        return Arranged(*parts, self.start, self.block, self.mask)

    def texts(self, values: Array) -> list[Array]:
        """The ``values`` (B, N) of each sample's tokens in the order of its text."""
        ordered = []
        for row, visible, places in zip(values, self.visible, self.positions, strict=True):
            text = np.empty(int(visible.sum()), values.dtype)
            text[places[visible]] = row[visible]
            ordered.append(text)
        return ordered


def read_prompts(prompts: Iterable[Sequence[int] | Array], vocabulary: Vocabulary) -> list[Array]:
    """Prompts as int32 arrays; raises :class:`UsageError` naming the first that is none of this vocabulary."""
    arrays = []
    for number, prompt in enumerate(prompts):
        try:
            array = np.asarray(prompt)
        except ValueError as error:
            raise UsageError(f"prompts[{number}]", f"is no list of tokens ({error})", "give whole numbers") from None
        if array.size == 0:
            array = array.reshape(-1).astype(np.int32)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            what = f"has shape {array.shape} and dtype {array.dtype}"
            raise UsageError(f"prompts[{number}]", what, "give one list of whole numbers per prompt")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < vocabulary.size:
            wrong = int(array.min()) if array.min() < 0 else int(array.max())
            fix = f"the model has tokens from 0 to {vocabulary.size - 1}"
            raise UsageError(f"prompts[{number}]", f"has the token {wrong}", fix)
        arrays.append(array.astype(np.int32))
    if not arrays:
        raise UsageError("prompts", "there are none", "give at least one list of tokens")
    return arrays


def arranged(prompts: Sequence[Array], mask: int, length: int, block: int | None) -> Arranged:
    """Arrange ``prompts``, each with ``length`` wanted tokens after it; in blocks of ``block``, by default of
    :data:`BLOCK` if there is a ``length`` and otherwise all in one."""
    texts = [np.concatenate([prompt, np.full(length, mask, np.int32)]) for prompt in prompts]
    open_masks = [text == mask for text in texts]
    largest = max(int(open_mask.sum()) for open_mask in open_masks)
    start = _multiple(max(int((~open_mask).sum()) for open_mask in open_masks), ROUNDED)
    size = block or (min(BLOCK, largest) if length else _multiple(largest, ROUNDED))
    shape = (len(texts), start + _multiple(largest, size))
    tokens = np.full(shape, int(mask == 0), np.int32)
    visible, positions = np.zeros(shape, bool), np.zeros(shape, np.int32)
    for row, (text, open_) in enumerate(zip(texts, open_masks, strict=True)):
        fixed_places, open_places = np.flatnonzero(~open_), np.flatnonzero(open_)
        for places, first in ((fixed_places, start - len(fixed_places)), (open_places, start)):
            part = slice(first, first + len(places))
            tokens[row, part], visible[row, part], positions[row, part] = text[places], True, places
    return Arranged(tokens, visible, positions, start, size, mask)


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of
