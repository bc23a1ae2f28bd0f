"""Models as users write them: buffers that a row of the table carries, infinite logits, outputs of any form, layers
that return an output twice, code in float64; what is right passes, and what cannot be compared says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers, ops
from torch import nn

from tests.command import Cli
from tests.parity.own_models import verify_own
from wdport.base.errors import MisfitError

HEAD = "format: 2\ninputs: [{inputs}]\nlayers:\n  - {{torch: fc, keras: fc, kind: linear}}\n"


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x)


def dense(x: Any) -> Any:
    return layers.Dense(4, name="fc")(x)


def functional(change: Callable[[Any], Any]) -> Any:
    x = keras.Input((6,))
    return keras.Model(x, change(x))


class Scaled(Base):
    """Has a buffer whose values float32 rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.arange(6.0) / 7.0)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x - self.mean)


class Mean(layers.Layer):
    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(6,), name="mean", trainable=False)

    def call(self, x: Any) -> Any:
        return x - self.mean


def scaled_port() -> Any:
    return functional(lambda x: dense(Mean(name="scale")(x)))


class Masked(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x).masked_fill(x[:, :4] > 1.0, -float("inf"))


def masked_port(factor: float = 1.0) -> Any:
    return functional(lambda x: ops.where(x[:, :4] > 1.0, -np.inf, factor * dense(x)))


def wrongly_masked_port() -> Any:
    return masked_port(1.01)


class Log(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x.log())


def log_port() -> Any:
    return functional(lambda x: dense(ops.log(x)))


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, torch.Tensor]
    other: torch.Tensor | None = None


class Structured(Base):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        return Output(y, (x.tanh(), y.relu()))


def structured_port() -> Any:
    def change(x: Any) -> Any:
        y = dense(x)
        return {"logits": y, "hidden": (ops.tanh(x), ops.relu(y))}

    return functional(change)


class Twice(Base):
    """A cell of an LSTM; that of Keras returns its output and again in its states."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        h, c = self.cell(y, (y.tanh(), y))
        return self.cell(y, (h, c))[0]


class TwicePort(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fc, self.cell = layers.Dense(4), layers.LSTMCell(4)

    def call(self, x: Any) -> Any:
        y = self.fc(x)
        h, states = self.cell(y, [ops.tanh(y), y])
        return self.cell(y, [h, states[1]])[0]


class Phase(Base):
    """The phase of a time in seconds, of which float32 has only whole minutes."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc((x.double() * 1.7).sin().to(x.dtype))


def phase_port() -> Any:
    return functional(lambda x: dense(ops.sin(x * 1.7)))


def stated_phase_port() -> Any:
    return functional(lambda x: dense(ops.cast(ops.sin(ops.cast(x, "float32") * 1.7), x.dtype)))


class Shares(Base):
    """A softmax in float64, of numbers in float32."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x.sin()).softmax(-1, dtype=torch.float64).to(x.dtype)


def stated_shares_port() -> Any:
    return functional(lambda x: layers.Softmax(dtype="float32")(dense(ops.sin(x))))


def mirrored_shares_port() -> Any:
    """It rounds to float32 where the reference does, which states this by the dtype of its input."""
    return functional(lambda x: ops.cast(ops.softmax(dense(ops.sin(x))), "float32"))


def stated_sine_port() -> Any:
    """It states a float32 that the reference does not, where that computes nothing in float64."""
    return functional(lambda x: ops.softmax(dense(ops.cast(ops.sin(ops.cast(x, "float32")), x.dtype))))


class SineShares(Base):
    """The same, with the sine in float32 next to the softmax in float64."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x).float().sin().softmax(-1, dtype=torch.float64).to(x.dtype)


def sine_shares_port() -> Any:
    return functional(lambda x: ops.softmax(ops.sin(ops.cast(dense(x), "float32"))))


class Narrow(Base):
    """Does not run under autocast, as code that adds to an array of its own dtype."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x) @ torch.eye(4, dtype=x.dtype)
        return torch.zeros(y.shape, dtype=x.dtype).scatter_add(1, torch.zeros_like(y, dtype=torch.int64), y)


class Gated(Base):
    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> Any:
        y = self.fc(x)
        return y, (y > 0) & keep


class GatedPort(keras.Model):
    """Has an argument of the name that Keras gives masks of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fc = layers.Dense(4)

    def call(self, x: Any, mask: Any) -> Any:
        y = self.fc(x)
        return y, ops.logical_and(y > 0, mask)


def ungated_port() -> Any:
    x, keep = keras.Input((6,)), keras.Input((4,), dtype="bool")
    y = dense(x)
    return keras.Model([x, keep], [y, ops.logical_or(y > 0, keep)])


