"""Start a process for one side of a comparison, ask it, and end it. Its answers are untrusted data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wdport.errors import IncompleteError, error_from
from wdport.files.temporary import scratch_folder
from wdport.jax_settings import cache_variables
from wdport.model import Array
from wdport.parity.fresh.messages import BrokenMessage, Message, receive, send
from wdport.platforms import plain_environment

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from wdport.parity.fresh.confinement import main; main()"
)


class Worker:
    """A process with one ``role``; ``arguments`` are JSON values for it, ``denied`` the paths that it may not read.

    It is ended with the context.
    """

    def __init__(self, role: str, arguments: Mapping[str, object], denied: Sequence[str] = ()) -> None:
        self.role, self._arguments, self._denied = role, arguments, list(denied)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as held:
            self._start(str(held.enter_context(scratch_folder())))
            self._held = held.pop_all()
        return self

    def _start(self, folder: str) -> None:
        confined = self.role == "port"
        job = {"role": self.role, "denied": self._denied, "folder": folder, "arguments": self._arguments}
        environment = plain_environment() if confined else dict(os.environ)
        # A model's code must not write a CI run's outputs, nor programs that another process would load from the cache.
        for name in [name for name in environment if name.startswith(("GITHUB_", "JAX_COMPILATION_CACHE"))]:
            del environment[name]
        environment |= {"TMPDIR": folder} if confined else cache_variables()
        self._process = subprocess.Popen(
            # -P: without it Python puts the current folder first on sys.path, and a file there could replace a module.
            [sys.executable, "-P", "-c", _START, json.dumps(_search_path()), json.dumps(job)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder if confined else None, env=environment,
            stderr=None if self.role == "layers" else subprocess.DEVNULL, start_new_session=True, close_fds=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            # The whole session: a model's code may have started processes that would outlive it.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for stream in (self._questions, self._answers):
            with suppress(OSError):
                stream.close()
        self._held.close()

    def tell(self, facts: Mapping[str, object], arrays: Sequence[Array] = ()) -> None:
        """Send one message; if it does not arrive, no answer comes."""
        with suppress(OSError):
            send(self._questions, facts, arrays)

    def answer(self) -> Message:
        """Wait for one message; raises :class:`BrokenMessage`."""
        return receive(self._answers)

    def ask(self, facts: Mapping[str, object], arrays: Sequence[Array] = ()) -> Message:
        """Send one message and wait for its answer; raises :class:`BrokenMessage`."""
        self.tell(facts, arrays)
        return self.answer()

    def result(self, say: Callable[[str], None]) -> Message:
        """Wait for the result of a process that reports its progress; raises the error that it reports."""
        while True:
            try:
                message = self.answer()
            except BrokenMessage as error:
                what = f"the process that compares the layers ended without a verdict ({error})"
                raise IncompleteError("verify", what, "correct the code of the model that ended it") from None
            if "say" in message.facts:
                say(str(message.facts["say"])[:200])
            elif isinstance(reported := message.facts.get("error"), list):
                raise error_from(reported)
            else:
                return message


def _search_path() -> list[str]:
    """Where modules are looked for: wdport first, the current folder last."""
    here, root = os.getcwd(), str(Path(__file__).parents[3])
    others = [os.path.abspath(entry) for entry in sys.path if entry]
    return list(dict.fromkeys([root, *(entry for entry in others if entry != here), here]))
