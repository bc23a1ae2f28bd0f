"""The parts of `wdport map suggest`: prints of values, folding, tables from names alone, and its refusals.

Whole models are in parity_tests/suggest.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.command import Cli, Refused
from tests.parity.test_reports import passing
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import parse_table
from wdport.parity.proving.proof import slow_proof
from wdport.parity.proving.suggest import Models, Suggestion
from wdport.porting.candidate_rows import axes_between, table_of_rows, tensor_rules
from wdport.porting.fingerprints import Print, Prints
from wdport.porting.table_text import Doubt, fold, fold_doubts, sections, table_text


@given(st.integers(0, 2**32 - 1), st.permutations(range(3)))
def test_moved_padded_and_repeated_values_have_one_print(seed: int, order: list[int]) -> None:
    values = np.random.default_rng(seed).standard_normal((2, 3, 5))
    moved = np.pad(values.transpose(order), [(0, 0), (1, 2), (0, 1)])
    assert Print(values).same(Print(moved))
    assert Print(values).same(Print(np.concatenate([values, values])))
    assert Print(values).same(Print(values * (1 + 1e-14)))
    other = values.copy()
    other.flat[seed % other.size] += 1e-6
    assert not Print(values).same(Print(other))


def test_whole_numbers_are_compared_in_order() -> None:
    ids = np.array([[3, 1, 2]])
    assert Print(ids).same(Print(np.array([3, 1, 2], np.int32)))
    assert Print(ids).same(Print(np.array([[3, 1, 2], [3, 1, 2]])))
    assert not Print(ids).same(Print(np.array([1, 2, 3])))
    assert not Print(ids).same(Print(ids.astype(float)))


def test_prints_are_found_and_zeros_tell_nothing() -> None:
    known: Prints[str] = Prints()
    values = np.random.default_rng(0).standard_normal((4, 6))
    known.add(Print(values), "values")
    known.add(Print(np.zeros(3)), "zeros")
    assert list(known.find(Print(values.T))) == ["values"]
    assert list(known.find(Print(np.zeros((3, 1))))) == []
    assert list(known.find(Print(values + 1))) == []


ROWS = [
    *({"torch": f"blocks.{n}.fc{m}", "keras": f"stack/{n + 1}/dense_{m}", "kind": "linear"}
      for n in range(3) for m in (1, 2)),
    {"torch": "blocks.0.special", "keras": "special", "kind": "linear"},
    {"torch": "head", "keras": "head", "kind": "linear", "then": "softmax"},
]  # fmt: skip


def plan_of(rows: list[dict[str, object]], text: str | None = None) -> set[object]:
    """Which tensors fill which variables."""
    sources, targets = {}, {}
    for row in ROWS:
        sources |= {f"{row['torch']}.weight": (3, 2), f"{row['torch']}.bias": (3,)}
        targets |= {f"{row['keras']}/kernel": (2, 3), f"{row['keras']}/bias": (3,)}
    table = parse_table(text.encode(), "t") if text else table_of_rows(rows)
    plan = make_plan(table, sources, targets, {})
    assert isinstance(plan, Plan), plan
    return {(move.sources, move.targets) for move in plan.moves}


def test_folded_rows_say_the_same_in_fewer() -> None:
    modules = [str(row["torch"]) for row in ROWS]
    rows = fold(ROWS, modules, [])
    assert len(rows) == 3
    assert rows[0] == {"torch": "blocks.<n>.fc<m>", "keras": "stack/<n+1>/dense_<m>", "kind": "linear"}
    text = table_text(sections(rows), "a:b", "c:d", ["x: b 3"], doubts=["one"])
    assert plan_of([], text) == plan_of(ROWS)
    assert "# doubt: one" in text


def test_a_pattern_that_would_match_another_module_is_not_used() -> None:
    modules = [*(str(row["torch"]) for row in ROWS), "blocks.7.fc1"]
    rows = fold(ROWS, modules, [])
    assert not any("<n>" in str(row["torch"]) and "fc1" in str(row["torch"]) for row in rows)
    assert plan_of(rows) == plan_of(ROWS)


def test_flat_names_on_one_side_make_no_section() -> None:
    rows = [
        {"torch": f"blocks.{n}.{part}", "keras": f"b{n}_{part}", "kind": "linear"} for n in range(3) for part in "xyz"
    ]
    folded = fold(rows, [str(row["torch"]) for row in rows], [])
    assert [part.torch for part in sections(folded)] == [""] * 3
    assert "keras: b<n>_x" in table_text(sections(folded), "a:b", "c:d", [])


def test_doubts_of_one_kind_are_one() -> None:
    names = ("a.0.b", "a.1.b", "c")
    found = fold_doubts([*(Doubt(name, "dropped") for name in names), Doubt("d", "kept")])
    assert found == ["a.0.b (2 alike), c: dropped", "d: kept"]


def test_rules_between_shapes() -> None:
    assert list(tensor_rules((3,), (3,))) == ["... -> ..."]
    assert list(tensor_rules((1, 4, 3), (4, 3))) == ["1 a b -> a b"]
    assert list(tensor_rules((4, 4), (4, 4))) == ["... -> ...", "a b -> b a"]
    assert list(tensor_rules((4, 3), (5, 3))) == []


def test_axes_between_activations() -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, 5, 1))
    assert "b c h 1 -> b h c" in list(axes_between(values, values[..., 0].transpose(0, 2, 1)))


TWIN = """
import keras
from keras import layers


