"""ARFF files: as scipy reads them where it does, and with the line of every fault."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import scipy.io.arff
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wdport.data import read_series
from wdport.errors import InputError, UsageError, WdportError

relaxed = settings(deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
finite = st.floats(allow_nan=False, allow_infinity=False)
HEAD = "% made for a test\n@RELATION r\n\n@ATTRIBUTE a NUMERIC\n@attribute 'b c' real\n@ATTRIBUTE y {0,1}\n@DATA\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "x.arff"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@relaxed
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=finite), st.sampled_from([",", ", "]))
def test_as_scipy(tmp_path: Path, values: np.ndarray, mark: str) -> None:
    text = HEAD + "".join(mark.join([repr(float(a)), repr(float(b)), "1"]) + "\n" for a, b in values)
    series = read_series(write(tmp_path, text))
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
    path = write(tmp_path, f"@relation r\n{head}\n@data\n{rows}\n")
    if values is None:
        with pytest.raises(InputError, match="no numeric column"):
            read_series(path)
        return
    series = read_series(path)
    assert series.values.tolist() == values
    assert list(series.dropped) == dropped.split()


FAULTS: list[tuple[str | bytes, str]] = [
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
    path = write(tmp_path, HEAD + "1,2,1\n")
    assert read_series(path, columns=["b c"]).values.tolist() == [[2]]
    with pytest.raises(UsageError, match="y: is not numeric"):
        read_series(path, columns=["y"])


@relaxed
@given(st.data())
def test_damage_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray((HEAD + "1,2,1\n3,4,0\n").encode())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        series = read_series(write(tmp_path, bytes(content)))
    except WdportError:
        return
    assert np.isfinite(series.values).all()
    assert series.values.shape[1] == len(series.names)
