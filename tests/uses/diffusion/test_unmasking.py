"""Refining masked tokens, against diffusers' scheduler and the loop of its pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import BlockRefinementScheduler

from wdport.recording.float64 import lifted
from wdport.uses.diffusion.unmasking import UnmaskingSettings, filtered, refine, windows

WORDS, MASK, END = 23, 22, 21
Setting = dict[str, Any]


class Network(NamedTuple):
    """Tables of a small network, in NumPy or JAX."""

    embed: Any
    mix: Any
    places: Any
    out: Any

    def logits(self, tokens: Any, visible: Any, xp: Any = np) -> Any:
        """Logits (B, N, V) of every token from those in view."""
        x = self.embed[tokens] + self.places[: tokens.shape[1]]
        weights = xp.exp(x @ self.mix @ xp.swapaxes(x, 1, 2)) * visible[:, None, :]
        weights = weights / weights.sum(-1, keepdims=True)
        return xp.tanh(x + weights @ x) @ self.out


def network_of(seed: int, sharpness: float = 4.0, width: int = 8) -> Network:
    rng = np.random.default_rng(seed)
    return Network(
        rng.standard_normal((WORDS, width)), rng.standard_normal((width, width)) / width**0.5,
        rng.standard_normal((64, width)), sharpness * rng.standard_normal((width, WORDS)) / width**0.5,
    )  # fmt: skip


def by_library(
    network: Network, tokens: np.ndarray, visible: np.ndarray, start: int, block: int, options: Setting
) -> np.ndarray:
    """The loop of LLaDA2Pipeline for one sample, with the library's scheduler deciding each step."""
    options = dict(options)
    steps, posts = options.pop("steps"), options.pop("posts", 16)
    scheduler, x = BlockRefinementScheduler(), torch.from_numpy(tokens.astype(np.int64))
    scheduler.set_timesteps(steps, block_length=block)
    edits = options.get("editing_threshold") is not None
    for at in range(start, tokens.shape[1], block):
        window, step, post, going = x[:, : at + block], 0, 0, True
        while going:
            now = window[:, -block:]
            left = bool((now == MASK).any())
            post += not left
            logits = torch.from_numpy(network.logits(window.numpy(), visible[:, : at + block]))[:, -block:]
            with lifted():
                made = scheduler.step(logits, step, now, mask_token_id=MASK, **options)
            window[:, -block:] = made.prev_sample
            step += left
            going = scheduler.check_block_should_continue(
                step, left, edits, made.editing_transfer_index, post, posts, torch.zeros(1, dtype=torch.bool)
            )
    return x.numpy()


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@jax.jit
def ours(network: Network, tokens: Any, visible: Any, fixed: Any, settings: UnmaskingSettings) -> Any:
    """The tokens after the first eight, refined in blocks of eight, each with the tokens up to its end in view."""

    def predict(seen: Any, first: Any) -> Any:
        within = jnp.arange(seen.shape[1]) < first + 8
        logits = network.logits(seen, visible[:, : seen.shape[1]] & within, jnp)
        return jax.lax.dynamic_slice_in_dim(logits, first, 8, axis=1)

    keys = jax.random.split(jax.random.key(0), len(tokens))
    among = windows(8, tokens.shape[1] - 8, 8, limit=2)
    return refine(predict, tokens, fixed, MASK, 8, 8, among, settings, keys).tokens


def prompts(seed: int, count: int = 4, start: int = 8, length: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of different length, padded before, and masks behind them."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, start + length), MASK)
    tokens[:, :start] = rng.integers(0, END, (count, start))
    visible = np.ones(tokens.shape, bool)
    for row, kept in enumerate(rng.integers(1, start + 1, count)):
        visible[row, : start - kept] = False
    return tokens, visible


OPTIONS: dict[str, Setting] = {
    "two at a time": {"steps": 4, "threshold": 2.0},
    "uneven": {"steps": 3, "threshold": 2.0},
    "more steps than tokens": {"steps": 11, "threshold": 2.0},
    "by threshold": {"steps": 8, "threshold": 0.6},
    "with edits": {"steps": 4, "threshold": 0.4, "editing": 0.5},
    "few edits": {"steps": 4, "threshold": 0.3, "editing": 0.3, "posts": 1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_writes_the_tokens_of_the_library(wide: None, name: str) -> None:
    theirs = {("editing_threshold" if key == "editing" else key): value for key, value in OPTIONS[name].items()}
    settings, changed = jax.tree.map(jnp.asarray, UnmaskingSettings(**OPTIONS[name])), 0
    for seed in range(6):
        network, (tokens, visible) = network_of(seed), prompts(seed)
        found = np.asarray(ours(network, tokens, visible, tokens != MASK, settings))
        rows = [by_library(network, tokens[[row]], visible[[row]], 8, 8, theirs)[0] for row in range(len(tokens))]
        assert np.array_equal(found, rows)
        changed += int((found != tokens).sum())
    assert changed > 400


def test_given_tokens_stay(wide: None) -> None:
    """Whatever is edited beside them."""
    rng = np.random.default_rng(1)
    tokens, visible = rng.integers(0, END, (3, 24)), np.ones((3, 24), bool)
    gaps = (rng.random(tokens.shape) < 0.4) & (np.arange(24) >= 8)
    settings = jax.tree.map(jnp.asarray, UnmaskingSettings(steps=4, threshold=0.1, editing=0.1, forbidden=MASK))
    found = np.asarray(ours(network_of(1), np.where(gaps, MASK, tokens), visible, ~gaps, settings))
    assert np.array_equal(found[~gaps], tokens[~gaps])
    assert not (found[gaps] == MASK).any()


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.6), (5, 0.5), (40, 0.9), (1, 1.0), (0, 1.0), (2, 0.01)])
def test_filters_keep_what_the_library_keeps(wide: None, top_k: int, top_p: float) -> None:
    logits = np.random.default_rng(0).standard_normal((50, WORDS)) * 3
    with lifted():
        theirs = BlockRefinementScheduler._top_k_filtering(torch.from_numpy(logits), top_k)
        theirs = BlockRefinementScheduler._top_p_filtering(theirs, top_p).numpy()
    assert np.array_equal(np.asarray(filtered(jnp.asarray(logits), top_k, top_p)), theirs)
