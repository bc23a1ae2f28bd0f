"""Every pair computes the same, every mutant of it does not, and Keras lacks what the suite says it lacks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from keras import layers
from torch import nn

from parity_tests.conformance import suite
from parity_tests.conformance.__main__ import main
from parity_tests.conformance.engine import BOUND, NoPlanError, run
from parity_tests.conformance.layers import Twin
from parity_tests.conformance.pair import OF_THE_PAIR, Absent, Pair
from parity_tests.conformance.report import refusal, report
from wdport.mapping.kinds import KINDS

QUICK = {
    "linear after a flatten of (c h w)", "embedding with a trained row at padding_idx",
    "linear under spectral_norm, folded", "conv1d, groups and dilation", "depthwise_conv2d, channels first",
    "conv_transpose2d, kernel size 3, stride 2, padding 1, output padding 1", "group_norm", "batch_norm of sequences",
    "rms_norm, weight stored minus one", "gru", "packed, key_padding_mask: True is left out",
    "max_pool2d, ceil_mode, window 3, stride 2", "gelu, tanh", "leaky_relu, slope 0.01",
    "zero padding (1, 2, 3, 0)", "pixel shuffle",
}  # fmt: skip
"""A pair or two of each group for ``make test``; ``make parity`` runs all."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


def of_a_setting(pair: Pair) -> set[str]:
    """The mutants that change a setting of the layer, and not code, weights or the table."""
    return {each for each, changes in pair.mutants.items() if not {*OF_THE_PAIR, *pair.code} & set(changes)}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in suite.PAIRS
])  # fmt: skip
def test_the_pair_is_equal_and_its_mutants_are_not(name: str) -> None:
    outcome = run(suite.PAIRS[name])
    pair = outcome.pair
    assert outcome.error <= BOUND, (
        "the Keras layer computes something else: correct `keras`, `axes` or the kind's rules"
    )
    assert outcome.mutants, "state a wrong argument in `mutants`"
    assert outcome.survivors == (), (
        "these mutants compute the same on these inputs: choose sizes of axes that differ, or leave out what is right; "
        "distinct inputs need `one_array` to be false"
    )
    assert outcome.alarms == (), "the kind's `compared` names settings that do not differ: correct it"
    stated = of_a_setting(pair)
    assert stated - set(outcome.named) - set(pair.unnamed) == set(), (
        "`wdport verify` does not name these wrong settings: add them to the kind's `compared`; if a twin's code alone "
        "reads the argument, name it in `code` of the pair; otherwise state the reason in `unnamed`"
    )
    assert set(pair.unnamed) <= stated - set(outcome.named), "`wdport verify` names these: remove them from `unnamed`"
    assert set(pair.code) <= {argument for changes in pair.mutants.values() for argument in changes}, (
        "no mutant changes these arguments: remove them from `code`"
    )


@pytest.mark.parametrize("absent", [
    pytest.param(each, id=each.name, marks=pytest.mark.full if each.how == "differs" else ()) for each in suite.ABSENT
])  # fmt: skip
def test_keras_does_not_have_it(absent: Absent) -> None:
    done, expected = refusal(absent)
    assert expected, done


def test_every_kind_has_a_pair() -> None:
    assert {pair.kind for pair in suite.PAIRS.values()} - {""} == set(KINDS) - {"sequential"}, "every kind needs a pair"
    assert len(suite.PAIRS) == sum(map(len, suite.GROUPS.values())), "two pairs have one name"
    assert set(suite.PAIRS) >= QUICK


def test_the_layouts_of_pairs_are_those_of_their_kinds() -> None:
    for pair in suite.PAIRS.values():
        if pair.kind and pair.axes and "axes:" not in pair.row and not pair.out:
            known = {str(axes) for axes in KINDS[pair.kind].axes}
            assert pair.axes in known, f"{pair.name}: add the layout to the kind's `axes`, or state it in `row`"


