"""A sampling run that ends after its first part, so that its folder is there to be damaged."""

from __future__ import annotations

import io
import shlex
import shutil
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.bad.ground import ground
from wdport.cli.main import main
from wdport.uses.sampling.parts import Parts


def interrupt(where: Path, command: str) -> Path:
    """The folder of parts in ``where``, with one part and its ``run.json``."""
    made = _made(command)
    target = where / made.name
    shutil.copytree(made, target)
    return target


@cache
def _made(command: str) -> Path:
    folder = Path(mkdtemp(prefix="wdport-parts-"))
    shutil.copy(ground() / "good.keras", folder)
    keep = Parts.save

    def once(parts: Parts, *given: Any) -> None:
        keep(parts, *given)
        raise KeyboardInterrupt

    words = [str(folder / word) if word.startswith(("good", "out")) else word for word in shlex.split(command)]
    Parts.save = once  # type: ignore[method-assign]
    try:
        with redirect_stderr(io.StringIO()):
            assert main(words) == 130
    finally:
        Parts.save = keep  # type: ignore[method-assign]
    return folder / "out.npz.parts"
