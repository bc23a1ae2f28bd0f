"""`wdport.generate` against the library's model and diffusers' scheduler, what it promises, and texts for tokens."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch
from diffusers import BlockRefinementScheduler
from scipy.stats import chisquare

import wdport
from tests.uses.generation.words import WORDS as VOCABULARY
from tests.uses.generation.words import with_tokenizer
from tests.uses.masked_lm.make import SMALL, Fields, config_of, save, tensors_of
from wdport.base.errors import InputError, MachineError, UsageError
from wdport.base.jax_settings import fast_compile
from wdport.files.manifest_seal import file_sha256
from wdport.models.interface import Array, KerasModel
from wdport.recording.float64 import lifted
from wdport.uses.generation import api
from wdport.uses.generation.api import generator_of
from wdport.uses.masked_lm.family import FAMILY

FIELDS: Fields = {**SMALL, "attention_bias": True, "tie_word_embeddings": True}
MASK, WORDS = FIELDS["mask_token_id"], FIELDS["vocab_size"]


@pytest.fixture(autouse=True)
def _compile_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "fast_run", fast_compile)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m")
    return Path(wdport.convert(save(folder / "m", FIELDS), folder / "m.keras").output)


@pytest.fixture(scope="module")
def model(file: Path) -> KerasModel:
    return wdport.load_model(file)


@pytest.fixture(scope="module")
def double(file: Path) -> KerasModel:
    with jax.enable_x64(True):
        return wdport.load_model(file, "float64")


@pytest.fixture
def wide(double: KerasModel) -> Iterator[KerasModel]:
    with jax.enable_x64(True):
        yield double


def reference() -> torch.nn.Module:
    return FAMILY.build_reference(config_of(FIELDS), tensors_of(FIELDS), "float64")


def by_library(module: torch.nn.Module, prompt: Array, length: int, block: int, steps: int, **options: Any) -> Array:
    """One text, completed in its natural order and without padding: the library's model sees the given tokens and the
    wanted ones up to the end of a block, and its scheduler decides each step."""
    text = torch.from_numpy(np.concatenate([prompt, np.full(length, MASK)]).astype(np.int64))
    wanted = np.flatnonzero(text.numpy() == MASK)
    for first in range(0, len(wanted), block):
        places, hidden = wanted[first : first + block], wanted[first + block :]
        mask = torch.ones(1, len(text), dtype=torch.int64)
        mask[:, hidden] = 0
        scheduler = BlockRefinementScheduler()
        scheduler.set_timesteps(steps, block_length=len(places))
        edits, step, posts, going = "editing_threshold" in options, 0, 0, True
        while going:
            now = text[places][None]
            left = bool((now == MASK).any())
            posts += not left
            with lifted(), torch.no_grad():
                found = module(text[None], mask)
                logits = getattr(found, "logits", found)[:, places]
                logits[..., MASK] = torch.finfo(torch.float64).min
                made = scheduler.step(logits, step, now, mask_token_id=MASK, **options)
            text[places] = made.prev_sample[0]
            step += left
            going = scheduler.check_block_should_continue(
                step, left, edits, made.editing_transfer_index, posts, 16, torch.zeros(1, dtype=torch.bool)
            )
    return text.numpy()


def prompts_of(seed: int, gaps: bool, longest: int = 20) -> list[Array]:
    rng = np.random.default_rng(seed)
    texts = [rng.integers(3, WORDS, size) for size in (longest, 3, *rng.integers(1, longest, 3))]
    return [np.where(rng.random(len(text)) < (0.4 if gaps else 0.0), MASK, text) for text in texts]


CASES: dict[str, tuple[bool, int, int, int, dict[str, float], dict[str, float]]] = {
    "one block": (False, 12, 12, 4, {"threshold": 1.0}, {"threshold": 1.0}),
    "blocks": (False, 20, 4, 2, {"threshold": 1.0}, {"threshold": 1.0}),
    "the last block shorter": (False, 10, 8, 3, {"threshold": 0.2}, {"threshold": 0.2}),
    "gaps": (True, 0, 20, 3, {"threshold": 1.0}, {"threshold": 1.0}),
    "gaps in blocks, and more behind them": (True, 6, 4, 2, {"threshold": 0.15}, {"threshold": 0.15}),
    "edits": (False, 12, 6, 3, {"threshold": 0.1, "edit": 0.12}, {"threshold": 0.1, "editing_threshold": 0.12}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_writes_the_tokens_of_the_library(name: str, wide: KerasModel) -> None:
    gaps, length, block, steps, mine, theirs = CASES[name]
    module, count, compiled = reference(), 0, generator_of(wide).programs
    for seed in range(3):
        prompts = prompts_of(seed, gaps)
        if gaps:
            prompts[0][5:9] = MASK
        found = wdport.generate(wide, prompts, length=length, block_length=block, steps=steps, **mine)
        for prompt, text, set_at in zip(prompts, found.tokens, found.steps, strict=True):
            assert np.array_equal(text, by_library(module, prompt, length, block, steps, **theirs))
            given = prompt != MASK
            assert np.array_equal(text[: len(prompt)][given], prompt[given])
            assert np.array_equal(set_at < 0, np.append(given, np.zeros(length, bool)))
        count += found.wanted
    assert count > 40
    assert generator_of(wide).programs <= compiled + 2


def test_the_default_block_has_32_tokens(wide: KerasModel) -> None:
    """Also where fewer are to be written, but gaps of the prompt are filled with them."""
    for length in (7, 40):
        prompts = prompts_of(length, gaps=True)
        default, given = (wdport.generate(wide, prompts, length=length, steps=3, **block)
                          for block in ({}, {"block_length": 32}))  # fmt: skip
        for one, other in zip(default.tokens, given.tokens, strict=True):
            assert np.array_equal(one, other)


def test_one_program_for_all_settings(file: Path) -> None:
    model, prompts = wdport.load_model(file), prompts_of(0, False)
    calls = [wdport.generate(model, prompts, length=16, steps=n, threshold=1.0).calls for n in (1, 2, 3, 16, 400)]
    assert calls == [1, 2, 3, 16, 16]
    for told in ({"temperature": 0.7, "seed": 3}, {"temperature": 1, "top_k": 3}, {"top_p": 0.5, "temperature": 2.0},
                 {"end": 5}, {"forbid": [4, 5]}, {"edit": 0.3}):  # fmt: skip
        wdport.generate(model, prompts, length=16, **told)
    assert generator_of(model).programs == 1


@pytest.mark.parametrize("gaps", [False, True])
def test_a_text_does_not_depend_on_its_batch(gaps: bool, wide: KerasModel) -> None:
    """Neither on the others, nor on their padding, nor on how many are computed at a time."""
    prompts, length = prompts_of(1, gaps), 0 if gaps else 9
    told: dict[str, Any] = {"length": length, "temperature": 0.9, "top_k": 20, "seed": 4, "steps": 3,
                            "block_length": 3, "threshold": 0.1, "edit": 0.1}  # fmt: skip
    prompts = prompts if not gaps else [np.append(prompt, MASK) for prompt in prompts]
    together = wdport.generate(wide, prompts, **told)
    assert len(set(together.taken.tolist())) > 1
    parts = wdport.generate(wide, prompts, batch=2, **told)
    fewer = wdport.generate(wide, prompts[:2], **told)
    for found in (parts, fewer):
        for number, text in enumerate(found.tokens):
            assert np.array_equal(text, together.tokens[number])
            assert np.array_equal(found.steps[number], together.steps[number])
            assert found.taken[number] == together.taken[number]
    assert len(parts) == len(prompts)


@pytest.mark.parametrize("filters", [{"top_k": 12}, {"top_p": 0.6}, {}])
def test_tokens_are_drawn_by_the_law_of_the_model(wide: KerasModel, filters: dict[str, Any]) -> None:
    """Chi-square of 4,000 draws of the same token against the library's tempered and filtered probabilities."""
    prompt, count, temperature = np.array([7, MASK, 9, 4]), 4000, 4.0
    module = reference()
    with lifted(), torch.no_grad():
        found = module(torch.from_numpy(prompt)[None], torch.ones(1, 4, dtype=torch.int64))
        logits = getattr(found, "logits", found)[0, 1]
        logits[MASK] = torch.finfo(torch.float64).min
        kept = BlockRefinementScheduler._top_k_filtering(logits[None] / temperature, filters.get("top_k"))
        kept = BlockRefinementScheduler._top_p_filtering(kept, filters.get("top_p"))
        law = torch.softmax(kept, -1)[0].numpy()
    done = wdport.generate(wide, [prompt] * count, temperature=temperature, **filters)
    counts = np.bincount([text[1] for text in done.tokens], minlength=WORDS)
    assert (law > 0).sum() == filters.get("top_k", (law > 0).sum())
    assert (law > 0).sum() > 5
    assert not counts[law == 0].any()
    assert chisquare(counts[law > 0], count * law[law > 0]).pvalue > 1e-3


