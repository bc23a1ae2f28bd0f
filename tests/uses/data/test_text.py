"""Separated text and ARFF files: every dialect is read to the bit, and every fault is found with its line."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import scipy.io.arff
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wdport.base.errors import InputError, UsageError
from wdport.checkpoint.faults import Fault
from wdport.uses.data import read_series, text_tables
from wdport.uses.data.text_tables import TextRows, is_number, split

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
finite = st.floats(allow_nan=False, allow_infinity=False)
tables = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)


def write(folder: Path, text: str | bytes, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@relaxed
@given(tables, st.sampled_from(",;\t "), st.booleans(), st.sampled_from(["", "date", "time of day"]), st.data())
def test_what_is_written_is_read(
    tmp_path: Path, values: np.ndarray, mark: str, header: bool, date: str, data: st.DataObject
) -> None:
    assume(mark != " " or " " not in date)
    letters = st.text("abcXYZ_.", min_size=1, max_size=5).map("c{}".format)
    names = data.draw(st.lists(letters, min_size=values.shape[1], max_size=values.shape[1], unique=True))
    lines = [[repr(float(value)) for value in row] for row in values]
    if date:
        lines = [[f"2016-07-{day:02}", *cells] for day, cells in enumerate(lines, 1)]
    if header:
        lines.insert(0, [date, *names] if date else names)
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = data.draw(st.sampled_from(["", "\ufeff", "\n\n"])) + end.join(map(mark.join, lines))
    series = read_series(write(tmp_path, text + data.draw(st.sampled_from(["", end, end * 2]))))
    assert series.values.tobytes() == values.tobytes()
    counted = tuple(f"column_{number + bool(date)}" for number in range(1, values.shape[1] + 1))
    assert series.names == (tuple(names) if header else counted)
    assert series.dropped == ((date if header else "column_1",) if date else ())


@pytest.mark.parametrize(
    ("text", "names", "dropped", "rows"),
    [
        ("date,a,b\n2016-07-01 00:00:00,1,2\n", "a b", "date", [[1, 2]]),
        ("1,2\n3,4\n", "column_1 column_2", "", [[1, 2], [3, 4]]),
        ("5\n6\n", "column_1", "", [[5], [6]]),
        ("a\n6", "a", "", [[6]]),
        ("# a b\n1 2\n", "a b", "", [[1, 2]]),
        ("#a\n#b\n", None, None, None),
        ("  1.5   2e3\n -4\t5\n", None, None, None),
        ("  1.5   2e3\n -4  5\n", "column_1 column_2", "", [[1.5, 2000], [-4, 5]]),
        ("x; y;label\n1;2;up\n3;4;down\n", "x y", "label", [[1, 2], [3, 4]]),
        ('"a, m",b\n"1",2\n', "a,_m b", "", [[1, 2]]),
        ('when,a\n"Jan 1, 2016",3\n', "a", "when", [[3]]),
        (",a,b\n0,5,6\n1,7,8\n", "a b", "column_1", [[5, 6], [7, 8]]),
        ("a,,b\n0,5,6\n", "a column_2 b", "", [[0, 5, 6]]),
        ("date,0,1,2\n1990-01-01,.5,.6,.7\n", "0 1 2", "date", [[0.5, 0.6, 0.7]]),
        ("date,0,1,OT\n1990/1/1,.5,.6,.7\n", "0 1 OT", "date", [[0.5, 0.6, 0.7]]),
        ("0,1,2\n0.5,0.6,0.7\n", "0 1 2", "", [[0.5, 0.6, 0.7]]),
        (",0,1,2\n0,.5,.6,.7\n", "0 1 2", "column_1", [[0.5, 0.6, 0.7]]),
        ("0,1,2\n3,-4,5\n", "column_1 column_2 column_3", "", [[0, 1, 2], [3, -4, 5]]),
        ("0,1\n.5,.6\n", "column_1 column_2", "", [[0, 1], [0.5, 0.6]]),
        ("01.02.2016,up,7\n02.02.2016,down,8\n", "column_3", "column_1 column_2", [[7], [8]]),
        ("a,b,\n1,2,\n", "a b", "column_3", [[1, 2]]),
        ('"a" "b"\n"r1" 2\n', "b", "a", [[2]]),
        ('a,label\n1,"x;y\tz"\n', "a", "label", [[1]]),
    ],
)
def test_dialects(
    tmp_path: Path, text: str, names: str | None, dropped: str | None, rows: list[list[float]] | None
) -> None:
    path = write(tmp_path, text, "x.txt")
    if names is None or dropped is None:
        with pytest.raises(InputError):
            read_series(path)
        return
    series = read_series(path)
    assert [name.replace(" ", "_") for name in series.names] == names.split()
    assert list(series.dropped) == dropped.split()
    assert series.values.tolist() == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n\r\n", "is empty"),
        ("a,b\n", "no rows"),
        ("#1,2", "no rows"),
        ("a,b\nc,d\n", "no numeric column"),
        ("a,b\n1,2\n3\n4,5\n", "line 3: has 1 values, not 2"),
        ("\n\na,b\n1,2\n3,4,5\n", "line 5: has 3 values, not 2"),
        ("1,2\n\n3,4\n", "line 2: is empty"),
        ("1 2\n3\n", "line 2: has 1 values, not 2"),
        ('a,b\n"1,2",3\n"4",5,6\n', "line 3: has 3 values, not 2"),
        ('a,b\n"1,2\n', "line 2: its quotes do not match"),
        ("a,b\n1,2\n3,x y\n", "line 3: column 'b' holds 'x y', which is not a number"),
        ("a,b\n1,2\n3,\n", "line 3: column 'b' holds '', which"),
        ("a,b\n,2\n3,4\n", "line 2: column 'a' holds '', which"),
        ("NA,2\n3,4\n", "line 1: column 'column_1' holds 'NA', which"),
        ("date,a\n2016-01-01,1\n17,2\n", "line 2: column 'date' holds '2016-01-01', which"),
        ("a\n1\n1_000\n", "line 3: column 'a' holds '1_000'"),
        ("a,b\n1,2\nnan,4\n", "line 3: column 'a' holds NaN"),
        ("a,b\n1,2\n3,4\n5,6\n7,nan\n", "line 5: column 'b' holds NaN (1 in total)"),
        ("a,b\n1,2\n3,-inf\n", "line 3: column 'b' holds an infinite value"),
        ("a,b\n1,2\n3,1e999\n", "line 3: column 'b' holds an infinite value"),
        ("a;b\n1;2,5\n", "line 2: column 'b' holds '2,5'; write decimals with a point"),
        ("a,a\n1,2\n", "2 columns named 'a'"),
        (b"a,b\n1,2\n\xff\xfe,3\n", "line 3: is not UTF-8"),
        (b"a,b\n1,2\n3,\x00\n", r"line 3: column 'b' holds '\x00'"),
    ],
)
def test_faults_are_found_with_their_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_series(path)
    assert message in str(caught.value)
    assert caught.value.where.startswith(str(path)[:20])


def test_columns_are_picked_and_ordered(tmp_path: Path) -> None:
    path = write(tmp_path, "date,a,b,c\n2016-01-01,1,2,3\n2016-01-02,4,5,6\n")
    series = read_series(path, columns=["c", "a"])
    assert series.names == ("c", "a")
    assert series.values.tolist() == [[3, 1], [6, 4]]
    assert series.dropped == ("date",)


def test_faults_in_columns_that_are_not_wanted_do_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1,2,NA\n4,nan,6\n")
    assert read_series(path, columns=["a"]).values.tolist() == [[1], [4]]
    for name, line in (("b", "line 3"), ("c", "line 2")):
        with pytest.raises(InputError, match=line):
            read_series(path, columns=["a", name])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "z"], "z: is not a column; choose from a, b"),
        (["date"], "date: is not numeric; choose from a, b"),
        ([], "is empty"),
        (["a", "a"], "duplicate"),
        ("a", "is a string"),
    ],
)
def test_impossible_columns(tmp_path: Path, columns: list[str], message: str) -> None:
    path = write(tmp_path, "date,a,b\n2016-01-01,1,2\n")
    with pytest.raises(UsageError, match=message):
        read_series(path, columns=columns)


@example("0\x1f")
@example("\x850")
@given(st.one_of(st.text(max_size=6), st.text("0123456789.+-eExXinfaNIFAT_ ", max_size=8)))
def test_a_number_is_what_numpy_reads(cell: str) -> None:
    assume(cell.strip() and not set(cell) & set(",\r\n"))
    try:
        expected = bool(np.loadtxt([cell], delimiter=",", comments=None).ndim == 0)
    except ValueError:
        expected = False
    assert is_number(cell) == expected


@given(st.lists(st.text('12", a', min_size=1, max_size=8), min_size=1, max_size=3))
def test_cells_are_what_numpy_sees(lines: list[str]) -> None:
    """Else a quote could shift a column unseen."""
    try:
        cells = [split(line, ",") for line in lines]
    except Fault:
        return
    width = len(cells[0])
    assume(all(len(row) == width for row in cells) and all(line.strip() for line in lines))
    rows = TextRows(lines, range(1, len(lines) + 1), ",")
    rows.require_width(width)
    for position in range(width):
        if all(is_number(row[position]) for row in cells):
            loaded = rows.load(["?"] * width, [position])
            assert loaded[:, 0].tolist() == [float(row[position]) for row in cells]


def test_a_file_of_the_csv_module_and_of_savetxt(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)) * 1e5
    with (tmp_path / "q.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["a", 'b"', "c,d"], *values.tolist()])
    quoted = read_series(tmp_path / "q.csv")
    np.testing.assert_array_equal(quoted.values, values)
    assert quoted.names[2] == "c,d"
    np.savetxt(tmp_path / "s.TXT", values, header="a b c", fmt="%.17g")
    saved = read_series(tmp_path / "s.TXT")
    np.testing.assert_array_equal(saved.values, values)
    assert saved.names == ("a", "b", "c")


def test_a_long_file_is_read_by_loadtxt_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks at the header and one cell of each numeric column only."""
    values = np.arange(17000.0 * 8).reshape(-1, 8) + 0.5
    np.savetxt(tmp_path / "long.csv", values, delimiter=",", header="a,b,c,d,e,f,g,h", comments="", fmt="%.1f")
    seen = 0

    def count(cell: str) -> bool:
        nonlocal seen
        seen += 1
        return is_number(cell)

    monkeypatch.setattr("wdport.uses.data.text_tables.is_number", count)
    np.testing.assert_array_equal(read_series(tmp_path / "long.csv").values, values)
    assert seen < 20  # of 136,000 cells; those of the header too


