"""The written source has the structure, the names and the arguments of the PyTorch classes."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import keras
import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from wdport.parity.proving.port import write_port
from wdport.parity.proving.port_proof import prove_port
from wdport.porting.library_inputs import library_inputs
from wdport.porting.lowering import helpers
from wdport.porting.source.pruned import pruned_source


class Head(nn.Module):
    def __init__(self, width: int, heads: int, rate: float = 0.5, eps: float = 1e-3, depth: int = 2) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm = nn.LayerNorm(width, eps=eps)
        self.drop = nn.Dropout(rate)
        self.place = nn.Parameter(torch.ones(1, width))
        self.mix = nn.ModuleList(nn.Linear(width, max(width, 4)) for _ in range(depth))
        self.narrow = nn.Linear(width, max(width // 4, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        x = x.view(b, t, self.heads, c // self.heads).softmax(-1).reshape(b, t, c) * self.scale / math.sqrt(c)
        for layer in self.mix:
            x = layer(x)
        return self.narrow(self.drop(self.norm(x + self.place)))


class Heads(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (8, 12), heads: int = 4) -> None:
        super().__init__()
        self.first, self.second = Head(widths[0], heads), Head(widths[1], heads, eps=1e-6)
        self.grow = nn.Linear(widths[0], widths[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).sum(-1, keepdim=True) + self.second(self.grow(x))


class Block(nn.Module):
    def __init__(self, inp: int, oup: int, stride: int, expand: int) -> None:
        super().__init__()
        self.adds, wide = stride == 1 and inp == oup, inp * expand
        grow = [nn.Sequential(nn.Conv2d(inp, wide, 1), nn.ReLU6())] if expand != 1 else []
        self.conv = nn.Sequential(*grow, nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), nn.Conv2d(wide, oup, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(4, 4, 1, 1), Block(4, 8, 2, 3), Block(8, 8, 1, 3), Block(8, 4, 2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.blocks(x))


class Rated(nn.Module):
    def __init__(self, dropout: float, count: int = 3) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(nn.Linear(5, 5) for _ in range(count)), nn.GELU(), nn.Sigmoid())
        self.turns = nn.Sequential(nn.Flatten(1), nn.Linear(10, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.turns(self.dropout(self.layers(x)))


class Mirrored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 3), nn.Linear(3, 4)
        self.decode.weight = nn.Parameter(self.encode.weight.t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(F.relu(self.encode(x)))


class Buffered(nn.Module):
    def __init__(self, length: int = 17) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, length, length))
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.25]))
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.register_buffer("unit", torch.ones(2, 3))
        self.register_buffer("table", torch.tensor([[float(n % 7) for n in range(3)] for _ in range(9)]))
        self.register_buffer("edited", torch.ones(17).cumsum(0))
        self.edited.numpy()[0] = 5.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t = x.shape[1]
        x = (x - self.mean) / self.scale * self.unit[1] + self.table[:t] * self.edited[:t, None]
        return (x @ x.mT).masked_fill(self.mask[:, :t, :t] == 0, -math.inf).softmax(-1) @ x


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.turns = nn.Linear(5, 5), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).flip(-1) if self.turns else self.lin(x)


class Copied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Turned()
        self.second = copy.deepcopy(self.first)
        self.second.turns = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Mixer(nn.Module):
    """Reads its sizes from a configuration."""

    def __init__(self, config: SimpleNamespace, shape: dict[str, int]) -> None:
        super().__init__()
        self.head_size = int(config.width / config.heads)
        self.all = config.heads * self.head_size
        self.inner, self.out = nn.Linear(config.width, self.all), nn.Linear(self.all, shape["hidden"])
        self.back = nn.Linear(shape["hidden"], int(config.width * config.ratio))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        heads = self.inner(x).view(b, t, -1, self.head_size).softmax(-1)
        return self.back(self.out(heads.flatten(2)))


class Mixers(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Mixer(config, {"hidden": 12}) for _ in range(config.num_layers))
        config = copy.deepcopy(config)
        config.heads = 2  # a number that is not the configuration's
        self.last = Mixer(config, {"hidden": 16})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x)
        return self.last(x)


def build_mixers() -> Mixers:
    return Mixers(SimpleNamespace(width=8, heads=4, num_layers=3, ratio=1.0, name="mixers"))


class Placeless(nn.Module):
    """Computes tensors whose values NumPy does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) @ torch.eye(5).to_sparse() * torch.zeros(3, device="meta").numel()


