"""Refining masked tokens, against diffusers' scheduler and the loop of its pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import BlockRefinementScheduler
from scipy.stats import chisquare

from wdport.diffusion.unmasking import NEVER, Refined, UnmaskingSettings, choose, filtered, refine, windows
from wdport.recorder import lifted

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


TRACED: list[int] = []


@partial(jax.jit, static_argnames=("start", "whole"))
def run(
    network: Network,
    tokens: Any,
    visible: Any,
    fixed: Any,
    keys: Any,
    settings: UnmaskingSettings,
    start: int,
    whole: bool = False,
) -> Refined:
    """Blocks of eight tokens, each with the tokens up to its end in view, or with all."""
    TRACED.append(1)
    among = windows(start, tokens.shape[1] - start, 8, limit=2, full_context=whole)

    def predict(seen: Any, first: Any) -> Any:
        within = (jnp.arange(seen.shape[1]) < first + 8) | whole
        logits = network.logits(seen, visible[:, : seen.shape[1]] & within, jnp)
        return jax.lax.dynamic_slice_in_dim(logits, first, 8, axis=1)

    return refine(predict, tokens, fixed, MASK, start, 8, among, settings, keys)


def ours(
    network: Network,
    tokens: Any,
    visible: Any,
    fixed: Any = None,
    whole: bool = False,
    only: Any = slice(None),
    **told: Any,
) -> Refined:
    """All samples at once, or ``only`` some of them, compiled; without ``fixed`` the first eight tokens are given."""
    fixed = np.broadcast_to(np.arange(tokens.shape[1]) < 8, tokens.shape) if fixed is None else fixed
    settings = jax.tree.map(jnp.asarray, UnmaskingSettings(**told))
    keys = jax.random.split(jax.random.key(0), len(tokens))[only]
    found = run(network, tokens[only], visible[only], fixed[only], keys, settings, start=0 if whole else 8, whole=whole)
    return Refined(*map(np.asarray, found))


def prompts(seed: int, count: int = 4, start: int = 8, length: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of different length, padded before, and masks behind them."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, start + length), MASK)
    tokens[:, :start] = rng.integers(0, END, (count, start))
    visible = np.ones(tokens.shape, bool)
    for row, kept in enumerate(rng.integers(1, start + 1, count)):
        visible[row, : start - kept] = False
    return tokens, visible


OPTIONS: dict[str, tuple[Setting, Setting]] = {
    "two at a time": ({"steps": 4, "threshold": 2.0}, {"steps": 4, "threshold": 2.0}),
    "uneven": ({"steps": 3, "threshold": 2.0}, {"steps": 3, "threshold": 2.0}),
    "more steps than tokens": ({"steps": 11, "threshold": 2.0}, {"steps": 11, "threshold": 2.0}),
    "by threshold": ({"steps": 8, "threshold": 0.6}, {"steps": 8, "threshold": 0.6}),
    "with edits": (
        {"steps": 4, "threshold": 0.4, "editing": 0.5},
        {"steps": 4, "threshold": 0.4, "editing_threshold": 0.5},
    ),
    "few edits": (
        {"steps": 4, "threshold": 0.3, "editing": 0.3, "posts": 1},
        {"steps": 4, "threshold": 0.3, "editing_threshold": 0.3, "posts": 1},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_writes_the_tokens_of_the_library(wide: None, name: str) -> None:
    mine, theirs = OPTIONS[name]
    changed = 0
    for seed in range(6):
        network, (tokens, visible) = network_of(seed), prompts(seed)
        found = ours(network, tokens, visible, **mine)
        rows = [by_library(network, tokens[[row]], visible[[row]], 8, 8, theirs)[0] for row in range(len(tokens))]
        assert np.array_equal(found.tokens, rows)
        changed += int((found.tokens != tokens).sum())
    assert changed > 400


def test_all_settings_are_numbers_of_one_program(wide: None) -> None:
    network, (tokens, visible) = network_of(0), prompts(0)
    ours(network, tokens, visible)
    before = len(TRACED)
    calls = [int(ours(network, tokens, visible, steps=steps, threshold=2.0).calls) for steps in (1, 2, 8)]
    assert calls == [3, 6, 24]
    for told in (
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.5},
        {"end": END},
    ):
        ours(network, tokens, visible, **told)
    assert len(TRACED) == before


def test_a_sample_does_not_depend_on_its_batch(wide: None) -> None:
    """With a threshold and edits some samples take more steps than others; the draws are each sample's own."""
    network, (tokens, visible) = network_of(3), prompts(3)
    told = {"steps": 4, "threshold": 0.4, "editing": 0.4, "temperature": 0.9}
    among = ours(network, tokens, visible, **told)
    assert len(set(among.step_counts.tolist())) > 1
    for row in range(len(tokens)):
        alone = ours(network, tokens, visible, only=slice(row, row + 1), **told)
        assert np.array_equal(alone.tokens[0], among.tokens[row])
        assert np.array_equal(alone.steps[0], among.steps[row])


