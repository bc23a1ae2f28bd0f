"""The bench on answers of its own: what is right counts as right, what is wrong is found wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from wdport.recording.input_text import parse_input

from .corpus import PAIRS
from .faults import edited, first_difference, locate, order_of
from .names import HOW
from .running import BOUND, Sides, checkpoint, leaves, randomise
from .scoring import UNCOUNTED, Answer, Fates, Score, score
from .seeded import FAULTS, HARMLESS, Fault

EVERY = [pytest.param(name, marks=() if name == "fused" else pytest.mark.full)
         for name, pair in PAIRS.items() if not pair.golden]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")


@pytest.mark.parametrize("name", EVERY)
def test_the_truth_is_all_right(name: str) -> None:
    found = score(name, suggest=lambda pair, names, output: Answer(0, pair.truth))
    assert (found.right, found.wrong, found.doubt) == (found.tensors, (), 0)
    assert found.sound
    assert found.error < 1e-13


def exchanged(name: str, doubts: tuple[str, ...] = ()) -> Score:
    """The score of the truth of a pair with two branches, each with the tensors of the other."""
    turned = PAIRS[name].truth.read_text().replace("alpha", "gamma").replace("beta", "alpha").replace("gamma", "beta")

    def answer(pair: object, names: str, output: Path) -> Answer:
        output.write_text(turned)
        return Answer(0, output, doubts=doubts)

    return score(name, suggest=answer)


def test_an_equal_function_is_right() -> None:
    """Branches that are added may be either; branches that are subtracted may not."""
    found = exchanged("add")
    assert (found.right, found.by_function, found.wrong) == (4, 8, ())
    assert found.sound
    other = exchanged("subtract")
    assert (other.by_function, len(other.wrong)) == (0, 8)
    assert not other.sound


def test_a_doubt_is_about_what_it_names() -> None:
    found = exchanged("subtract", ("alpha.first or beta.first: either",))
    assert (found.doubt, len(found.wrong)) == (4, 4)
    assert len(exchanged("subtract", ("something in the model", "alpha")).wrong) == 8


def test_no_table_is_no_success() -> None:
    found = score("add", "honest", lambda pair, names, output: Answer(1, None))
    assert found.right == 0
    assert not found.sound


@pytest.mark.parametrize("name", EVERY)
def test_names_change_and_nothing_else(name: str) -> None:
    pair = PAIRS[name]
    module = pair.build_torch()
    state = module.state_dict()
    given = [torch.tensor(parse_input(text).make(0, 2, 1.0)) for text in pair.inputs]
    given = [each.float() if each.is_floating_point() else each for each in given]
    for names in HOW[1:]:
        other, honest = pair.build_torch(names), pair.honest(names)
        assert {honest[key] for key in other.state_dict()} == set(state)
        other.load_state_dict({key: state[honest[key]] for key in other.state_dict()})
        with torch.no_grad():
            assert all(map(torch.equal, leaves(module(*given)), leaves(other(*given))))


@pytest.mark.parametrize("name", EVERY)
def test_the_tables_by_hand_verify(name: str, tmp_path: Path) -> None:
    weights = checkpoint(randomise(PAIRS[name].build_torch(), 3), tmp_path / "model.pt")
    port = wdport.Port(PAIRS[name].truth)
    verdict = port.verify(weights, port.convert(weights, tmp_path / "model.weights.h5").output)
    assert verdict


def located(fault: Fault, keras: str, *causes: str):  # type: ignore[no-untyped-def]
    """What the bench makes of this answer."""
    told = {"keras": keras, "torch": ""} if keras else None
    return locate(fault, lambda *_: Answer(4, None, first_unlike=told, causes=causes))


def test_a_fault_is_named_within_one_layer() -> None:
    fault = next(each for each in FAULTS if each.name == "ReLU for SiLU")
    assert located(fault, fault.at).named
    assert located(fault, "inc/norm_a").named
    assert located(fault, "inc/conv_b").named, "a padding between is no layer"
    assert not located(fault, "inc/norm_b").named
    assert not located(fault, "inc").named, "a model of many layers names none"
    assert not located(fault, "").named
    assert located(fault, "", "activation relu where the reference has SiLU").cause
    assert not located(fault, fault.at, "something is unlike").cause
    assert not located(HARMLESS[0], "").named, "a harmless edit needs a table"


REARRANGED = ("another order of the flatten", "gates exchanged in a list without names", "both branches exchanged",
              "another order of the pixel shuffle")  # fmt: skip
"""Harmless edits that need other weights than the truth moves."""


@pytest.mark.full
@pytest.mark.parametrize("fault", [*FAULTS, *HARMLESS], ids=lambda fault: fault.name)
def test_a_fault_sits_where_it_is_said_to(fault: Fault) -> None:
    """By running both twins; where the weights do not fit, shapes show the fault."""
    pair = PAIRS[fault.pair]
    right = Sides(pair, scale=fault.scale)
    counted = {name: array for name, array in right.state.items() if not name.endswith(UNCOUNTED)}
    values = Fates(pair.plan(right.variables).moves, {}).apply(counted)
    with edited(fault) as model:
        wrong = Sides(pair, model, scale=fault.scale)
        if wrong.variables != right.variables:
            assert not fault.harmless
            return
        right.fill(values)
        error = wrong.error(values)
        if fault.harmless:
            assert error <= BOUND or fault.name in REARRANGED
        else:
            assert error > 1e-7
            site = first_difference(right, wrong)
            assert not site or order_of(wrong).near(site, fault.at)


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_only_neighbours_count(fault: Fault) -> None:
    with edited(fault) as model:
        order = order_of(Sides(PAIRS[fault.pair], model))
    at = order.places(fault.at)
    assert at, "the layer is called"
    assert order.near(fault.at, fault.at)
    far = {path for path in order.called if min(abs(order.places(path)[0] - place) for place in at) > 1}
    assert not {path for path in far if order.near(path, fault.at)}
    assert far
