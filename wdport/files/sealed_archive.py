"""Write a zip archive with a seal: see :mod:`wdport.files.zip_seal`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from wdport.files.atomic import replacing
from wdport.files.outputs import OutputPath
from wdport.files.zip_seal import seal_of


@contextmanager
def sealed_archive(output: OutputPath) -> Iterator[IO[bytes]]:
    """Yield a file to write as an archive; it replaces ``output``, with a seal, when the block succeeds.

    Raises :class:`MachineError` if writing fails.
    """
    with replacing(output) as (temporary,):
        with temporary.open("wb") as file:
            yield file
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.comment = seal_of(archive)