class Frozen(nn.Module):
    """Has neither a trained weight nor a floating-point input, so that only gradients by layers can be compared."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.fc = nn.Embedding(9, 6), nn.Linear(6, 4)
        self.requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.fc(self.words(ids))


def frozen_port(stop: bool = False) -> Any:
    ids = keras.Input((5,), dtype="int32")
    y = layers.Embedding(9, 6, name="words", trainable=False)(ids)
    y = ops.stop_gradient(y) if stop else y
    return keras.Model(ids, layers.Dense(4, name="fc", trainable=False)(y))


def stopped_port() -> Any:
    return frozen_port(True)


class First(layers.Layer):
    def call(self, y: Any) -> Any:
        return ops.pad(ops.sum(y, 1, keepdims=True), [(0, 0), (0, 3)])


def narrow_port() -> Any:
    return functional(lambda x: First()(dense(x)))


class Recurrent(Base):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, 2, batch_first=True, dropout=0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(self.fc(x)[:, None])[0]


def recurrent_port() -> Any:
    def change(x: Any) -> Any:
        y = ops.expand_dims(dense(x), 1)
        for index in range(2):
            y = layers.GRU(4, return_sequences=True, reset_after=True, name=f"rnn{index}")(y)
        return y

    return functional(change)


class Encoder(Base):
    """Reads the last states of both ways of its second layer, with the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> Any:
        y, (h, c) = self.rnn(x)
        return y, self.fc(torch.cat([h[-2], c[-1, :, :2]], -1))


def encoder_port(crossed: bool = False, sequences: bool = True) -> Any:
    x = y = keras.Input((5, 6))
    for index in range(2):
        rnn = layers.LSTM(4, return_sequences=sequences or index < 1, return_state=index > 0)
        y = layers.Bidirectional(rnn, name=f"rnn{index}")(y)
    y, forward, forward_cell, backward, backward_cell = y
    first, second = (backward, forward_cell) if crossed else (forward, backward_cell)
    scores = dense(ops.concatenate([first, second[:, :2]], -1))
    return keras.Model(x, [y if sequences else ops.concatenate([forward, backward], -1), scores])


def crossed_port() -> Any:
    return encoder_port(crossed=True)


class LastStep(Encoder):
    def forward(self, x: torch.Tensor) -> Any:
        h, c = self.rnn(x)[1]
        return torch.cat([h[-2], h[-1]], -1), self.fc(torch.cat([h[-2], c[-1, :, :2]], -1))


def last_step_port() -> Any:
    return encoder_port(sequences=False)


class Marked(Base):
    """Missing values are -999, ids from 128 on have another sign, and ages are in buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.ages = nn.Embedding(1000, 4), nn.Embedding(3, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
        y = self.fc(torch.where((x == -999).all(-1, keepdim=True), 0.5, x)).sum(1)
        signs = torch.where(ids >= 128, 1.0, -1.0)[..., None]
        years = torch.bucketize(age, torch.tensor([20.0, 65.0], dtype=age.dtype))
        return y + (self.words(ids) * signs).sum(1) + self.ages(years)


def marked_port(mark: float = -999.0, first: int = 128, compare: Callable[[Any, Any], Any] = ops.greater) -> Any:
    x, ids, age = keras.Input((5, 6)), keras.Input((7,), dtype="int32"), keras.Input(())
    missing = ops.all(ops.equal(x, mark), axis=-1, keepdims=True)
    y = ops.sum(dense(ops.where(missing, 0.5, x)), 1)
    signs = ops.expand_dims(ops.where(ids >= first, 1.0, -1.0), -1)
    years = ops.sum(ops.cast(compare(ops.expand_dims(age, -1), ops.convert_to_tensor([20.0, 65.0])), "int32"), -1)
    words = ops.sum(layers.Embedding(1000, 4, name="words")(ids) * signs, 1)
    return keras.Model([x, ids, age], y + words + layers.Embedding(3, 4, name="ages")(years))


def unmarked_port() -> Any:
    return marked_port(mark=float("inf"))


def late_port() -> Any:
    return marked_port(first=129)


def right_port() -> Any:
    return marked_port(compare=ops.greater_equal)


class Plain(Base):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(self.rnn(x)[0][:, -1])


def masking_port() -> Any:
    x = keras.Input((5, 6))
    return keras.Model(x, dense(layers.GRU(6, name="rnn")(layers.Masking(-1.0)(x))))


class ChannelsFirst(Base):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.fc(self.words(ids)).transpose(1, 2)


def channels_last_port() -> Any:
    ids = keras.Input((5,), dtype="int32")
    return keras.Model(ids, dense(layers.Embedding(9, 6, name="words")(ids)))


class Lookup(nn.Module):
    """Returns rows of its weights, which float32 holds."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(9, 6), nn.Linear(6, 4)

    def forward(self, ids: torch.Tensor) -> Any:
        words = self.words(ids)
        return words, self.fc(words)