def build_rated() -> Rated:
    return Rated(0.25)


def source_of(factory: str, *inputs: str) -> str:
    port = write_port(f"{__name__}:{factory}", inputs)
    assert not port.missing, port.missing
    return port.source


def test_constants_are_the_expressions_of_the_constructor() -> None:
    source = source_of("Heads", "x: b 6 8")
    for line in (
        "def __init__(self, width, heads, eps=0.001, **kwargs):",
        "layers.LayerNormalization(epsilon=eps)",
        "layers.Dropout(0.5)",
        "shape=(1, width), initializer",
        "(b, t, self.heads, c // self.heads)",
        "self.scale = (width // heads) ** -0.5",
        "* self.scale",
        "math.sqrt(c)",
        "def __init__(self, widths=(8, 12), heads=4, **kwargs):",
        "self.first = Head(width=widths[0], heads=heads)",
        "self.second = Head(width=widths[1], heads=heads, eps=1e-6)",
        "self.grow = layers.Dense(widths[1])",
    ):
        assert line in source, line
    # max(width // 4, 5) is no expression of the width.
    assert "layers.Dense(5)" in source


def test_constants_are_those_of_a_configuration() -> None:
    source = source_of("build_mixers", "x: b t=3..5 8")
    for line in (
        '"""Reads its sizes from a configuration (tests.porting.test_source.Mixer)."""',
        "def __init__(self, width, heads, ratio, hidden, **kwargs):",
        "self.head_size = width // heads",
        "layers.Dense(heads * self.head_size)",
        "layers.Dense(hidden)",
        "layers.Dense(int(width * ratio))",
        "(b, t, -1, self.head_size)",
        "def __init__(self, width=8, heads=4, num_layers=3, ratio=1.0, **kwargs):",
        "[Mixer(width, heads, ratio, hidden=12) for _ in range(num_layers)]",
        "self.last = Mixer(width, heads=2, ratio=ratio, hidden=16)",
        "        for step in self.steps:\n            x = step(x)\n",
    ):
        assert line in source, line


def test_instances_that_a_flag_or_an_argument_tells_apart_are_one_class() -> None:
    source = source_of("Blocks", "x: b 4 8 8")
    assert source.count("\nclass ") == 2
    adds = "        if self.adds:\n            return x + self.conv(x)\n        return self.conv(x)\n"
    for line in ("if expand == 1:", adds, "return ops.relu(self.blocks(x))", 'layers.ZeroPadding2D(name="1_pad")',
                 "strides=stride"):  # fmt: skip
        assert line in source, line


def test_a_copy_whose_flag_was_changed_is_of_the_same_class() -> None:
    source = source_of("Copied", "x: b 5")
    assert source.count("\nclass ") == 2
    assert "self.second = Turned(turns=True)" in source


def test_tensors_without_values_that_numpy_holds() -> None:
    port = write_port(f"{__name__}:Placeless", ["x: b 5"])
    assert [missing.method for missing in port.missing] == ["Placeless.to_sparse"]
    assert (") * 3" in port.source, port.differs) == (True, "")


def test_a_sequential_is_one_unless_a_function_stands_in_it() -> None:
    source = source_of("build_rated", "x: b 2 5")
    for line in ('layers.Activation("gelu", name="3")', 'layers.Activation("sigmoid", name="4")', "self.layers_(x)",
                 "def __init__(self, dropout_rate=0.25,", "self.dropout = layers.Dropout(dropout_rate)"):  # fmt: skip
        assert line in source, line
    assert source.count("keras.Sequential") == 1


