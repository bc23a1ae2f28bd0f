"""Relations between a wrong array and the right one: stated where they hold, and nothing where none does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wdport.compare.relations import added_relations, permutation, relations, variable_relations

RNG = np.random.default_rng(0)
X, A, B = (RNG.standard_normal((4, 5, 6)) for _ in range(3))
KNOWN = {"the output of a": A, "the output of b": B}

Change = Callable[[np.ndarray], np.ndarray]
STATED: dict[str, tuple[Change, str]] = {
    "another layer's": (lambda x: A, "is the output of a"),
    "a term is missing": (lambda x: x - A, "lacks the output of a"),
    "a term is doubled": (lambda x: x + B, "has the output of b in it once too often"),
    "a part of a term": (lambda x: x + 0.25 * B, "has 0.25 times the output of b too much"),
    "the wrong term": (lambda x: x + A - B, "has the output of a in it in place of the output of b"),
    "scaled": (lambda x: 0.125 * x, "is 0.125 times what it should be"),
    "negative": (lambda x: -x, "has the opposite sign"),
    "less": (lambda x: x - 1, "is 1 less than it should be"),
    "more, larger": (lambda x: 3 * x + 2, "is 3 times what it should be, plus 2"),
    "less, larger": (lambda x: -3 * x - 2, "is -3 times what it should be, minus 2"),
    "a part is missing": (lambda x: x - 0.25 * B, "lacks 0.25 times the output of b"),
    "left out": (lambda x: x * (np.arange(120).reshape(x.shape) % 10 > 0), "is zero at 12 of 120 places and right"),
    "complement": (lambda x: 1 - x, "is 1 minus what it should be"),
    "zeros": (np.zeros_like, "is all zeros"),
    "bfloat16": (lambda x: (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float), ""),
    "float32": (lambda x: x.astype(np.float32).astype(float), "is rounded to float32"),
    "float16": (lambda x: x.astype(np.float16).astype(float), "is rounded to float16"),
    "clipped": (lambda x: np.clip(x, -0.5, 1.0), "is limited to -0.5 .. 1"),
    "dropped": (lambda x: x * (np.arange(120).reshape(x.shape) % 10 > 0) / 0.9, "is zero at 12 of 120 places"),
    "floor": (np.floor, "is rounded down"),
    "first sample": (lambda x: np.broadcast_to(x[:1], x.shape), "is the first sample's for every sample"),
    "mean sample": (lambda x: np.broadcast_to(x.mean(0), x.shape), "is the batch's mean for every sample"),
    "reversed": (lambda x: x[:, ::-1], "is reversed along axis 1"),
    "rolled": (lambda x: np.roll(x, 2, axis=2), "is rolled by 2 along axis 2"),
    "rolled back": (lambda x: np.roll(x, -1, axis=2), "is rolled by -1 along axis 2"),
    "exchanged": (lambda x: x[:, [0, 3, 2, 1, 4]], "is exchanged at 1 and 3 along axis 1"),
    "reshaped": (lambda x: x.swapaxes(1, 2).reshape(x.shape), "has the right values in another order"),
    "one vector": (lambda x: x + A[0, 0], "is off by one vector, the same at every sample and position"),
}  # fmt: skip


@pytest.mark.parametrize("case", STATED)
def test_what_holds_is_stated(case: str) -> None:
    change, text = STATED[case]
    told = relations(np.ascontiguousarray(change(X)), X, KNOWN)
    assert [each[: len(text)] for each in told] == ([text] if text else [])  # truncated bfloat16 is not rounded


@pytest.mark.parametrize("case", [case for case, (_, text) in STATED.items() if text])
def test_what_nearly_holds_is_not_stated(case: str) -> None:
    wrong = np.ascontiguousarray(STATED[case][0](X)) + 1e-6 * RNG.standard_normal(X.shape)
    assert relations(wrong, X, KNOWN) == []


def test_nothing_is_said_of_equal_arrays_other_shapes_or_nan() -> None:
    assert relations(X, X, KNOWN) == []
    assert relations(X + 1e-13, X, KNOWN) == []
    assert relations(X[:, :4], X, KNOWN) == []
    assert relations(X * np.nan, X, KNOWN) == []


def test_what_a_layer_adds_to_its_input() -> None:
    table = RNG.standard_normal((5, 6))
    told = added_relations(A + np.roll(table, 1, axis=0), A + table, {"its input": A})
    assert told == ["adds to its input what is rolled by 1 along axis 1"]
    assert added_relations(A + table * B, A + table, {"its input": A}) == []


def test_any_permutation_is_found() -> None:
    order = RNG.permutation(5)
    found = permutation(X[:, order], X, 1)
    assert found is not None
    assert np.array_equal(found, order)
    assert permutation(X, X, 1) is None


KERNEL, SQUARE = RNG.standard_normal((6, 3, 2)), RNG.standard_normal((6, 6))
VARIABLES: dict[str, tuple[Change, str]] = {
    "as it was stored": (lambda x: x.reshape(6, 6).T.reshape(x.shape), "is not transposed"),
    "heads and widths": (
        lambda x: x.reshape(6, 2, 3).transpose(0, 2, 1).reshape(x.shape),
        "is in another order along axes 1 to 2",
    ),
    "heads": (lambda x: x[:, ::-1], "is reversed along axis 1"),
    "another's": (lambda x: 2.0 * KERNEL + 1.0, "is the value of b"),
    "zeros": (np.zeros_like, "is all zeros"),
    "twice": (lambda x: 2.0 * x, "is 2 times what it should be"),
    "float16": (lambda x: x.astype(np.float16).astype(float), "is rounded to float16"),
    "a shuffle": (lambda x: RNG.permuted(x, axis=None), "has the right values in another order"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_wrong_variable_is_described(name: str) -> None:
    change, text = VARIABLES[name]
    others = {"the value of a": SQUARE, "the value of b": 2.0 * KERNEL + 1.0}
    assert variable_relations(change(KERNEL), KERNEL, others) == [text]


def test_a_square_matrix_may_be_read_as_its_transpose() -> None:
    assert variable_relations(SQUARE.T, SQUARE, {}) == ["is not transposed"]
    assert variable_relations(SQUARE, SQUARE, {}) == []
    assert variable_relations(RNG.standard_normal(SQUARE.shape), SQUARE, {}) == []
