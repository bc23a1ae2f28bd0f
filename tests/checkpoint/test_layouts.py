"""Where a state_dict may stand, what is stripped from its names, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from wdport.base.errors import MisfitError
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.state_dict import strip_prefixes

from .bad import refuse

T = torch.zeros(2)
STATE = {"a.weight": torch.ones(2), "b.bias": torch.zeros(3)}


def saved(folder: Path, content: object) -> Path:
    path = folder / "model.pt"
    torch.save(content, path)
    return path


RUN = {"epoch": 3, "global_step": 7, "pytorch-lightning_version": "2.6"}
KEYS = ("model", "model_state_dict", "model_state", "state_dict", "model.state_dict", "net", "generator", "ema")
LAYOUTS: list[tuple[dict[str, Any], str, str | None, dict[str, object]]] = [
    ({**RUN, "state_dict": STATE, "loops": {}, "hyper_parameters": {"lr": 0.1},
      "optimizer_states": [{"state": {0: {"step": T}}}]}, "lightning", "state_dict", RUN),
    (STATE, "bare", None, {}),
    *(({key: STATE, "optimizer": {"state": {}}, "epoch": 1}, "keyed", key, {"epoch": 1}) for key in KEYS),
    ({"model": {"state_dict": STATE, "config": {"depth": 2}}, "epoch": 1}, "keyed", "model.state_dict", {"epoch": 1}),
    ({"state_dict": STATE, "other": {"x": T}}, "keyed", "state_dict", {}),
]  # fmt: skip
"""What a file holds, its layout, where its state_dict stands, and what of a run it says."""


@pytest.mark.parametrize(("content", "layout", "key", "metadata"), LAYOUTS, ids=lambda value: str(value)[:20])
def test_where_a_state_dict_stands(
    content: dict[str, Any], layout: str, key: str | None, metadata: dict[str, object], tmp_path: Path
) -> None:
    with open_checkpoint(saved(tmp_path, content)) as checkpoint:
        assert (checkpoint.layout, checkpoint.key, checkpoint.metadata) == (layout, key, metadata)
        assert {name: checkpoint.read(name).tolist() for name in checkpoint.tensors} == {
            name: value.tolist() for name, value in STATE.items()
        }
        beside = set(content) - {key, (key or "").split(".")[0]} if key else set()
        assert set(checkpoint.other_keys) == beside
        assert checkpoint.prefixes == ()


def test_the_parts_of_one_model_are_nested(tmp_path: Path) -> None:
    with open_checkpoint(saved(tmp_path, {"encoder": STATE, "decoder": STATE})) as checkpoint:
        assert (checkpoint.layout, checkpoint.key) == ("nested", None)


def test_averaged(tmp_path: Path) -> None:
    model = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2))
    with open_checkpoint(saved(tmp_path, model.state_dict())) as checkpoint:
        assert (checkpoint.layout, checkpoint.prefixes) == ("averaged", ("module.",))
        assert checkpoint.ignored == {"n_averaged": "counter of an averaged model"}
        assert list(checkpoint.tensors) == ["weight", "bias"]
        assert checkpoint.tensors["bias"].stored_name == "module.bias"


CHOICES: list[tuple[dict[str, object], str, dict[str, list[str]]]] = [
    ({"model": STATE, "ema": {"x": T}, "epoch": 1},
     "2 candidates for the state_dict: model, ema; choose with key='ema' or 'raw'", {"ema": ["x"]}),
    # As averaged weights are kept by timm, and by programs with names of their own.
    ({"state_dict": STATE, "state_dict_ema": dict(STATE), "callback": {"best": dict(STATE)}},
     "3 candidates for the state_dict: state_dict, state_dict_ema, callback.best; choose one with key=NAME", {}),
    ({"model": {"state_dict": STATE, "net": STATE}, "generator": STATE, "discriminator": STATE},
     "4 candidates for the state_dict: model.state_dict, model.net, generator, discriminator; choose",
     {"model.net": list(STATE)}),
    ({"other": {"a.b": {"x": T}}, "odd": {"y": T}}, "tensors are under other.a.b, odd; choose one with key=NAME",
     {"other.a.b": ["x"], "odd": ["y"]}),
]  # fmt: skip
"""Files in which a key has to choose: the refusal without one, and the tensors under some of the keys."""


@pytest.mark.parametrize(("content", "fragment", "chosen"), CHOICES, ids=range(len(CHOICES)))
def test_a_key_chooses(content: dict[str, object], fragment: str, chosen: dict[str, list[str]], tmp_path: Path) -> None:
    path = saved(tmp_path, content)
    refuse(path, fragment)
    for key, names in chosen.items():
        with open_checkpoint(path, key=key) as checkpoint:
            assert (checkpoint.key, list(checkpoint.tensors)) == (key, names)


MEGATRON = {
    "language_model": {"embedding": {"words": {"weight": T}}, "encoder": {"layers.0.w": T}},
    "head": {"weight": T},
}
PARTS: list[tuple[dict[str, object], list[str], list[str]]] = [
    ({"encoder": STATE, "decoder": dict(STATE), "epoch": 1, "optimizer": {"state": {0: {"m": T}}}},
     ["encoder", "decoder"], [f"{part}.{name}" for part in ("encoder", "decoder") for name in STATE]),
    ({"backbone": {"stem": {"w": T}}, "codes": {"w": T}, "head": {"w": T}, "scale": T},
     ["backbone", "codes", "head"], ["backbone.stem.w", "codes.w", "head.w", "scale"]),
    ({"model": MEGATRON, "iteration": 7}, ["language_model", "head"],
     ["language_model.embedding.words.weight", "language_model.encoder.layers.0.w", "head.weight"]),
    ({"state_dict": {"encoder": STATE, "decoder": STATE}}, ["encoder", "decoder"],
     [f"{part}.{name}" for part in ("encoder", "decoder") for name in STATE]),
    ({"model": {"a": T, "sub": {"b": T}}}, ["sub"], ["a", "sub.b"]),
]  # fmt: skip
"""Files with tables within tables, the keys that are joined, and the names that they give."""


@pytest.mark.parametrize(("content", "parts", "names"), PARTS, ids=range(len(PARTS)))
def test_names_of_parts_are_joined(
    content: dict[str, object], parts: list[str], names: list[str], tmp_path: Path
) -> None:
    path = saved(tmp_path, content)
    with open_checkpoint(path) as checkpoint:
        assert (list(checkpoint.parts), list(checkpoint.tensors)) == (parts, names)
        assert set(checkpoint.other_keys) == content.keys() - {*parts, "scale", checkpoint.key}
        assert checkpoint.read(names[0]).shape == checkpoint.tensors[names[0]].shape


def test_a_part_is_read_by_its_key(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": MEGATRON})
    with open_checkpoint(path, key="model.language_model") as checkpoint:
        assert list(checkpoint.tensors) == ["embedding.words.weight", "encoder.layers.0.w"]


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ({"generator": STATE, "discriminator": STATE}, "2 candidates"),
        ({"model": {"student": STATE, "teacher": STATE}}, "2 candidates"),
        ({"encoder": STATE, "decoder": STATE, "ema_encoder": STATE}, "2 candidates"),
        ({"model": {"a": {"b.c": T}, "a.b": {"c": T}}}, "a.b.c: has the same name as another tensor"),
    ],
)
def test_tables_that_are_not_joined(content: dict[str, object], fragment: str, tmp_path: Path) -> None:
    refuse(saved(tmp_path, content), fragment)


@pytest.mark.parametrize("key", ["none", "epoch", "model.a", "optimizer", ""])
def test_wrong_key(key: str, tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": STATE, "epoch": 1, "optimizer": {"state": {}}})
    refuse(path, "holds no state_dict", key=key)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ([T, T], "holds a list"),
        (T, "holds a single tensor"),
        ("text", "holds the str"),
        ({}, "has no state_dict; its keys are none"),
        ({"epoch": 1, "lr": 0.5}, "its keys are epoch, lr"),
        ({"model": {}}, "has no state_dict"),
        ({"a": T, "lr": 0.5}, "lr: its state_dict entry is the float 0.5"),
        ({"model": {"a": T, "sub": {"b": T, "lr": 0.5}}}, "sub: its state_dict entry is a dict"),
        ({"a": T, 3: T}, "name is the int 3, not text"),
        ({"a": T, "": T}, "0 characters"),
        ({"a": T, "x" * 1001: T}, "1001 characters"),
        ({"a": T, "extra": None}, "extra: its state_dict entry is the NoneType"),
        ({"a": T, "s": torch.zeros(3).untyped_storage()}, "s: its state_dict entry is a bare storage"),
    ],
)
def test_no_state_dict(content: object, fragment: str, tmp_path: Path) -> None:
    refuse(saved(tmp_path, content), fragment)


@pytest.mark.parametrize(
    ("stored", "own", "prefixes"),
    [
        (["a.w", "b"], ["a.w", "b"], ()),
        (["_orig_mod.a.w", "_orig_mod.b"], ["a.w", "b"], ("_orig_mod.",)),
        (["module.a.w", "module.b"], ["a.w", "b"], ("module.",)),
        (["module._orig_mod.a", "module._orig_mod.b"], ["a", "b"], ("module.", "_orig_mod.")),
        (["_orig_mod.module.a"], ["a"], ("_orig_mod.", "module.")),
        (["n_averaged", "module._orig_mod.a"], ["a"], ("module.", "_orig_mod.")),
        (["_orig_mod.n_averaged", "_orig_mod.module.a"], ["a"], ("_orig_mod.", "module.")),
        (["net._orig_mod.a", "net._orig_mod.b.c", "pe"], ["net.a", "net.b.c", "pe"], ("net._orig_mod.",)),
        (
            ["blocks.0._orig_mod.w", "blocks.1._orig_mod.w", "head.module.w"],
            ["blocks.0.w", "blocks.1.w", "head.module.w"],
            ("blocks.0._orig_mod.", "blocks.1._orig_mod."),
        ),
        (
            ["_fsdp_wrapped_module.a._fsdp_wrapped_module._checkpoint_wrapped_module.w", "_fsdp_wrapped_module.b"],
            ["a.w", "b"],
            ("_fsdp_wrapped_module.", "a._fsdp_wrapped_module.", "a._fsdp_wrapped_module._checkpoint_wrapped_module."),
        ),
        (
            ["module._checkpoint_wrapped_module.a.b._orig_mod.w", "module._checkpoint_wrapped_module.c"],
            ["a.b.w", "c"],
            ("module.", "_checkpoint_wrapped_module.", "a.b._orig_mod."),
        ),
        (["_fsdp_wrapped_module._fpw_module.a"], ["a"], ("_fsdp_wrapped_module.", "_fpw_module.")),
        (["a._fsdp_wrapped_module"], ["a._fsdp_wrapped_module"], ()),
        (["n_averaged", "a"], ["n_averaged", "a"], ()),
        (["a._orig_mod"], ["a._orig_mod"], ()),
        (["my_orig_mod.a", "modules.b"], ["my_orig_mod.a", "modules.b"], ()),
    ],
)
def test_prefixes(stored: list[str], own: list[str], prefixes: tuple[str, ...]) -> None:
    names = strip_prefixes(stored)
    assert list(names.network_names.values()) == own
    assert names.prefixes == prefixes
    assert set(names.network_names) | set(names.ignored) == set(stored)


@pytest.mark.parametrize(
    ("stored", "lacking"),
    [
        (["_orig_mod.a", "b"], "b"),
        (["module.a", "b"], "b"),
        (["net._orig_mod.a", "net.b"], "net.b"),
        (["net._orig_mod.a", "net"], None),
        (["net._fsdp_wrapped_module.a", "net.b"], "net.b"),
        (["net._fsdp_wrapped_module.a", "net._orig_mod.b"], "net._orig_mod.b"),
        (["a._orig_mod._checkpoint_wrapped_module.w", "a._orig_mod.v"], "a._orig_mod.v"),
        (["n_averaged", "module.a", "b"], "n_averaged"),
        (["module._orig_mod.a", "module.b"], "module.b"),
    ],
)
def test_mixed_prefixes(stored: list[str], lacking: str | None, tmp_path: Path) -> None:
    path = saved(tmp_path, dict.fromkeys(stored, T))
    if lacking is None:
        open_checkpoint(path).close()
    else:
        refuse(path, f"{lacking}: has no prefix")


@pytest.mark.parametrize("stored", [["_orig_mod.a", "a"], ["module.a", "b", "a"], ["n._orig_mod.a", "n.a"]])
def test_colliding_names(stored: list[str], tmp_path: Path) -> None:
    refuse(saved(tmp_path, dict.fromkeys(stored, T)), "has the same name as", MisfitError)