def test_tensors_with_one_memory_are_no_claim_on_training() -> None:
    port = write_port(f"{__name__}:Mirrored", ["x: b 4"])
    assert not port.trains
    assert "encode.weight and decode.weight have one memory in PyTorch" in port.notes[0]
    assert " ".join(port.source[:400].split()).count("have one memory in PyTorch") == 1


def test_buffers_start_as_the_constructor_computes_them() -> None:
    port = write_port(f"{__name__}:Buffered", ["x: b t=4..9 3"])
    assert "initializer=lambda shape, dtype: ops.reshape(" in port.source
    assert "shape=(1, length, length)" in port.source
    code = ModuleType("buffered")
    exec(compile(port.source, "buffered.py", "exec"), code.__dict__)
    variables, module = {one.name: one for one in code.build().weights}, Buffered()
    for name in ("mask", "mean", "scale", "unit"):
        torch.testing.assert_close(torch.tensor(np.asarray(variables[name])), module.get_buffer(name), rtol=0, atol=0)
    assert port.notes == ("until weights are loaded, these buffers are zeros: table, edited",)


def test_inputs_of_models_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import BertConfig, BertModel, T5Config, T5Model, ViTConfig, ViTModel

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    assert library_inputs(BertModel(BertConfig(vocab_size=30, max_position_embeddings=9, **small))) == (
        "input_ids: b t=6..9, below 30",
    )
    assert library_inputs(ViTModel(ViTConfig(image_size=8, patch_size=4, **small))) == ("pixel_values: b 3 8 8",)
    config = T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    assert library_inputs(T5Model(config)) == (
        "input_ids: b t=6..16, below 30", "decoder_input_ids: b u=6..16, below 30",
    )  # fmt: skip
    assert library_inputs(Heads()) == ()
    for library, expected in (("torchvision.models.resnet", "x: b 3 224 224"), ("timm.models.resnet", "x: b 3 7 7"),
                              ("torchvision.models.video.resnet", "x: b 3 16 112 112")):  # fmt: skip
        kind = type("Net", (nn.Identity,), {"__module__": library, "forward": lambda self, x: x})
        monkeypatch.setitem(sys.modules, library, ModuleType(library))
        module = kind()
        module.pretrained_cfg = {"input_size": (3, 7, 7)}
        assert library_inputs(module) == (expected,)


class Loud(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, 0.1, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = 9 * x
        return self.attend(x, x, x, key_padding_mask=mask)[0]


def test_scores_beyond_the_number_that_keras_hides_with_are_left_out() -> None:
    port = write_port(f"{__name__}:Loud", ["x: b 7 8", "mask: b 7, mask"])
    prove_port(port)
    assert port.proved
    assert port.verdict is not None
    notes = [str(finding) for finding in port.verdict.gates[0].findings]
    (note,) = (note for note in notes if "MultiHeadAttention" in note)
    assert note.startswith("samples of large values are left out from attend on: ")
    assert not any("one rounding" in note for note in notes)


class Moved(nn.Embedding):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids + 2) * 3


