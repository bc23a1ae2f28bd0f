"""What is told of a variable: its tensors, moved by the rule that is told, are the variable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.families.test_custom import files
from tests.make import SETTINGS, make_state, save
from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.conversion.explain import RouteFacts, Routes, from_account, routes_of
from wdport.conversion.load import open_account
from wdport.conversion.prepare import Settings
from wdport.files.model_files import read_variables
from wdport.mapping.axes import find_rule
from wdport.mapping.rearrange import apply_rule, combined
from wdport.models.interface import Array

CASES = ["official", "gru", "lstm", "shared", "image"]

Made = Callable[[str], tuple[Path, Path, Settings]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By name, a checkpoint, what it was converted into, and what was said."""

    @cache
    def make(name: str) -> tuple[Path, Path, Settings]:
        folder = tmp_path_factory.mktemp(name)
        if name == "official":
            checkpoint, settings = save(folder / "ck.ckpt", make_state()), Settings(values=SETTINGS)
        else:
            checkpoint, table = files(folder, name)
            settings = Settings(mapping=table)
        output = folder / "out.safetensors"
        wdport.convert(checkpoint, output, values=dict(settings.values or {}), mapping=settings.mapping)
        return checkpoint, output, settings

    return make


def moved(route: RouteFacts, opened: Checkpoint, sizes: dict[str, int]) -> list[Array]:
    sources = [opened.read(end.name) for end in route.sources]
    assert [array.shape for array in sources] == [end.shape for end in route.sources]
    if route.combine:
        sources = [combined(route.combine, sources).astype(np.float32)]  # type: ignore[arg-type]
    rule = find_rule(str(route.axes))
    assert rule is not None
    return apply_rule(rule, sources, sizes)


@pytest.mark.parametrize("name", CASES)
def test_the_tensors_of_every_variable_become_it(made: Made, name: str) -> None:
    checkpoint, output, settings = made(name)
    by_plan, by_manifest = routes_of(checkpoint, settings), routes_of(output, Settings())
    shapes = {end.name: end.shape for route in by_manifest.routes for end in route.targets}
    with open_checkpoint(checkpoint) as opened:
        values = dict(read_variables(output, shapes, None))  # type: ignore[arg-type]
        for variable, value in values.items():
            (planned,), (written,) = by_plan.explain(variable), by_manifest.explain(variable)
            assert (planned.sources, planned.targets, planned.axes, planned.combine, planned.line) == (
                written.sources, written.targets, written.axes, written.combine, written.line
            )  # fmt: skip
            assert Path(planned.table).name == Path(written.table).name
            assert written.sizes in ({}, planned.sizes)
            arrays = moved(written, opened, dict(planned.sizes))
            found = dict(zip((end.name for end in written.targets), arrays, strict=True))
            assert found[variable].tobytes() == value.tobytes()
            assert found[variable].shape == value.shape
        for tensor in opened.tensors:
            assert by_plan.explain(tensor), tensor
            assert by_manifest.explain(tensor), tensor


def test_the_line_is_that_of_the_table(made: Made) -> None:
    checkpoint, _, settings = made("image")
    table = Path(str(settings.mapping))
    (route,) = routes_of(checkpoint, settings).explain("head/kernel")
    assert "torch: head, keras: head" in table.read_text().splitlines()[route.line - 1]
    assert route.table == str(table)
    assert (route.sizes["h"], route.sizes["w"]) == (4, 4)
    assert [end.name for end in route.sources] == ["head.weight"]


def test_tensors_that_fill_nothing(made: Made) -> None:
    checkpoint, output, settings = made("shared")
    for routes in (routes_of(checkpoint, settings), routes_of(output, Settings())):
        (tied,) = routes.explain("again.weight")
        assert (tied.fate, tied.reason, tied.targets) == ("tied", "mix.weight", ())
        (route,) = routes.explain("mix.weight")
        assert route.notes == ("again.weight is tied to mix.weight, bit for bit",)


def test_tables_that_are_used_and_checked(made: Made) -> None:
    _, output, _ = made("official")
    routes = routes_of(output, Settings())
    (used,) = routes.explain("beta_all")
    assert used.notes == ("beta_all is also compared with noise_schedule.beta",)
    (checked,) = routes.explain("time_embedding.emb")
    assert (checked.fate, checked.reason) == ("checked", "time_frequencies")


def test_a_name_may_have_the_prefix_that_was_left_out(tmp_path: Path) -> None:
    state = {f"model.{name}": tensor for name, tensor in make_state().items()}
    checkpoint = save(tmp_path / "ck.ckpt", state)
    routes = routes_of(checkpoint, Settings(values=SETTINGS, mapping="mappings/waveletdiff.yaml"))
    assert routes.explain("model.beta_all") == routes.explain("beta_all")


def test_an_unknown_name_is_told_with_the_nearest(made: Made) -> None:
    _, output, _ = made("gru")
    with pytest.raises(UsageError, match=r"no tensor or variable of that name; did you mean head/kernel") as raised:
        routes_of(output, Settings()).explain("head/kernal")
    assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="wdport inspect --tensors lists the names"):
        Routes("x", ()).explain("y")


def test_a_converted_file_tells_by_itself(made: Made, tmp_path: Path) -> None:
    _, output, settings = made("gru")
    assert routes_of(output, settings) == routes_of(output, Settings())
    other = tmp_path / "other.yaml"
    other.write_text(Path(str(settings.mapping)).read_text() + "# another\n")
    with pytest.raises(MisfitError, match=r"other\.yaml is not the table that converted it, my\.yaml"):
        routes_of(output, Settings(mapping=other))
    for said in (Settings(model="a:b"), Settings(config="a.yaml"), Settings(values={"a": "b"}), Settings(key="a")):
        with pytest.raises(UsageError, match="is a converted file, whose manifest is used; leave it out"):
            routes_of(output, said)


def test_a_file_that_keras_saved_says_nothing(made: Made, tmp_path: Path) -> None:
    wdport.load_model(made("official")[1]).save(tmp_path / "b.keras")
    with pytest.raises(InputError, match="does not state what it was made from"):
        routes_of(tmp_path / "b.keras", Settings())


def test_a_damaged_manifest_is_refused(made: Made) -> None:
    _, output, _ = made("gru")
    account, _ = open_account(output)
    assert account is not None
    for key in ("tensors", "checks", "ties", "source"):
        damaged = {**account.manifest, key: 3}
        with pytest.raises(InputError, match="its manifest is damaged"):
            from_account(output, type(account)(damaged, *list(vars(account).values())[1:]))