def build():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(2, name="second")(layers.Dense({width}, "relu", name="first")(x)))
"""
NET = """
import torch


def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
"""


BOTH = ["--reference", "suggested_net:build", "--keras-model", "suggested_twin:build"]
SUGGEST = ["map", "suggest", *BOTH, "--input", "x: b 4", "-o", "t.yaml"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "suggested_net.py").write_text(NET)
    (tmp_path / "suggested_twin.py").write_text(TWIN.format(width=3))
    for name in ("suggested_net", "suggested_twin"):
        sys.modules.pop(name, None)
    return tmp_path


@pytest.mark.usefixtures("project")
def test_a_checkpoint_alone_gives_a_guess(cli: Cli) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    torch.save(module.state_dict(), "net.pt")
    cli("map", "suggest", "--checkpoint", "net.pt", "--keras-model", "suggested_twin:build", "-o", "t.yaml")
    text = Path("t.yaml").read_text()
    assert "nothing is proved" in text
    assert '{torch: "0", keras: first, kind: linear}' in text
    cli("map", "check", "t.yaml", "net.pt", "--keras-model", "suggested_twin:build")


@pytest.mark.usefixtures("project")
def test_refusals(refused: Refused) -> None:
    for words, code, says in (
        (BOTH[2:], 2, "--reference"),
        (BOTH[:2], 2, "--keras-model"),
        (BOTH, 2, "the models' inputs are not known"),
        ([*BOTH, "--input", "x: b 5"], 4, "where the Keras model takes"),
        ([*BOTH, "--input", "x: b 4", "-o", "suggested_net.py"], 2, "exists already"),
        (["--reference", "suggested_net:none", *BOTH[2:], "--input", "x: b 4"], 2, "none"),
    ):
        refused("map", "suggest", *words, code=code, says=says)
    assert Path("suggested_net.py").read_text() == NET


def test_a_twin_of_another_width_stops_at_its_layer(project: Path, cli: Cli) -> None:
    (project / "suggested_twin.py").write_text(TWIN.format(width=5))
    said = cli(*SUGGEST, code=4).out
    assert "the first that does not:     first" in said
    assert "units (out_features) 5 where the reference has 3" in said
    assert not Path("t.yaml").exists()


def test_a_table_that_is_not_proved_ends_with_the_code_of_its_verdict(project: Path, cli: Cli) -> None:
    """A ReLU that ends at 20 is one for the inputs that are compared first, not for the larger ones of the proof."""
    capped = """
import keras
from keras import layers


def build():
    x = keras.Input((4,))
    hidden = layers.ReLU(max_value=20)(layers.Dense(3, name="first")(x))
    return keras.Model(x, layers.Dense(2, name="second")(hidden))
"""
    (project / "suggested_twin.py").write_text(capped)
    cli(*SUGGEST, code=1)
    assert "not proved" in Path("t.yaml").read_text().lower()


FUSED_NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


build = Net
"""
FUSED_TWIN = """
import keras
from keras import layers, ops


def build():
    x = keras.Input((6, 8))
    heads = ops.reshape(layers.Dense(24, name="qkv")(x), (-1, 6, 3, 2, 4))
    q, k, v = [ops.transpose(heads[:, :, part], (0, 2, 1, 3)) for part in range(3)]
    weights = ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) / 2)
    merged = ops.reshape(ops.swapaxes(ops.matmul(weights, v), 1, 2), (-1, 6, 8))
    return keras.Model(x, layers.Dense(8, name="out")(merged))
"""


