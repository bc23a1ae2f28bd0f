"""Files with other names than the PyTorch model: one name of a tensor that has several, and former names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import pytest
import torch
from keras import layers
from safetensors.torch import save_file, save_model
from torch import nn

import wdport
from wdport.base.errors import MisfitError
from wdport.conversion.recordable import recordable
from wdport.recording.errors import Refusal
from wdport.recording.user_model import build

HEADER = "format: 2\ninputs: ['ids: b 3, below 5']\n"
ROWS = "layers: [{torch: table, keras: table, kind: embedding}, {torch: norm, keras: norm, kind: layer_norm%s}]\n"
TIES = "tied: [{torch: head.weight, same_as: table.weight}, {torch: last.weight, same_as: head.weight}]\n"


class Tied(nn.Module):
    """A table that is also the weight of two heads."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(5, 4), nn.LayerNorm(4)
        self.head, self.last = nn.Linear(4, 5, bias=False), nn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.last.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(ids))
        return self.head(x) + self.last(x)


def tied() -> nn.Module:
    return Tied()


def untied() -> nn.Module:
    return Tied(False)


def port() -> Any:
    ids = keras.Input((3,), dtype="int32")
    table = layers.ReversibleEmbedding(5, 4, name="table")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(table(ids))
    return keras.Model(ids, 2.0 * table(x, reverse=True))


def port_of_two() -> Any:
    ids = keras.Input((3,), dtype="int32")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.Embedding(5, 4, name="table")(ids))
    return keras.Model(ids, layers.Dense(5, use_bias=False, name="head")(x))


def saved(folder: Path, *names: str, **metadata: str) -> Path:
    torch.manual_seed(0)
    state = {name: tensor + 0.1 for name, tensor in Tied().state_dict().items() if name[:4] == "norm" or name in names}
    save_file({name: tensor.clone() for name, tensor in state.items()}, folder / "m.safetensors", metadata or None)
    return folder / "m.safetensors"


def table(folder: Path, ties: str = TIES, formerly: str = "") -> Path:
    (folder / "t.yaml").write_text(HEADER + ROWS % formerly + ties)
    return folder / "t.yaml"


HERE = f"{__name__}:"
NAMES = ("table.weight", "head.weight", "last.weight")


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:2], NAMES[2:], NAMES[1:], NAMES[::2], NAMES])
@pytest.mark.parametrize("reference", ["tied", "untied"])
def test_either_side_of_a_tie_suffices(tmp_path: Path, names: tuple[str, ...], reference: str) -> None:
    checkpoint, mapping = saved(tmp_path, *names), table(tmp_path)
    output = wdport.convert(checkpoint, mapping=mapping, model=f"{HERE}port").output
    model = wdport.load_model(output, mapping=mapping, model=f"{HERE}port")
    torch.manual_seed(0)
    assert torch.equal(torch.tensor(model.get_layer("table").get_weights()[0]), Tied().table.weight + 0.1)
    # The same names reach the reference, of which `verify` and `record` build two.
    read = recordable(checkpoint, mapping, reference=f"{HERE}{reference}")
    module = build(read.reference, str(checkpoint), None, read.tensors, spare=read.spare).modules["float32"]
    state = module.state_dict()
    assert all(torch.equal(state[name], state["table.weight"]) for name in NAMES)
    assert torch.equal(state["table.weight"], torch.tensor(read.tensors["table.weight"]))


def test_a_left_out_head_is_verified(tmp_path: Path) -> None:
    checkpoint, mapping = saved(tmp_path, "last.weight"), table(tmp_path)
    output = wdport.convert(checkpoint, mapping=mapping, model=f"{HERE}port").output
    assert wdport.verify(checkpoint, output, mapping=mapping, model=f"{HERE}port", reference=f"{HERE}untied")


def test_copies_that_differ_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "m.pt"
    torch.save(Tied(False).state_dict(), checkpoint)
    with pytest.raises(MisfitError, match=r"(head|last)\.weight differs from table\.weight"):
        wdport.convert(checkpoint, mapping=table(tmp_path), model=f"{HERE}port")
    with pytest.raises(Refusal, match=r"head\.weight differs from table\.weight, and the module has one tensor"):
        build(f"{HERE}tied", str(checkpoint))