def lookup_port() -> Any:
    ids = keras.Input((5,), dtype="int32")
    words = layers.Embedding(9, 6, name="words")(ids)
    return keras.Model(ids, [words, dense(words)])


class Square(nn.Module):
    """Pads an image to a square."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        size = max(x.shape[-2:])
        return self.fc(nn.functional.pad(x, (0, size - x.shape[-1], 0, size - x.shape[-2])))


def square_port(size: Callable[[int, int], int] = max) -> Any:
    class Port(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.fc = layers.Conv2D(4, 3, name="fc")

        def call(self, x: Any) -> Any:
            sides = [max(size(*x.shape[1:3]) - side, 0) for side in x.shape[1:3]]
            return self.fc(ops.pad(x, [(0, 0), (0, sides[0]), (0, sides[1]), (0, 0)]))

    model = Port()
    model(np.zeros((1, 8, 8, 3)))
    return model


def high_port() -> Any:
    return square_port(lambda height, width: height)


def wide_port() -> Any:
    return square_port(lambda height, width: width)


class Quantized(Base):
    """Rounds to quarters, of two nearest ones to the even one."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(torch.round(x * 4.0) / 4.0)


def quantized_port() -> Any:
    return functional(lambda x: dense(ops.round(x * 4.0) / 4.0))


def half_up_port() -> Any:
    return functional(lambda x: dense(ops.floor(x * 4.0 + 0.5) / 4.0))


class Tied(ChannelsFirst):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) @ self.words.weight.T + self.fc(self.words(ids)).sum()


def untied_port() -> Any:
    ids, words = keras.Input((5,), dtype="int32"), layers.Embedding(9, 6, name="words")
    return keras.Model(ids, ops.matmul(words(ids), ops.transpose(words.embeddings)) + ops.sum(dense(words(ids))))


SQUARE = HEAD.format(inputs='"x: b c=3 h=8 w=8 -> b h w c"').replace("linear", "conv2d")
NORMAL = HEAD.format(inputs='"x: b 6"')
CARRIED = NORMAL + "tensors:\n  - {torch: mean, keras: scale/mean, rule: identity}\n"
CELL = NORMAL + "  - {torch: cell, keras: cell, kind: lstm_cell}\n"
GATED = HEAD.format(inputs='"x: b 6", "keep: b 4, mask"')
IDS = HEAD.format(inputs='"ids: b 5, below 9"') + "  - {torch: words, keras: words, kind: embedding}\n"
TIMES = HEAD.format(inputs='"x: b 6, from 1000000000 to 1700000000"')
MARKED = HEAD.format(inputs='"x: b 5 6", "ids: b 7, below 1000", "age: b, from 0 to 100"')
MARKED += "".join(f"  - {{torch: {name}, keras: {name}, kind: embedding}}\n" for name in ("words", "ages"))
PLAIN = HEAD.format(inputs='"x: b 5 6"') + "  - {torch: rnn, keras: rnn, kind: gru}\n"
LSTM = HEAD.format(inputs='"x: b 5 6"') + '  - {torch: rnn, keras: "rnn<layer>", kind: bidirectional_lstm}\n'
GRU = NORMAL + '  - {torch: rnn, keras: "rnn<layer>", kind: gru}\n'