@pytest.mark.parametrize("block", [8, 24])
def test_an_end_cuts_a_text_and_stops_its_sample(model: KerasModel, block: int) -> None:
    prompts = prompts_of(2, False)
    told: dict[str, Any] = {"length": 24, "block_length": block, "temperature": 4.0, "threshold": 1.0}
    free, ends = wdport.generate(model, prompts, **told), 0
    for end in range(3, 12):
        cut = wdport.generate(model, prompts, end=end, **told)
        for prompt, text, whole, taken in zip(prompts, cut.tokens, free.tokens, cut.taken, strict=True):
            found = np.flatnonzero(whole[len(prompt) :] == end)
            last = len(prompt) + found[0] + 1 if len(found) else len(whole)
            assert np.array_equal(text, whole[:last])
            ends += int(taken < 24)
    assert ends > (3 if block == 8 else 0)


def test_forbidden_tokens_are_never_written(model: KerasModel) -> None:
    prompts = prompts_of(3, False)
    allowed = {4, 9, 17}
    done = wdport.generate(model, prompts, length=20, forbid=sorted(set(range(WORDS)) - allowed), temperature=5.0)
    assert {int(token) for prompt, text in zip(prompts, done.tokens, strict=True) for token in text[len(prompt) :]} == (
        allowed
    )


