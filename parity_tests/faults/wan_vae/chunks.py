"""Known bugs of encoding and decoding in chunks, and their results at the gate chunks (G).

The network's call has none of them, so the gates that compare it with the library do not see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf, log10
from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np

from wdport.families.faults import Kill
from wdport.models.interface import Array
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.chunked import Chunked
from wdport.uses.wan_vae import codec
from wdport.uses.wan_vae.blocks import Chunk, paired
from wdport.uses.wan_vae.codec import to_bytes
from wdport.uses.wan_vae.config import Config
from wdport.uses.wan_vae.family import BOUNDS
from wdport.uses.wan_vae.gates import CHUNKS, chunk_errors

BOTH = ("encode", "decode")


@dataclass(frozen=True)
class ChunkFault:
    """A fault as a context; ``sites`` are what it affects: encode, decode or bytes."""

    name: str
    change: Callable[[], AbstractContextManager[object]]
    sites: tuple[str, ...] = BOTH


def run_chunk_faults(examples: Mapping[str, Config], held: Mapping[str, float] | None = None) -> Iterator[Kill]:
    """Run every fault in every example."""
    limit = (held or {}).get("chunks", BOUNDS["chunks"].value)
    for name, config in examples.items():
        for fault in FAULTS:
            with fault.change():
                errors = chunk_errors(config)
            yield _judge(name, fault, errors, limit)


def _judge(example: str, fault: ChunkFault, errors: Mapping[str, float], limit: float) -> Kill:
    sites = tuple(dict.fromkeys(name.partition(",")[0] for name, error in errors.items() if not error <= limit))
    over = max(errors.values()) / limit
    margin = log10(over) if 0.0 < over < inf else (inf if over else -inf)
    letter = CHUNKS.letter
    return Kill(example, fault.name, " and ".join(fault.sites), letter if sites else "", letter, sites,
                sites == fault.sites, margin)  # fmt: skip


def _in_chunk(name: str, function: Callable[..., Any]) -> Callable[[], AbstractContextManager[object]]:
    """Another method of the stream that the chunks are."""
    return lambda: patch.object(Chunk, name, function)


def _bytes(function: Callable[[Tensor], Tensor]) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(codec, "to_bytes", lambda x, truncate=False: function(x))


def _exchange(change: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """An exchange of the past that returns and keeps what ``change`` makes of (past, frames, count)."""

    def exchange(self: Any, x: Tensor, count: int) -> Tensor:
        past = (jnp.zeros_like(x[:, :1], shape=(x.shape[0], count, *x.shape[2:])) if self._held is None
                else next(self._held))  # fmt: skip
        given, kept = change(past, x, count)
        self.kept.append(kept)
        return given

    return exchange


def _last(past: Tensor, x: Tensor, count: int) -> Tensor:
    return jnp.concatenate([past, x], axis=1)[:, -count:]


def _too_old(past: Tensor, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return past, jnp.concatenate([past, x], axis=1)[:, -count - 1 : -1]


def _halved(self: Any, layer: Any, x: Tensor) -> Tensor:
    made: Tensor = layer(jnp.concatenate([self._exchange(x, 1), x], axis=1))
    return made


def _numbered(change: int) -> Callable[..., Tensor]:
    own = Chunk._numbers
    return lambda self, x: own(self, x) + change


def _uncounted() -> AbstractContextManager[object]:
    own = Chunked.run
    return patch.object(
        Chunked, "run", lambda self, weights, chunks, first, count: own(self, weights, chunks, first, 0)
    )


def _zeros_after() -> AbstractContextManager[object]:
    own = codec._padded

    def padded(array: Array, before: int, count: int) -> Iterator[Array]:
        filled = np.pad(array, ((0, 0), (0, before), (0, 0), (0, 0), (0, 0)))
        return own(filled, 0, count)

    return patch.object(codec, "_padded", padded)


FAULTS: Sequence[ChunkFault] = (
    ChunkFault("bytes: truncating cast", _bytes(lambda x: to_bytes(x, truncate=True)), ("bytes",)),
    ChunkFault("bytes: 128 for 127.5", _bytes(lambda x: jnp.clip(jnp.round((x + 1.0) * 128.0), 0, 255).astype("uint8")),
               ("bytes",)),
    ChunkFault("chunks: past forgotten",
               _in_chunk("_exchange", _exchange(lambda past, x, count: (jnp.zeros_like(past), _last(past, x, count))))),
    ChunkFault("chunks: past one frame too old", _in_chunk("_exchange", _exchange(_too_old))),
    ChunkFault("chunks: past frames in reverse",
               _in_chunk("_exchange", _exchange(lambda past, x, count: (past, _last(past, x, count)[:, ::-1])))),
    ChunkFault("chunks: frames before the video seen", _in_chunk("clean", lambda self, x: x)),
    ChunkFault("chunks: first frame not special", _in_chunk("_numbers", _numbered(1))),
    ChunkFault("chunks: second frame special", _in_chunk("_numbers", _numbered(-1))),
    ChunkFault("chunks: first frame doubled",
               _in_chunk("double", lambda self, layer, x: paired(layer(x, self._exchange(x, 2)))), ("decode",)),
    ChunkFault("chunks: first frame halved", _in_chunk("halve", _halved), ("encode",)),
    ChunkFault("chunks: their numbers not counted", _uncounted),
    ChunkFault("chunks: zeros after the video", _zeros_after),
)  # fmt: skip
