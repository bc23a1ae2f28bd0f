"""Whatever the opcodes, the reader answers with a tensor or with one of its own errors; whatever the bytes, tests/fuzz
shows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdport.base.errors import WdportError
from wdport.checkpoint.pickle_machine import _OPCODES

from .bad import read_all
from .forge import archive, name, pickled

NAMES = [name("collections", "OrderedDict"), name("torch", "FloatStorage"), name("torch", "float32")]
NAMES += [name("torch._utils", "_rebuild_tensor_v2"), name("torch", "Size")]
pieces = st.one_of(
    st.sampled_from([bytes([code]) for code in _OPCODES]),
    st.sampled_from([b"q\0", b"h\0", b"K\1", b"X\1\0\0\0a", b"X\7\0\0\0storage", b"X\1\0\0\0000", *NAMES]),
    st.binary(max_size=3),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=40))
def test_any_opcodes(tmp_path: Path, program: list[bytes]) -> None:
    """The machine ends in a tree or a fault; no other exception leaves it."""
    (tmp_path / "x.pt").write_bytes(archive(pickled(*program)))
    with suppress(WdportError):
        read_all(tmp_path / "x.pt")