def test_given_tokens_stay(wide: None) -> None:
    """Gaps in a text are filled, with the text behind them in view; everything else is kept."""
    network, rng = network_of(1), np.random.default_rng(1)
    tokens, visible = rng.integers(0, END, (3, 16)), np.ones((3, 16), bool)
    gaps = rng.random(tokens.shape) < 0.4
    gaps[:, -1], told = False, {"steps": 4, "forbidden": MASK, "whole": True}
    found = ours(network, np.where(gaps, MASK, tokens), visible, ~gaps, **told)
    assert np.array_equal(found.tokens[~gaps], tokens[~gaps])
    assert not (found.tokens[gaps] == MASK).any()
    assert (found.steps[~gaps] == NEVER).all()
    assert (found.steps[gaps] >= 0).all()
    tokens[:, -1] = (tokens[:, -1] + 1) % END
    again = ours(network, np.where(gaps, MASK, tokens), visible, ~gaps, **told)
    assert not np.array_equal(again.tokens[:, :8], found.tokens[:, :8])


def test_the_end_of_a_text_stops_its_sample(wide: None) -> None:
    """A sample stops once a token END has no mask before it; the others go on, and what it has said stays the same."""
    ended, told = 0, {"steps": 8, "threshold": 2.0, "forbidden": MASK}
    for seed in range(8):
        network, (tokens, visible) = network_of(seed, sharpness=1.0), prompts(seed)
        network.out[:, END] += 0.7
        found, free = (ours(network, tokens, visible, end=end, **told) for end in (END, NEVER))
        for row in range(len(tokens)):
            places = np.flatnonzero(free.tokens[row, 8:] == END)
            last = 8 + places[0] + 1 if len(places) else 32
            assert np.array_equal(found.tokens[row, :last], free.tokens[row, :last])
            ended += int(found.step_counts[row] < free.step_counts[row])
    assert ended > 3


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.6), (5, 0.5), (40, 0.9), (1, 1.0), (0, 1.0), (2, 0.01)])
def test_filters_keep_what_the_library_keeps(wide: None, top_k: int, top_p: float) -> None:
    logits = np.random.default_rng(0).standard_normal((50, WORDS)) * 3
    with lifted():
        theirs = BlockRefinementScheduler._top_k_filtering(torch.from_numpy(logits), top_k)
        theirs = BlockRefinementScheduler._top_p_filtering(theirs, top_p).numpy()
    assert np.array_equal(np.asarray(filtered(jnp.asarray(logits), top_k, top_p)), theirs)


@pytest.mark.parametrize("told", [{}, {"top_k": 4}, {"top_p": 0.7}])
def test_tokens_are_drawn_by_the_law_of_the_library(wide: None, told: Setting) -> None:
    """Chi-square of 40,000 draws against the tempered and filtered probabilities, as torch computes them."""
    logits, count = np.random.default_rng(2).standard_normal(9) * 2, 40_000
    with lifted():
        theirs = torch.from_numpy(logits) / 0.8
        theirs = BlockRefinementScheduler._top_k_filtering(theirs[None], told.get("top_k"))
        theirs = BlockRefinementScheduler._top_p_filtering(theirs, told.get("top_p"))
        law = torch.softmax(theirs, -1)[0].numpy()
    keys = jax.random.split(jax.random.key(5), count)
    settings = jax.tree.map(jnp.asarray, UnmaskingSettings(temperature=0.8, **told))
    chosen, chance = choose(
        jnp.broadcast_to(logits, (count, 1, 9)), settings, keys, jnp.zeros(count, jnp.int32), jnp.arange(1)
    )
    counts = np.bincount(np.asarray(chosen)[:, 0], minlength=9)
    possible = law > 0
    assert not counts[~possible].any()
    if possible.sum() > 1:
        assert chisquare(counts[possible], count * law[possible]).pvalue > 1e-3
    assert np.allclose(np.asarray(chance)[:, 0], law[np.asarray(chosen)[:, 0]], rtol=1e-12)