HEAD = "% made for a test\n@RELATION r\n\n@ATTRIBUTE a NUMERIC\n@attribute 'b c' real\n@ATTRIBUTE y {0,1}\n@DATA\n"


def test_what_numpy_alone_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a,b\n1,2\n3,x\n")
    monkeypatch.setattr(text_tables, "is_number", lambda _: True)
    with pytest.raises(InputError, match=r"cannot be parsed \(could not convert string .*; write it again as pl"):
        read_series(path)


@relaxed
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=finite), st.sampled_from([",", ", "]))
def test_as_scipy(tmp_path: Path, values: np.ndarray, mark: str) -> None:
    text = HEAD + "".join(mark.join([repr(float(a)), repr(float(b)), "1"]) + "\n" for a, b in values)
    series = read_series(write(tmp_path, text, "x.arff"))
    truth, meta = scipy.io.arff.loadarff(StringIO(text))
    assert series.names == ("a", "b c")
    assert series.dropped == ("y",)
    assert [*series.names, *series.dropped] == meta.names()
    for position, name in enumerate(series.names):
        assert series.values[:, position].tobytes() == truth[name].tobytes()


@pytest.mark.parametrize(
    ("head", "rows", "values", "dropped"),
    [
        ("@attribute s string\n@attribute a integer", "'it, is',4\nx,5", [[4], [5]], "s"),
        ('@attribute "d" date "yyyy-MM-dd"\n@attribute a int', '"2016-07-01",4', None, ""),
        ('@attribute "d" date "yyyy-MM-dd"\n@attribute a integer', '"2016-07-01",4', [[4]], "d"),
        ("@attribute a numeric % why\n@attribute b numeric", "4\t5\n% no\n\n6\t7", [[4, 5], [6, 7]], ""),
        ("@attribute a numeric", "4", [[4]], ""),
    ],
)
def test_kinds(tmp_path: Path, head: str, rows: str, values: list[list[float]] | None, dropped: str) -> None:
    path = write(tmp_path, f"@relation r\n{head}\n@data\n{rows}\n", "x.arff")
    if values is None:
        with pytest.raises(InputError, match="no numeric column"):
            read_series(path)
        return
    series = read_series(path)
    assert series.values.tolist() == values
    assert list(series.dropped) == dropped.split()