def test_packed_projections_become_one_layer(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(FUSED_NET)
    (project / "suggested_twin.py").write_text(FUSED_TWIN)
    said = cli("map", "suggest", *BOTH, "--input", "x: b 6 8", "-o", "t.yaml").out
    assert "proved: verify finds the two models equal" in said
    assert "doubt" not in said
    assert "{torch: attn.in_proj_weight, keras: qkv/kernel, rule: linear}" in Path("t.yaml").read_text()


TIED_NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = nn.Embedding(30, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 30, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.fc(self.words(ids)))


build = Net
"""
TIED_TWIN = """
import keras
from keras import layers, ops


def build():
    ids = keras.Input((12,), dtype="int32")
    words = layers.ReversibleEmbedding(30, 8, name="words")
    x = layers.Dense(8, name="fc")(words(ids))
    return keras.Model(ids, words(x, reverse=True))
"""
TIED = ["--input", "ids: b 12, below 30"]


def test_a_tied_output_layer(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(TIED_NET)
    (project / "suggested_twin.py").write_text(TIED_TWIN)
    said = cli("map", "suggest", *BOTH, *TIED, "-o", "t.yaml").out
    assert "proved: verify finds the two models equal" in said
    assert "{torch: head.weight, same_as: words.weight}" in Path("t.yaml").read_text()
    said = cli("map", "outline", *BOTH[:2], *TIED).out
    assert "its weight is words.weight: call a layers.ReversibleEmbedding with reverse=True instead" in said


def test_weights_of_the_moment_when_a_model_is_built_are_a_cause(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(TIED_NET)
    frozen = "ops.matmul(x, ops.transpose(words.embeddings))"
    (project / "suggested_twin.py").write_text(TIED_TWIN.replace("words(x, reverse=True)", frozen))
    said = cli("map", "suggest", *BOTH, *TIED, code=4).out
    assert "probably: matmul uses words/embeddings as it was when the model was built; compute it in" in said


LOOP_TWIN = """
from keras import Input, Model, layers


def build():
    x = Input((6, 5))
    return Model(x, layers.RNN([layers.LSTMCell(7), layers.LSTMCell(7)], return_sequences=True)(x))
"""


def test_cells_in_a_loop_are_a_cause(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text("from torch.nn import LSTM\n\n\ndef build():\n    return LSTM(5, 7, 2)\n")
    (project / "suggested_twin.py").write_text(LOOP_TWIN)
    said = cli("map", "suggest", *BOTH, "--input", "x: b 6 5", code=4).out
    assert "probably: its cells run in a loop of Keras" in said


EXPERTS_NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))

    def forward(self, x):
        return self.experts[0](x) + 2 * self.experts[1](x)


build = Net
"""
EXPERTS_TWIN = """
import keras
from keras import ops


class Net(keras.Model):
    def build(self, shape=None):
        self.kernel = self.add_weight(shape=({count}, 4, 3), name="kernel")
        self.bias = self.add_weight(shape=({count}, 3), name="bias")
        self.built = True

    def call(self, x):
        y = ops.einsum("bi,eio->beo", x, self.kernel) + self.bias
        return y[:, 0] + 2 * y[:, 1]


def build():
    model = Net()
    model(ops.zeros((1, 4)))
    return model
"""


def test_weights_of_several_modules_in_one_variable_of_the_model_itself(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(EXPERTS_NET)
    (project / "suggested_twin.py").write_text(EXPERTS_TWIN.format(count=2))
    said = cli(*SUGGEST).out
    row = '{torch: [experts.0.weight, experts.1.weight], keras: kernel, rule: "[part] a b -> part b a"}'
    assert row in Path("t.yaml").read_text()
    assert "\nproved: " in said


def test_a_variable_that_no_tensor_fits(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(EXPERTS_NET)
    (project / "suggested_twin.py").write_text(EXPERTS_TWIN.format(count=3))
    said = cli(*SUGGEST, code=4).out
    assert "no tensor that is left fits the variable kernel (3, 4, 3), neither alone nor stacked with others" in said
    assert "probably" not in said


IMAGES_NET = """
import torch
from torch import nn


class Stats(nn.Module):
    def forward(self, x):
        return torch.cat([x.amax((2, 3)), x.std((2, 3))], -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 5, 3, 2, 1, output_padding=1)
        self.stats, self.head = Stats(), nn.Linear(10, 2)

    def forward(self, x):
        return self.head(self.stats(self.b(self.a(x).tanh())))


build = Net
"""
IMAGES_TWIN = """
import keras
from keras import layers, ops


class Stats(layers.Layer):
    def call(self, x):
        n = x.shape[1] * x.shape[2]
        std = ops.sqrt(ops.var(x, (1, 2)) * n / (n - 1))
        return ops.concatenate([ops.max(x, (1, 2)), std], -1)


def build():
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, 2, activation="tanh", name="a")(layers.ZeroPadding2D(1)(x))
    y = layers.Cropping2D(1)(layers.Conv2DTranspose(5, 3, 2, output_padding=1, name="b")(y))
    return keras.Model(x, layers.Dense(2, name="head")(Stats(name="stats")(y)))
"""
IMAGES = ["map", "suggest", *BOTH, "--input", "x: b 3 8 8", "--no-proof"]
SAID = {
    "": ("", []),
    "Conv2D(4,": ("Conv2D(5,", ["filters (out_channels) 5 where the reference has 4"]),
    "Conv2D(4, 3, 2,": ("Conv2D(4, 3, 1,", ["strides (stride) (1, 1) where the reference has (2, 2)"]),
    "layers.ZeroPadding2D(1)(x)": ("x", ["padding 'valid' gives 3 windows over 8 positions, starting at 0; the "
                                         "reference (padding (1, 1)) gives 4, starting at -1"]),
    'activation="tanh"': ('activation="relu"', ["activation: ReLU where the reference has tanh"]),
    "ZeroPadding2D(1)": ("ZeroPadding2D(((0, 1), (0, 1)))", [
        "its input has other zeros around it than PyTorch's padding (1, 1) makes"]),
    "(n - 1)": ("n", []),
    "Cropping2D(1)": ("Cropping2D(((2, 0), (2, 0)))", []),
}  # fmt: skip
"""Edits, and the causes that are said of them."""


@pytest.mark.parametrize("edit", SAID)
def test_a_cause_is_what_makes_the_layer_right(project: Path, cli: Cli, edit: str) -> None:
    after, causes = SAID[edit]
    (project / "suggested_net.py").write_text(IMAGES_NET)
    (project / "suggested_twin.py").write_text(IMAGES_TWIN.replace(edit, after) if edit else IMAGES_TWIN)
    said = cli(*IMAGES, code=4 if edit else 0).out
    assert [line.partition("probably: ")[2] for line in said.splitlines() if "probably: " in line] == causes
    if edit == "Cropping2D(1)":
        assert "the first that does not:     cropping2d" in said


LIMITED_NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) * (torch.arange(x.shape[1]) < 90000)[:, None]


build = Net
"""
LIMITED_TWIN = """
import keras


def build():
    x = keras.Input((None, 4))
    return keras.Model(x, keras.layers.Dense(4, name="fc")(x))
"""


def test_a_proof_names_the_number_that_no_size_reached(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(LIMITED_NET)
    (project / "suggested_twin.py").write_text(LIMITED_TWIN)
    said = cli("map", "suggest", *BOTH, "--input", "x: b n=8 4", "-o", "t.yaml").out
    assert "proved: verify finds the two models equal" in said
    assert "the code compares them with 90000; state n=8..95625 to try both sides" in said


RESIZED_NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        return self.b(nn.functional.interpolate(self.a(x), scale_factor=2, mode="bilinear"))


build = Net
"""
RESIZED_TWIN = """
import keras
from keras import layers


def build():
    x = keras.Input((6, 5, 3))
    y = layers.UpSampling2D(2, interpolation="nearest")(layers.Conv2D(4, 1, name="a")(x))
    return keras.Model(x, layers.Conv2D(2, 3, padding="same", name="b")(y))
"""


def test_a_function_that_repeats_values_is_not_said_to_be_lacking(project: Path, cli: Cli) -> None:
    (project / "suggested_net.py").write_text(RESIZED_NET)
    (project / "suggested_twin.py").write_text(RESIZED_TWIN)
    said = cli("map", "suggest", *BOTH, "--input", "x: b c=3 h=6 w=5 -> b h w c", code=4).out
    assert "its input should be that of b: interpolate" in said
    assert "lacks" not in said


def test_a_proof_that_takes_long_says_with_which_inputs_it_takes_less() -> None:
    stated = (
        "x: b 3 224 224",
        "ids: b t=8..512, below 1000",
        "z: b c=128 h=96 w=32 -> b h w c",
        "y: b 3 h=64..96 w=96..128",
    )
    models = Models("a:b", "c:d", stated)
    suggestion = Suggestion(models, verdict=replace(passing(), seconds=200.0))
    (note,) = slow_proof(suggestion)
    smaller = (stated[1], "x: b 3 64 64", "z: b c=128 h=64 w=32 -> b h w c", "y: b 3 h=64..96 w=64..96")
    assert {words.strip(" '") for words in note.partition("--input ")[2].split("--input ")} == set(smaller)
    assert not slow_proof(Suggestion(models, verdict=replace(passing(), seconds=5.0)))


BIASED = """
import keras


def build():
    image = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, name="conv")(image)
    return keras.Model(image, keras.layers.Conv2D(5, 1, name="last")(x))
"""


def test_a_checkpoint_without_the_biases_of_a_model_gives_no_table(project: Path, refused: Refused) -> None:
    Path(project, "biased.py").write_text(BIASED)
    tensors = {"first.weight": torch.zeros(4, 3, 3, 3), "second.weight": torch.zeros(5, 4, 1, 1)}
    torch.save(tensors, Path(project, "biased.pt"))
    says = "no module has the tensors of conv (kernel (3, 3, 3, 4), bias (4,)), nor those of 1 more"
    words = ("--checkpoint", "biased.pt", "--keras-model", "biased:build", "-o", "biased.yaml")
    refused("map", "suggest", *words, code=4, says=says)
    assert not Path(project, "biased.yaml").exists()


POSITIONED = """
import torch
from torch import nn


class Transposed(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inner, outer)), nn.Parameter(torch.randn(outer))

    def forward(self, x):
        return x @ self.weight + self.bias


class Scaled(nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * 3.0


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.packed, self.out = Transposed(8, 24), Transposed(8, 8)

    def forward(self, x, keep):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
        mask = keep[:, None, None] & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = Scaled(20, 8), nn.Embedding(12, 8)
        self.attention, self.norm, self.head = Attention(), nn.LayerNorm(8), nn.Linear(8, 20, bias=False)

    def forward(self, ids, keep):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(x + self.attention(x, keep)))


def build():
    return Net()
"""

BACKBONE = """
import keras
from keras import layers, ops


class Places(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(name="table", shape=(12, shape[-1]))

    def call(self, x):
        table = ops.convert_to_tensor(self.table)
        return ops.broadcast_to(ops.slice(table, (0, 0), (ops.shape(x)[1], ops.shape(x)[2])), ops.shape(x))

    def compute_output_shape(self, shape):
        return shape


class Norm(layers.LayerNormalization):
    def call(self, x):
        return ops.cast(super().call(ops.cast(x, "float32")), self.compute_dtype)


def build():
    ids, keep = keras.Input((None,), dtype="int32", name="token_ids"), keras.Input((None,), dtype="bool", name="mask")
    tokens = layers.ReversibleEmbedding(20, 8, tie_weights=False, name="tokens")
    x = tokens(ids) * 3.0
    x = x + Places(name="places")(x)
    attention = layers.MultiHeadAttention(2, 4, name="attention")
    x = x + attention(x, x, attention_mask=keep[:, None, :], use_causal_mask=True)
    return keras.Model({"token_ids": ids, "mask": keep}, tokens(Norm(epsilon=1e-5, name="norm")(x), reverse=True))
"""


def test_a_backbone_of_tables_packed_transposed_weights_and_casts(project: Path, cli: Cli) -> None:
    Path(project, "positioned.py").write_text(POSITIONED)
    Path(project, "backbone.py").write_text(BACKBONE)
    inputs = ("--input", "ids -> token_ids: b t=6..12, below 20", "--input", "keep -> mask: b t, mask")
    words = ("--reference", "positioned:build", "--keras-model", "backbone:build", *inputs)
    shown = cli("map", "suggest", *words, "-o", "backbone.yaml")
    assert "proved: verify finds the two models equal" in shown.err + shown.out
    assert "its masks leave out only what follows a position" in shown.err + shown.out
    text = Path("backbone.yaml").read_text()
    assert "{torch: tokens.weight, keras: tokens/embeddings, rule: identity}" in text
    assert "{torch: places.weight, keras: places/table, rule: identity}" in text
    assert '{torch: head.weight, keras: tokens/reverse_embeddings, rule: "a b -> b a"}' in text
    assert 'rule: "in (part heads head) -> [part] in heads head"' in text