def test_frames_show_every_step(model: KerasModel) -> None:
    done = wdport.generate(model, [[5, MASK, MASK, 8], [MASK]], steps=2, threshold=1.0)
    frames = done.frames(0, MASK)
    assert [int((frame == MASK).sum()) for frame in frames] == [2, 1, 0]
    assert np.array_equal(frames[-1], done.tokens[0])
    assert done.calls == 2
    assert done.taken.tolist() == [2, 1]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompts": []}, "there are none"),
    ({"prompts": [[3, 30]]}, "prompts[0]: has the token 30"),
    ({"prompts": [[3, [4, 5]]]}, "prompts[0]: is not a list of tokens"),
    ({"prompts": [[3], [-1]]}, "prompts[1]: has the token -1"),
    ({"prompts": [[0.5]]}, "give one list of whole numbers"),
    ({"prompts": [[[3]]]}, "shape (1, 1)"),
    ({"length": 0}, "have no mask token (2)"),
    ({"length": -1}, "length"),
    ({"steps": 0}, "steps"),
    ({"block_length": True}, "block_length"),
    ({"threshold": float("nan")}, "threshold"),
    ({"temperature": -0.1}, "temperature"),
    ({"top_k": 0}, "top_k"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_p": 0.0, "temperature": 1.0}, "top_p: is 0"),
    ({"edit": 0}, "edit: is 0"),
    ({"top_k": 3}, "top_k: has no effect at temperature 0"),
    ({"prompts": "a [MASK]"}, "give a list of texts"),
    ({"end": 30}, "end"),
    ({"forbid": [3, 40]}, "forbid[1]"),
    ({"forbid": range(30)}, "leaves no token"),
    ({"mask": 30}, "mask"),
    ({"seed": 1 << 32}, "seed"),
    ({"prompts": [[3, MASK]], "end": 4}, "in a gap"),
]


@pytest.mark.parametrize(("told", "said"), WRONG)
def test_what_is_refused(told: dict[str, Any], said: str, model: KerasModel) -> None:
    arguments = {"prompts": [[3, 4]], "length": 4, **told}
    with pytest.raises(UsageError) as error:
        wdport.generate(model, **arguments)
    assert said in str(error.value)


def test_models_of_other_families_and_without_a_mask_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give a masked language model"):
        wdport.generate(object(), [[3]], length=1)
    unmasked = {**FIELDS, "mask_token_id": 128002}
    other = wdport.load_model(wdport.convert(save(tmp_path / "u", unmasked), tmp_path / "u.keras").output)
    with pytest.raises(UsageError, match="names no mask token"):
        wdport.generate(other, [[3]], length=1)
    assert len(wdport.generate(other, [[3]], length=1, mask=0).tokens[0]) == 2


