"""The list keeps what was fixed, and those of its models that need torch alone build and run."""

from __future__ import annotations

import pytest

from parity_tests.port.corpus import BATCHES, CORPUS, UNSEEN, check, make_arguments, unseen_by_rule
from parity_tests.port.entries import ENTRIES
from wdport.families.user_functions import find_function

FAST = [name for name, entry in CORPUS.items() if entry.group in ("small modules", "torch layers")]


def test_names_are_unique_and_twenty_entries_are_unseen() -> None:
    assert len(CORPUS) == len(ENTRIES) >= 80
    assert {name for name, entry in CORPUS.items() if entry.unseen} == set(UNSEEN) == set(unseen_by_rule(ENTRIES))
    assert len(UNSEEN) == 20


@pytest.mark.parametrize("name", CORPUS)
def test_an_entry_states_its_builder_and_inputs(name: str) -> None:
    entry = CORPUS[name]
    assert find_function(entry.target) is entry.build
    shapes = [{key: value.shape for key, value in make_arguments(entry, batch).items()} for batch in BATCHES]
    assert shapes[0] != shapes[1]


@pytest.mark.parametrize("name", FAST)
def test_a_model_builds_and_runs_at_two_sizes(name: str) -> None:
    check(CORPUS[name])
