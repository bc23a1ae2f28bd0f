"""Edits of written ports, as a person may make them by mistake: ``python -m parity_tests.port.hand_edits``.

Every port is written and proved, then each edit is made in its source alone, and verify must find that the models
differ. An edit is *located* if the layer whose code was edited is named, one inside it, or the one behind it. Otherwise
it is *found*, as where the model cannot be built any more.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

os.environ.setdefault("KERAS_BACKEND", "jax")

import torch

from parity_tests.port.corpus import CORPUS
from wdport.cli.machine import start_jax_on_cpu
from wdport.parity.proving.port import WrittenPort, write_port
from wdport.parity.proving.port_proof import prove_port


@dataclass(frozen=True)
class HandEdit:
    """An edit of the port of a model of the corpus: the text, what replaces it, and the layers that may be named, as a
    regular expression."""

    model: str
    old: str
    new: str
    layers: str


EDITS = (
    HandEdit("small_cnn", "x = ops.relu(x)\n        x = self.conv2", "x = self.conv2", "conv2|conv1"),
    HandEdit("small_cnn", "(0, 3, 1, 2)), (b, -1)", "(0, 1, 2, 3)), (b, -1)", "fc1"),
    HandEdit("small_cnn", "layers.MaxPooling2D()", "layers.AveragePooling2D(2)", "max_pooling2d|fc1|dropout1"),
    HandEdit("small_unet", "align_corners=True", "align_corners=False", "up1|up2"),
    HandEdit("small_unet", "(x2, x1), axis=-1", "(x1, x2), axis=-1", "up1|up2"),
    HandEdit("small_unet", 'epsilon=1e-5, name="4"', 'epsilon=1e-3, name="4"', "double_conv.4"),
    HandEdit("small_vae", 'negative_slope=0.2, name="1"', 'negative_slope=0.3, name="1"', "encoder.[12]|decoder.[12]"),
    HandEdit("small_vae", "layers.Cropping2D(((1, 0), (1, 0))", "layers.Cropping2D(((0, 1), (0, 1))", "decoder"),
    HandEdit("small_vae", "x, self.fc_var(h)", "self.fc_var(h), x", "model|fc_mu|fc_var|output|itself"),
    HandEdit("small_dcgan_discriminator", 'momentum=0.9, epsilon=1e-5, name="6"',
             'momentum=0.99, epsilon=1e-5, name="6"', "main.6"),
    HandEdit("small_dcgan_discriminator", 'negative_slope=0.2, name="7"', 'negative_slope=0.0, name="7"', "main.[78]"),
    HandEdit("small_mini_gpt", "math.sqrt(c2)", "math.sqrt(c)", "attn"),
    HandEdit("small_mini_gpt", "q, k, v = ops.split", "k, q, v = ops.split", "attn"),
    HandEdit("small_mini_gpt", "x = x + self.attn(self.ln_1(x))", "x = self.ln_1(x)\n        x = x + self.attn(x)",
             "attn|ln_"),
    HandEdit("small_mini_gpt", 'layers.Activation("gelu", name="1")', 'layers.Activation("silu", name="1")', "mlp"),
    HandEdit("small_temporal_convolution", "dilation=2", "dilation=1", r"network\.1"),
    HandEdit("small_temporal_convolution", "        out = self.relu1(out)\n", "", r"network"),
    HandEdit("small_gru_forecaster", "self.gru[0](x - last)", "self.gru[0](x)", "gru"),
    HandEdit("small_gru_forecaster", "last = x[:, -1:]", "last = x[:, :1]", "gru"),
    HandEdit("small_mlp", "self.embeds[1](x_cat[:, 1])", "self.embeds[1](x_cat[:, 0] % 4)", "embeds"),
    HandEdit("small_mlp", 'layers.ReLU(name="5")', 'layers.ReLU(max_value=6.0, name="5")', "layers.[56]"),
    HandEdit("small_mixture_of_experts", "ops.softmax(top, axis=-1)", "top", "norm|model|itself|experts|output"),
    HandEdit("small_mixture_of_experts", "for expert in self.experts]", "for expert in self.experts[::-1]]",
             "experts|output|itself"),
    HandEdit("small_pointnet", "ops.reshape(ops.max(x, ", "ops.reshape(ops.mean(x, ", "stn|fc1"),
    HandEdit("small_pointnet", "x = x + iden", "x = x - iden", "stn|conv1"),
)  # fmt: skip


def written(model: str) -> WrittenPort:
    entry = CORPUS[model]
    return write_port(entry.target, entry.inputs)


def proved(port: WrittenPort) -> bool:
    prove_port(port)
    return port.proved


def outcome(edit: HandEdit) -> tuple[str, str]:
    """``located``, ``found`` or ``survived``, and what verify says."""
    port = written(edit.model)
    if port.source.count(edit.old) < 1:
        return "stale", f"the source lacks {edit.old!r}"
    port.source = port.source.replace(edit.old, edit.new)
    if proved(port):
        return "survived", ""
    said = port.verdict.summary() if port.verdict is not None else port.failure
    failing = " ".join(line for line in said.splitlines() if not line.startswith(("ok", "inputs", "reference")))
    return "located" if re.search(edit.layers, failing) else "found", failing


def main(names: Sequence[str] = ()) -> int:
    """Print a row for each edit; 1 if one survived."""
    start_jax_on_cpu()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    outcomes = []
    for edit in EDITS:
        if names and edit.model not in names:
            continue
        result, said = outcome(edit)
        outcomes.append(result)
        detail = "" if result == "located" else f"  {said[:300]}"
        sys.stdout.write(f"{result:<9}{edit.model:<28}{edit.old!r} -> {edit.new!r}{detail}\n")
        sys.stdout.flush()
    counts = {result: outcomes.count(result) for result in ("located", "found", "survived", "stale")}
    sys.stdout.write(", ".join(f"{count} {result}" for result, count in counts.items()) + "\n")
    return int(counts["survived"] + counts["stale"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