def test_ties_of_the_reference_itself(tmp_path: Path) -> None:
    state = {name: tensor + 0.1 for name, tensor in Tied().state_dict().items() if name not in NAMES[1:]}
    torch.save(state, tmp_path / "m.pt")
    built = build(f"{HERE}tied", str(tmp_path / "m.pt")).modules["float32"].state_dict()
    assert torch.equal(built["last.weight"], state["table.weight"])
    with pytest.raises(Refusal, match=r"lacks head\.weight and 1 more"):
        build(f"{HERE}untied", str(tmp_path / "m.pt"))


def test_metadata_of_save_model_states_the_names(tmp_path: Path) -> None:
    module = Tied()
    save_model(module, str(tmp_path / "m.safetensors"))  # keeps head.weight alone
    rows = "layers: [{torch: table, keras: table, kind: embedding}, {torch: norm, keras: norm, kind: layer_norm}"
    both = f"{rows}, {{torch: head, keras: head, kind: linear}}]\n"
    (tmp_path / "t.yaml").write_text(HEADER + both)
    output = wdport.convert(tmp_path / "m.safetensors", mapping=tmp_path / "t.yaml", model=f"{HERE}port_of_two").output
    model = wdport.load_model(output, mapping=tmp_path / "t.yaml", model=f"{HERE}port_of_two")
    for name, transposed in (("table", False), ("head", True)):
        array = torch.tensor(model.get_layer(name).get_weights()[0])
        assert torch.equal(array.T if transposed else array, module.table.weight)


def test_metadata_may_be_about_anything(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, "table.weight", note="table.weight", format="table.weight")
    assert wdport.convert(checkpoint, mapping=table(tmp_path), model=f"{HERE}port").output.exists()


def former(folder: Path, names: Mapping[str, str]) -> Path:
    torch.manual_seed(0)
    state = {name: tensor + 0.1 for name, tensor in Tied().state_dict().items() if name not in NAMES[1:]}
    torch.save({names.get(name, name): tensor for name, tensor in state.items()}, folder / "m.pt")
    return folder / "m.pt"


OLD = {"norm.weight": "norm.gamma", "norm.bias": "norm.beta"}


def renaming(checkpoint: str) -> nn.Module:
    state, module = torch.load(checkpoint), Tied()
    names = {old: name for name, old in OLD.items()}
    module.load_state_dict({names.get(name, name): tensor for name, tensor in state.items()}, strict=False)
    return module


@pytest.mark.parametrize("reference", ["tied", "renaming"])
def test_former_names_of_tensors(tmp_path: Path, reference: str) -> None:
    checkpoint, mapping = former(tmp_path, OLD), table(tmp_path, formerly=", formerly: {weight: gamma, bias: beta}")
    output = wdport.convert(checkpoint, mapping=mapping, model=f"{HERE}port").output
    read = recordable(checkpoint, mapping, reference=f"{HERE}{reference}")
    assert {"norm.weight", "norm.bias"} < set(read.tensors)
    assert wdport.verify(checkpoint, output, mapping=mapping, model=f"{HERE}port", reference=f"{HERE}{reference}")


@pytest.mark.parametrize("reference", ["tied", "renaming"])
def test_names_of_the_file_that_the_reference_does_not_have(tmp_path: Path, reference: str) -> None:
    checkpoint, mapping = former(tmp_path, OLD), table(tmp_path, formerly=", names: {weight: gamma, bias: beta}")
    output = wdport.convert(checkpoint, mapping=mapping, model=f"{HERE}port").output
    with pytest.raises(MisfitError, match=r"norm\.b(eta|ias)") as refused:
        wdport.verify(checkpoint, output, mapping=mapping, model=f"{HERE}port", reference=f"{HERE}{reference}")
    assert "`formerly`" in refused.value.fix