GOOD = Pair("elu", "activation", nn.ELU, partial(layers.ELU, alpha=1.0), ((3, 4),), {"alpha 2": {"alpha": 2.0}})
WRONG = {
    "not equal": replace(GOOD, torch=partial(nn.ELU, 0.5)),
    "a mutant that is right": replace(GOOD, mutants={"none": {"alpha": 1.0}}),
    "no mutant": replace(GOOD, mutants={}),
    "an error": replace(GOOD, keras=partial(layers.ELU, slope=1)),
    "a false alarm": replace(GOOD, kind="layer_norm", torch=partial(nn.LayerNorm, 4, eps=0.0, elementwise_affine=False),
                             keras=partial(layers.LayerNormalization, epsilon=1e-15, center=False, scale=False),
                             mutants={"epsilon": {"epsilon": 1e-3}}),
}  # fmt: skip


def test_a_good_pair_passes() -> None:
    result = report({"all": [GOOD]}, ())
    assert result.wrong == ()
    assert "1 pairs, 0 cases that Keras rejects or computes differently; all as expected." in result.text
    assert "| elu | `activation` | < 1e-15 | 1 of 1 |" in result.text


@pytest.mark.parametrize("name", WRONG)
def test_the_report_tells_what_is_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(WRONG[name], name=name)
    monkeypatch.setattr(suite, "GROUPS", {"all": (GOOD, wrong)})
    monkeypatch.setattr(suite, "ABSENT", ())
    assert main(["--markdown", str(tmp_path / "report.md")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}: not as it should be; see its row in ")
    text = (tmp_path / "report.md").read_text()
    assert "**1 of them are not as they should be**" in text
    assert main(["--markdown", str(tmp_path / "report.md")]) == 1
    assert (tmp_path / "report.md").read_text() == text  # replaced, not appended


def test_what_keras_now_has_is_told() -> None:
    for how in ("refuses", "differs", "unplanned"):
        result = report({}, [Absent("elu", "there is one", GOOD, how)])  # type: ignore[arg-type]
        assert result.wrong == ("elu",)
        assert "| **elu** |" in result.text


def test_a_layer_without_a_place_for_a_tensor_is_refused() -> None:
    with pytest.raises(NoPlanError, match="unexpected"):
        run(
            replace(GOOD, kind="linear", torch=partial(nn.Linear, 4, 5), keras=partial(layers.Dense, 5, use_bias=False))
        )


def test_a_mutant_without_a_place_for_a_tensor_is_named() -> None:
    pair = replace(GOOD, kind="linear", torch=partial(nn.Linear, 4, 5), keras=partial(layers.Dense, 5))
    with pytest.raises(NoPlanError, match="with the mutant 'no bias': let the mutant have the shapes"):
        run(replace(pair, mutants={"no bias": {"use_bias": False}}))


class LessSquare(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b * b


class LessSquareTwin(Twin):
    def __init__(self, exchanged: bool = False) -> None:
        super().__init__()
        self.exchanged = exchanged

    def call(self, a: Any, b: Any) -> Any:
        return b - a * a if self.exchanged else a - b * b


def test_exchanged_inputs_are_found_where_they_are_not_one_array() -> None:
    mutants = {"inputs exchanged": {"exchanged": True}}
    pair = Pair("two inputs of one size", "", LessSquare, partial(LessSquareTwin), ((3, 4), (3, 4)), mutants)
    assert run(pair).passed
    assert run(replace(pair, one_array=True)).survivors == ("inputs exchanged",)


def test_the_document_has_every_pair() -> None:
    rows = [
        line.split(" | ")[0].removeprefix("| ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")
    ]
    names = [row for row in rows if row not in ("pair", "PyTorch")]
    assert names == [*suite.PAIRS, *(absent.name for absent in suite.ABSENT)], "run make kinds"
    settings = sum(len(of_a_setting(pair)) for pair in suite.PAIRS.values())
    found = settings - sum(len(pair.unnamed) for pair in suite.PAIRS.values())
    text = " ".join(DOCUMENT.with_name("verify.md").read_text().split())
    assert f"{settings} change a setting" in text, f"correct docs/verify.md: {settings} change a setting"
    assert f"finds {found} of the {settings}" in text, f"correct docs/verify.md: finds {found} of the {settings}"
