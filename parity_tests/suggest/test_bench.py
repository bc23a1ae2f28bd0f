"""The bench on answers of its own: what is right counts as right, what is wrong is found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from wdport.recorder import parse_input

from .__main__ import verified
from .asking import Answer
from .corpus import PAIRS, Pair
from .edited import edited, order_of
from .fakes import branches_exchanged, exchange_two, tell_truth
from .faults import locate, prove_sites
from .names import HOW, How
from .running import Sides
from .scoring import score
from .seeded import FAULTS, HARMLESS, Fault

FEW = ("fused",)
OURS = [name for name, pair in PAIRS.items() if not pair.golden]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")


def every(few: Sequence[str]) -> list[object]:
    """Parameters: those few, and all others for the long runs."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.full) for name in OURS]


@pytest.mark.parametrize("name", every(FEW))
@pytest.mark.parametrize("names", HOW)
def test_the_truth_is_all_right(name: str, names: How) -> None:
    found = score(name, names, tell_truth)
    assert (found.right, found.wrong, found.doubt) == (found.tensors, (), 0)
    assert found.sound
    assert found.error < 1e-13


@pytest.mark.parametrize("name", every(FEW))
def test_two_tensors_exchanged_are_wrong(name: str) -> None:
    found = score(name, "meaningless", exchange_two)
    assert len(found.wrong) >= 2
    assert found.by_function == 0
    assert not found.sound


def test_an_equal_function_is_right() -> None:
    """Branches that are added may be either; branches that are subtracted may not."""
    found = score("add", "honest", branches_exchanged)
    assert (found.right, found.by_function, found.wrong) == (4, 8, ())
    assert found.sound
    assert len(score("subtract", "honest", branches_exchanged).wrong) == 8


def test_a_doubt_is_about_what_it_names() -> None:
    def doubting(pair: Pair, names: How, output: Path) -> Answer:
        answer = exchange_two(pair, names, output)
        return Answer(0, answer.table, doubts=("alpha.first or beta.first: either",))

    found = score("subtract", "honest", doubting)
    assert (found.doubt, found.wrong) == (2, ())

    def vague(pair: Pair, names: How, output: Path) -> Answer:
        return Answer(0, exchange_two(pair, names, output).table, doubts=("something in the model", "alpha"))

    assert len(score("subtract", "honest", vague).wrong) == 2


def test_no_table_is_no_success() -> None:
    found = score("add", "honest", lambda pair, names, output: Answer(1, None))
    assert found.right == 0
    assert not found.sound


@pytest.mark.parametrize("name", every(FEW))
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


@pytest.mark.parametrize("name", every(FEW[:1]))
def test_the_tables_by_hand_verify(name: str) -> None:
    assert verified(PAIRS[name])


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


def test_a_harmless_edit_needs_a_table() -> None:
    assert not located(HARMLESS[0], "").named


@pytest.mark.full
def test_faults_sit_where_they_are_said_to() -> None:
    assert prove_sites([*FAULTS, *HARMLESS]) == 0


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


def located(fault: Fault, keras: str, *causes: str):  # type: ignore[no-untyped-def]
    """What the bench makes of this answer."""
    told = {"keras": keras, "torch": ""} if keras else None
    return locate(fault, lambda *_: Answer(4, None, first_unlike=told, causes=causes))


def leaves(value: object) -> list[torch.Tensor]:
    """The tensors of an output."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in leaves(value[name])]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    assert isinstance(value, torch.Tensor)
    return [value]