TEXT = "the cat [MASK] on [MASK] <mask> ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(save(tmp_path_factory.mktemp("m") / "m", FIELDS))


@pytest.fixture(scope="module")
def worded(folder: Path) -> Path:
    return Path(wdport.convert(folder).output)


def test_a_file_keeps_the_tokenizer(folder: Path, worded: Path, tmp_path: Path) -> None:
    """Also when Keras reads the file and saves it again."""
    given = (folder / "tokenizer.json").read_text()
    conversion = wdport.convert(folder, tmp_path / "a.keras")
    assert conversion.manifest["output"]["kept"] == {"tokenizer.json": file_sha256(folder / "tokenizer.json")}
    assert wdport.load_model(worded).tokenizer_json == given
    model = keras.saving.load_model(worded)
    assert model.tokenizer_json == given
    model.save(tmp_path / "again.keras")
    assert wdport.load_model(tmp_path / "again.keras").tokenizer_json == given
    assert wdport.load_model(wdport.convert(folder, tmp_path / "b.safetensors").output).tokenizer_json == ""
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bare" / name).write_bytes((folder / name).read_bytes())
    bare = wdport.convert(tmp_path / "bare")
    assert "kept" not in bare.manifest["output"]
    assert wdport.load_model(bare.output).tokenizer_json == ""


def test_another_tokenizer_in_the_file_is_damage(worded: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(worded) as old, zipfile.ZipFile(tmp_path / "a.keras", "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info, data.replace(b"cat", b"cow") if info.filename.endswith("tokenizer.json") else data)
    with pytest.raises(InputError, match="is damaged"):
        wdport.load_model(tmp_path / "a.keras")


def test_texts_are_completed(worded: Path, folder: Path) -> None:
    model = wdport.load_model(worded)
    done = wdport.generate(model, [TEXT, "he ran"], length=2)
    numbers = [VOCABULARY.index(word) for word in ("the", "cat", "<mask>", "on", "<mask>", "<mask>", ".")]
    same = wdport.generate(model, [[0, *numbers], [0, VOCABULARY.index("he"), VOCABULARY.index("ran")]], length=2)
    assert all(np.array_equal(a, b) for a, b in zip(done.tokens, same.tokens, strict=True))
    assert done.texts[1].startswith("he ran")
    filled = wdport.generate(model, [TEXT], tokenizer=folder)
    kept = [0, VOCABULARY.index("the"), VOCABULARY.index("cat"), VOCABULARY.index("on"), VOCABULARY.index("."), 3]
    assert [filled.tokens[0][at] for at in (0, 1, 2, 4, 7, 8)] == kept


def test_what_is_refused_of_texts(worded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wdport.load_model(worded)
    bare = wdport.load_model(wdport.convert(save(tmp_path / "b", FIELDS)).output)
    with pytest.raises(UsageError, match="keeps no tokenizer"):
        wdport.generate(bare, [TEXT])
    with pytest.raises(UsageError, match="keeps no tokenizer"):
        _ = wdport.generate(bare, [[2]]).texts
    for name, data, said in (("a.json", b"{}", "is not a tokenizer"), ("b.json", b"\xff", "is not UTF-8"),
                             ("none.json", None, "no such file")):  # fmt: skip
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=said):
            wdport.generate(bare, [TEXT], tokenizer=tmp_path / name)
    wide = wdport.load_model(wdport.convert(save(tmp_path / "w", {**FIELDS, "vocab_size": 40})).output)
    with pytest.raises(InputError, match="has no token 31"):
        wdport.generate(wide, [TEXT], tokenizer=worded.with_name("m"), mask=31)
    with pytest.raises(InputError, match="has the ordinary token 'cat' as 5, which is the mask token"):
        wdport.generate(wide, [TEXT], tokenizer=worded.with_name("m"), mask=5)
    own = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tokenizers" else own(name, *rest)
    )
    with pytest.raises(MachineError, match="install wdport"):
        wdport.generate(model, [TEXT])
    assert wdport.generate(model, [[5, 2]]).words is None
