"""The rewrites of the page "Layer by layer" through conversion and verification: each passes, and a wrong one fails."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import torch

import wdport
from parity_tests.conformance.engine import randomise
from tests.families.toys.conformed import PAIRS, Net, Pair, table
from wdport.base.errors import MisfitError

QUICK = [
    "conv1d, causal", "conv1d, stride 2, padding 1", "conv2d, padding_mode reflect", "conv2d, padding_mode circular",
    "conv_transpose1d, padding 1", "conv_transpose2d, kernel size 4, stride 2, padding 1",
    "conv_transpose2d, kernel size 3, stride 2, padding 1, output padding 1",
    "conv_transpose2d, output padding beyond the kernels", "conv_transpose1d, kernel size 2, stride 3: gaps",
    "max_pool2d, padding 1", "max_pool2d, ceil_mode, window 3, stride 2", "avg_pool2d, padding 1 that counts",
    "linear after a permuted flatten, (w h c)", "linear under weight_norm, new keys", "group_norm",
    "pixel shuffle", "gru, from a state", "packed, causal",
]  # fmt: skip
"""Pairs that are verified by default."""

GAIN = "gain x32"

MUTANTS = {
    name: next(key for key, changes in PAIRS[name].mutants.items() if not {"axes", "state"} & set(changes))
    for name in PAIRS
    if not PAIRS[name].no_model and any(not {"axes", "state"} & set(each) for each in PAIRS[name].mutants.values())
}
"""The first mutant of every pair that is another port or another row."""


UNLIKE_IN_TRAINING = {
    "embedding with a trained row at padding_idx", "instance norm with running statistics",
    "batch_norm of vectors", "batch_norm of sequences", "batch_norm of images, channels first",
    "batch_norm of images, all axes of the same size", "batch_norm of volumes, no weights",
    "lstm, dropout between layers: none in inference", "packed, dropout: none in inference",
    "rrelu: the mean slope in inference", "dropout: none in inference",
}  # fmt: skip
"""Pairs that are equal in evaluation alone: PyTorch does not train the row of padding, and the Keras model of these
tests does not pass on the mode, so that its norms and dropouts are in evaluation mode in fit."""


RANDOM = {"lstm, dropout between layers: none in inference", "rrelu: the mean slope in inference"}
"""Pairs whose PyTorch module draws random numbers in training mode, which is then not compared."""

ODD_SIZES_ALONE = {"conv2d, stride 2, padding 1, odd size"}
"""Pairs that are equal for odd sizes alone: a model whose inputs' sizes are open is also compared at an even one."""


def quickly(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in names]


def verified(folder: Path, pair: Pair, mutant: str = "", train: bool = False) -> wdport.Verdict:
    torch.manual_seed(1)
    net = Net(pair)
    randomise(net)
    checkpoint, mapping = folder / "ck.pt", folder / "my.yaml"
    torch.save(net.state_dict(), checkpoint)
    mapping.write_text(table(pair, mutant))
    output = wdport.convert(checkpoint, folder / "out.weights.h5", mapping=mapping).output
    return wdport.verify(checkpoint, output, mapping=mapping, train=train)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", quickly([name for name, pair in PAIRS.items() if not pair.no_model]))
def test_it_passes(tmp_path: Path, name: str) -> None:
    verdict = verified(tmp_path, PAIRS[name], train=True)
    failed = [gate.name for gate in verdict.gates if not gate.passed]
    assert failed == (["M"] if name in UNLIKE_IN_TRAINING else ["A"] if name in ODD_SIZES_ALONE else []), verdict
    incomplete = [gate.name for gate in verdict.gates if gate.compared != gate.expected]
    assert incomplete == (["M"] if name in RANDOM else [])
    assert not verdict.settings.of("differs")
    if name == "conv1d, causal":  # a convolution that pads inside keeps its own input, which is not amplified
        assert GAIN not in " ".join(verdict.inputs)


@pytest.mark.usefixtures("one_case")
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", quickly(list(MUTANTS)))
def test_a_wrong_one_fails(tmp_path: Path, name: str) -> None:
    """As a verdict, or already as a plan whose shapes do not fit."""
    code = 4
    with suppress(MisfitError):
        code = verified(tmp_path, PAIRS[name], MUTANTS[name]).exit_code
    assert code in (1, 4)


def test_a_layer_whose_output_is_constant_in_one_case_is_compared_in_the_others(tmp_path: Path) -> None:
    """The report names the gain of that case."""
    verdict = verified(tmp_path, PAIRS["rnn_cell, relu"])
    assert verdict.exit_code == 0
    assert GAIN in " ".join(verdict.inputs)