ARFF_FAULTS: list[tuple[str | bytes, str]] = [
    ("", "is empty"),
    ("@relation r\n@attribute a numeric\n", "has no @DATA line"),
    ("@relation r\n@data\n1\n", "declares no attributes"),
    (HEAD, "has no rows"),
    (HEAD + "1,2,1\n1,2\n", "line 9: has 2 values, not 3"),
    (HEAD + "%\n\n1,2,1,4\n", "line 10: has 4 values, not 3"),
    (HEAD + "1,2,1\n% c\n?,2,1\n", "line 10: column 'a' holds '?', which is not a number"),
    (HEAD + "1,x,1\n", "line 8: column 'b c' holds 'x', which is not a number"),
    (HEAD + "%\n1,2,1\n1,nan,1\n", "line 10: column 'b c' holds NaN"),
    (HEAD + "1,2,1\n{0 5}\n", "line 9: is a sparse row"),
    ("@relation r\n@attribute a relational\n@attribute b numeric\n@end a\n@data\n'1'\n", "line 2: declares a rel"),
    ("@relation r\n@attribute a numeric\n@end a\n@data\n1\n", "line 3: '@end' is not part"),
    ("@attribute a\n@data\n1\n", "line 1: is not an attribute declaration"),
    ("@attribute 'a\n@data\n1\n", "line 1: is not an attribute declaration"),
    (b"@attribute a numeric\n@data\n\xff\n", "line 3: is not UTF-8"),
]
"""Of whole files: `tests/bad` runs them."""


def test_a_nominal_attribute_cannot_be_picked(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + "1,2,1\n", "x.arff")
    assert read_series(path, columns=["b c"]).values.tolist() == [[2]]
    with pytest.raises(UsageError, match="y: is not numeric"):
        read_series(path, columns=["y"])