class Tied(nn.Module):
    """Three modules have the weight of one that is never called, and the places are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(12, 6)
        self.first, self.second, self.head = nn.Embedding(12, 6), Moved(12, 6), nn.Linear(6, 12, bias=False)
        self.first.weight = self.second.weight = self.head.weight = self.shared.weight
        self.places = Moved(14, 6).requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(ids) + self.second(ids) + self.places(ids))


def test_modules_that_compute_more_than_their_layer_and_share_weights_are_proved() -> None:
    port = write_port(f"{__name__}:Tied", ["ids: b 7, below 9"])
    prove_port(port)
    assert port.proved
    assert port.trains
    assert "{torch: head.weight, same_as: first.weight}" in port.table
    assert port.source.count("layers.Embedding(") == 2
    assert "trainable=False" in port.source


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Repeating(nn.Module):
    """Loops with an index, a list of calls, a tuple whose elements are read, and functions that are called twice."""

    def __init__(self, widths: tuple[int, ...] = (4, 6), depth: int = 3, rate: float = 0.2) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.parts = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))
        self.wide, self.mix = nn.Linear(8, widths[1]), nn.Linear(widths[1], widths[0])
        self.drop = nn.Dropout(rate)

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(self.mix(self.drop(self.wide(x))))

    def once(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, step in enumerate(self.steps):
            x = x + step(x) * x[:, index, None]
        x = torch.cat([part(x) for part in self.parts], -1)
        return self.mixed(x) + self.mixed(rotated(self.once(x)))


class Shifted(nn.Module):
    """A causal convolution, of the sequence or of one that is shifted."""

    def __init__(self, width: int, shift: list[int], kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.shift, self.left = shift, (kernel - 1) * dilation
        self.conv = nn.Conv1d(width, width, kernel, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if sum(self.shift) > 0:
            x = torch.roll(x, (-self.shift[0], self.shift[1]), (2, 1))
        return self.conv(F.pad(x, (self.left, 0)))


class Shifting(nn.Module):
    def __init__(self, width: int = 4, kernel: int = 3, step: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Shifted(width, [i % 2 * step, i % 2], kernel, dilation) for i, dilation in enumerate((1, 2, 4, 1, 2))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](x).relu()
        for block in self.blocks[1:4]:
            x = block(x)
        return self.blocks[4](x).tanh()


def test_numbers_in_lists_and_widths_of_padding_are_expressions_of_arguments() -> None:
    port = write_port(f"{__name__}:Shifting", ["x: b 4 t=12..16"])
    prove_port(port)
    assert port.proved, port.failure
    assert port.source.count("\nclass ") == 2
    for line in (
        "if any(self.shift):",
        "-self.shift[0]",
        "self.left = (kernel - 1) * dilation",
        "((0, 0), (self.left, 0), (0, 0))",
        "        for block in self.blocks[1:]:\n            x = block(x)\n",
        "def __init__(self, width=4, kernel=3, step=2, **kwargs):",
        "Shifted(width, shift=(1 * step, 1), kernel=kernel, dilation=2),",
    ):
        assert line in port.source, (line, port.source)


class Shared(nn.Module):
    """Rolls by numbers of a list that all blocks share and each one lengthens."""

    def __init__(self, width: int, shifts: list[int]) -> None:
        super().__init__()
        shifts.append(len(shifts))
        self.shifts, self.linear = shifts, nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.roll(x, sum(self.shifts), -1)) + x


class Sizes:
    def __init__(self) -> None:
        self.kernels = (3, 1)


class Causal(nn.Module):
    def __init__(self, sizes: Sizes, kernel: int, step: int, act: str, scale: float = 1.0) -> None:
        super().__init__()
        self.pad, self.act, self.scale = kernel - step, act, scale
        self.conv = nn.Conv1d(6, 6, kernel, step, dilation=sizes.kernels[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, self.act)(self.conv(F.pad(x, (self.pad, 0)))) * self.scale


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


class Stated(nn.Module):
    """What one instance does without, another does: widths and factors of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        shifts, sizes = [1, 2], Sizes()
        self.blocks = nn.ModuleList(Shared(8, shifts) for _ in range(3))
        self.first, self.second = Causal(sizes, 3, 3, "relu"), Around(Causal(sizes, 3, 1, "tanh", 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.second(self.first(x))


def test_arguments_with_which_an_instance_does_nothing_and_lists_that_are_shared() -> None:
    port = write_port(f"{__name__}:Stated", ["x: b 6 8"])
    prove_port(port)
    assert port.proved, port.failure
    for line in (
        "kernels[1]",
        "* self.scale",
        "(self.pad, 0)",
        'if act not in ("relu", "tanh"):',
        'raise ValueError("act must be one of those of the PyTorch model")',
    ):
        assert line in port.source, (line, port.source)


class Frozen(nn.Module):
    """Trains a head on features of another network, and computes a scale of its own weight without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8))
        self.place, self.gate, self.head = nn.Embedding(4, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    @torch.no_grad()
    def features(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)[None]
        with torch.enable_grad():
            trained = self.place(places).tanh()
        return self.backbone(x) * 2 + trained

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(False):
            scale = self.gate.weight.abs().mean()
            decay = 0.5 ** torch.arange(x.shape[1], dtype=x.dtype)
        features = self.features(x).contiguous().to(x.dtype)
        return self.head(features * self.gate(x / scale) * decay[:, None] + features)


def test_what_the_code_computes_without_gradients_has_none() -> None:
    port = write_port(f"{__name__}:Frozen", ["x: b t=3..4 6"])
    prove_port(port)
    assert port.proved, port.failure
    assert port.trains
    assert "x / ops.stop_gradient(scale)" in port.source
    # Once for the features, which two steps read, and not for numbers that have no gradient.
    assert port.source.count("ops.stop_gradient(") == 2


def test_loops_and_functions_that_are_called_twice_stay_what_they_are() -> None:
    port = write_port(f"{__name__}:Repeating", ["x: b t=4..7 8"])
    prove_port(port)
    assert port.proved
    for line in (
        "for i, step in enumerate(self.steps):",
        "[part(x) for part in self.parts]",
        "if len(widths) != 2:",
        "\ndef rotated(x):\n    first, second = ops.split(x, 2, axis=-1)\n",
        "return self.mixed(x, training=training) + self.mixed(",
        "def mixed(self, x, training=False):",
        "return rotated(self.mix(self.drop(self.wide(x), training=training)))",
    ):
        assert line in port.source, line
    assert "once" not in port.source


class Attending(nn.Module):
    """Attention to its input or to another sequence, with a mask or without; its values are named before a copy."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, other: torch.Tensor | None = None
    ) -> torch.Tensor:
        source = x if other is None else other
        query = self.q(x).view(x.shape[0], -1, 2, 4).transpose(1, 2).contiguous()
        key = self.k(source).view(x.shape[0], -1, 2, 4).transpose(1, 2)
        value = self.v(source).view(x.shape[0], -1, 2, 4).transpose(1, 2)
        scores = query @ key.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] < 0, -1e4)
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain, self.masked, self.cross, self.both = (Attending() for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        x = self.masked(self.plain(x), mask)
        return self.both(self.cross(x, other=other), mask, x)


def test_instances_that_are_called_with_other_inputs_are_one_class() -> None:
    port = write_port(f"{__name__}:Attended", ["x: b t=4..7 8", "mask: b t", "other: b u=3..6 8"])
    prove_port(port)
    assert port.proved, port.failure
    assert port.source.count("\nclass ") == 2
    for line in ("def call(self, x, mask_=None, other=None):", "query = ", "if mask_ is not None:", "if other is None:",
                 "self.cross(x, other=other)", "self.both("):  # fmt: skip
        assert line in port.source, (line, port.source)


class Stepped(nn.Module):
    """A decoder whose steps are not layers of a list; ``kept`` are the steps of which it returns the outputs."""

    def __init__(self, kept: slice = slice(None), steps: int = 4) -> None:
        super().__init__()
        self.start, self.cell, self.out, self.steps = nn.Linear(3, 8), nn.GRUCell(3, 8), nn.Linear(8, 3), steps
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, outputs = self.start(x[:, 0]).tanh(), []
        token = x[:, -1]
        for step in range(self.steps):
            state = self.cell(token + x[:, step], state)
            token = self.out(state)
            outputs.append(token)
        return torch.stack(outputs[self.kept], 1)


def build_stepped(kept: slice) -> Callable[[], nn.Module]:
    return lambda: Stepped(kept)


every, later, inner = build_stepped(slice(None)), build_stepped(slice(1, None)), build_stepped(slice(1, 3))


@pytest.mark.parametrize("kept", ["every", "later", "inner"])
def test_steps_are_a_loop_if_their_values_are_used_one_by_one_or_together(kept: str) -> None:
    port = write_port(f"{__name__}:{kept}", ["x: b 4 3"])
    prove_port(port)
    assert port.proved
    loop = ("outputs = []" in port.source or "tokens = []" in port.source) and "for i in range(" in port.source
    assert loop is (kept == "every"), port.source


FOLDER: list[str] = []


def pretrained() -> nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER[0])