STATED = "the port's code states float32 where PyTorch's states float64"
MODELS: dict[str, tuple[str, str, str, dict[str, Any], str]] = {
    "a buffer": ("Scaled", "scaled_port", CARRIED, {}, ""),
    "a buffer in 16 bits": ("Scaled", "scaled_port", CARRIED, {"half": True}, ""),
    "infinite logits": ("Masked", "masked_port", NORMAL, {"full": True}, ""),
    "wrong logits beside infinite ones": ("Masked", "wrongly_masked_port", NORMAL, {}, "is off by 1.0e-02"),
    "an argument called mask": ("Gated", "GatedPort", GATED, {}, ""),
    "a gradient that stops where no other is compared": (
        "Frozen",
        "stopped_port",
        IDS,
        {"full": True},
        "by words is off",
    ),
    "wrong booleans": ("Gated", "ungated_port", GATED, {}, "output.1 is not comparable"),
    "outputs in a dataclass": ("Structured", "structured_port", NORMAL, {"full": True}, ""),
    "an output that is returned twice": ("Twice", "TwicePort", CELL, {"full": True}, ""),
    "code in float64": ("Phase", "phase_port", TIMES, {}, "the reference computes in float64, also where"),
    "a float32 where the code has float64": ("Phase", "stated_phase_port", TIMES, {}, STATED),
    "a layer in float32 where the code has float64": ("Shares", "stated_shares_port", NORMAL, {}, STATED),
    "the float32 of the reference after code in float64": ("Shares", "mirrored_shares_port", NORMAL, {}, ""),
    "a float32 before the code in float64": ("Shares", "stated_sine_port", NORMAL, {}, ""),
    "dropout between the layers of a GRU": (
        "Recurrent",
        "recurrent_port",
        GRU,
        {"train": True},
        "besides dropout, for one the dropout between the layers of rnn; set it to 0",
    ),
    "numbers that code compares with": ("Marked", "marked_port", MARKED, {}, ""),
    "a mark that the port ignores": ("Marked", "unmarked_port", MARKED, {}, "fc is off by"),
    "ids from one later on": ("Marked", "late_port", MARKED, {}, "output is off by"),
    "the other side of an edge": ("Marked", "right_port", MARKED, {}, "what ages is fed is 1 more than it should be"),
    "a mark that only the port has": (
        "Plain",
        "masking_port",
        PLAIN,
        {},
        "among the inputs are exactly -1, since the code compares values with it",
    ),
    "channels last in the output alone": ("ChannelsFirst", "channels_last_port", IDS, {"full": True}, ""),
    "weights as the model was built": ("Tied", "untied_port", IDS, {}, "uses words/embeddings as it was when"),
    "the states of both ways": ("Encoder", "encoder_port", LSTM, {}, ""),
    "the states of both ways, and the last step": ("LastStep", "last_step_port", LSTM, {}, ""),
    "the states of both ways, exchanged": ("Encoder", "crossed_port", LSTM, {}, "in what it feeds fc"),
    "images of any sides": ("Square", "square_port", SQUARE, {}, ""),
    "images that are high": ("Square", "high_port", SQUARE, {}, "the network's output: shape"),
    "images that are wide": ("Square", "wide_port", SQUARE, {}, "the network's output: shape"),
    "rows of weights": ("Lookup", "lookup_port", IDS, {}, ""),
    "rounding to quarters": ("Quantized", "quantized_port", NORMAL, {}, ""),
    "quarters that are rounded up": ("Quantized", "half_up_port", NORMAL, {}, "is off by"),
    "code that autocast breaks": ("Narrow", "narrow_port", NORMAL, {"full": True}, "does not run under torch.autocast"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_users(name: str, tmp_path: Path) -> None:
    reference, port, text, options, message = MODELS[name]
    options = dict(options)
    module = globals()[reference]()
    module = module.half() if options.pop("half", False) else module
    verdict = verify_own(tmp_path, text, module, f"{__name__}:{reference}", f"{__name__}:{port}", **options)
    assert bool(verdict) == (not message), verdict.summary()
    assert message in verdict.summary()


def test_a_float32_that_both_state_next_to_float64(tmp_path: Path) -> None:
    names = f"{__name__}:SineShares", f"{__name__}:sine_shares_port"
    verdict = verify_own(tmp_path, NORMAL, SineShares(), *names)
    assert verdict, verdict.summary()
    assert "the reference's states float64 and float32 there" in verdict.summary()


@pytest.mark.parametrize(("reference", "port", "text", "code", "message"), [
    ("Marked", "unmarked_port", MARKED, 1, "fc is off by"),
    ("Plain", "masking_port", PLAIN, 0, "the recorded inputs do not have -1, which the port compares with"),
])  # fmt: skip
def test_numbers_that_code_compares_with_in_a_recording(
    reference: str, port: str, text: str, code: int, message: str, tmp_path: Path, cli: Cli
) -> None:
    table, checkpoint, output = tmp_path / "own.yaml", tmp_path / "net.pt", tmp_path / "net.keras"
    table.write_text(text.replace("inputs:", f"torch: {__name__}:{reference}\nkeras: {__name__}:{port}\ninputs:"))
    torch.save(globals()[reference]().state_dict(), checkpoint)
    cli("convert", checkpoint, "--mapping", table, "-o", output)
    cli("record", checkpoint, "--mapping", table, "-o", tmp_path / "run.npz")
    printed = cli("verify", output, "--against", tmp_path / "run.npz", "--mapping", table, code=code).out
    assert message in printed


def test_a_reference_without_numbers_is_refused(tmp_path: Path) -> None:
    text = r"Log: its outputs have NaN for the inputs of seed 0.* state inputs for which"
    with pytest.raises(MisfitError, match=text):
        verify_own(tmp_path, NORMAL, Log(), f"{__name__}:Log", f"{__name__}:log_port")
