"""How a table of bad files is checked: class, exit code, form and fragment of the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from wdport.base.errors import InputError, WdportError
from wdport.base.limits import MAX_MESSAGE_CHARS
from wdport.checkpoint import open_checkpoint


def read_all(path: Path, key: str | None = None) -> dict[str, bytes]:
    """The bytes of every tensor."""
    with open_checkpoint(path, key=key) as checkpoint:
        return {name: checkpoint.read(name).tobytes() for name in checkpoint.tensors}


def refuse(path: Path, fragment: str, kind: type[WdportError] = InputError, key: str | None = None) -> None:
    """Opening and reading all of ``path`` ends in exactly ``kind``, in one short line with ``fragment``."""
    with pytest.raises(WdportError) as caught:
        read_all(path, key)
    line = str(caught.value)
    assert type(caught.value) is kind, line
    assert fragment in line
    assert str(path) in line
    assert line.isprintable()
    assert len(f"error: {line}") - len(str(path)) <= MAX_MESSAGE_CHARS


def refuse_bytes(folder: Path, content: bytes, fragment: str, kind: type[WdportError] = InputError) -> None:
    """The same for a file with that content."""
    path = folder / "bad.pt"
    path.write_bytes(content)
    refuse(path, fragment, kind)