def test_a_function_may_load_the_weights_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, vocab_size=20,
        intermediate_size=24, max_position_embeddings=32,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "FOLDER", [str(tmp_path)])
    assert write_port(f"{__name__}:pretrained").written


class Unlike(nn.Module):
    """Calls a function with tensors of other ranks, which takes two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).relu().mT if x.ndim > 2 else self.lin(x).tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.turned(x) + self.turned(x[:, 0])[:, None]


def test_a_function_that_computes_other_steps_in_another_call_is_written_out() -> None:
    port = write_port(f"{__name__}:Unlike", ["x: b 4 4"])
    prove_port(port)
    assert port.proved
    assert "turned" not in port.source


@pytest.mark.parametrize("stated", [(), ("mask",), ("causal",), ("scale",), ("mask", "causal", "scale")])
def test_helpers_without_the_arguments_that_a_port_does_not_state_compute_the_same(stated: tuple[str, ...]) -> None:
    query, key, visible = (np.random.default_rng(seed).standard_normal((2, 5, 4)) for seed in range(3))
    usual = {"mask": visible @ np.swapaxes(query, -1, -2) > 0, "causal": True, "scale": 0.3}
    source = pruned_source(
        "attention_weights", [f"f(attention_weights(a, b, {', '.join(f'{one}=x' for one in stated)}))"]
    )
    assert all((f"{name}=" in source.partition(":")[0]) == (name in stated) for name in usual)
    assert ("where(mask" in source, "tril" in source) == ("mask" in stated, "causal" in stated)
    code = dict(vars(helpers))
    exec(source, code)
    named = {name: usual[name] for name in stated}
    expected = helpers.attention_weights(query, key, **named)
    np.testing.assert_array_equal(code["attention_weights"](query, key, **named), expected)


class Even(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(2, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] % 2:
            x = F.pad(x, (0, 1))
        y = self.mix(x)
        return y if y.shape[2] != 10 else -y


def test_sizes_with_which_the_code_takes_another_way_are_an_error() -> None:
    port = write_port(f"{__name__}:Even", ["x: b 2 t=8..12"])
    (note,) = port.notes
    assert note.startswith("the PyTorch code takes another way for some sizes, such as x.shape[2] % 2 != 0, for which")
    assert port.source.count("        check_sizes(") == 2
    module = ModuleType("even_keras")
    exec(port.source, vars(module))
    model = module.build()
    assert model(np.zeros((1, 14, 2))).shape == (1, 14, 2)
    for size in (9, 10):
        with pytest.raises(ValueError, match="takes another way"):
            model(np.zeros((1, size, 2)))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_positions_are_not_rounded_to_16_bits(mode: str) -> None:
    x = torch.rand(1, 1, 1, 400, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected = F.interpolate(x.float(), size=(1, 911), mode=mode)
    image = keras.ops.cast(keras.ops.convert_to_tensor(x.float().permute(0, 2, 3, 1).numpy()), "bfloat16")
    resize = {"bilinear": helpers.resize_linear, "bicubic": helpers.resize_cubic, "nearest": helpers.resize_nearest}[
        mode
    ]
    result = keras.ops.cast(resize(image, (1, 911)), "float32")
    # Three roundings to 8 bits, of numbers up to 1.
    assert np.abs(np.asarray(result)[0, 0, :, 0] - expected[0, 0, 0].numpy()).max() < 3 * 2.0**-8
