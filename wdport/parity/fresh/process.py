"""Start a process for one side of a comparison, ask it, and end it. Its answers are untrusted data.

A message is a JSON object with dataclasses as JSON values and arrays as ``.npy`` files without pickles, so nothing that
a process sends can run code in the process that reads it. Dataclasses are read by the declared types of their fields,
so that nothing in them is more than data.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import IO, Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from wdport.base.errors import IncompleteError, error_from
from wdport.base.jax_settings import cache_variables
from wdport.base.platforms import plain_environment
from wdport.compare.activities import Say
from wdport.files.atomic import scratch_folder
from wdport.models.interface import Array

_SIZE: Final = struct.Struct(">Q")
_MOST_FACTS: Final = 1 << 28
_MOST_ARRAYS: Final = 1 << 36
_KINDS: Final = "fiub"


class BrokenMessage(Exception):
    """What was read is not a message."""


@dataclass(frozen=True)
class Message:
    """JSON values by name, and arrays."""

    facts: Mapping[str, object] = field(default_factory=dict)
    arrays: tuple[Array, ...] = ()


def send(stream: IO[bytes], facts: Mapping[str, object], arrays: Sequence[Array] = ()) -> None:
    files = [_packed(array) for array in arrays]
    text = json.dumps({"facts": facts, "sizes": [len(file) for file in files]}).encode()
    for chunk in (_SIZE.pack(len(text)), text, *files):
        stream.write(chunk)
    stream.flush()


def receive(stream: IO[bytes]) -> Message:
    """Read one message; raises :class:`BrokenMessage` if there is none, or it holds anything but numbers in arrays."""
    (length,) = _SIZE.unpack(_exactly(stream, _SIZE.size, _SIZE.size))
    try:
        head = json.loads(_exactly(stream, length, _MOST_FACTS))
        facts, sizes = dict(head["facts"]), [int(size) for size in head["sizes"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenMessage(f"a message that is not JSON ({type(error).__name__})") from None
    return Message(facts, tuple(_unpacked(_exactly(stream, size, _MOST_ARRAYS)) for size in sizes))


def _exactly(stream: IO[bytes], size: int, max_size: int) -> bytes:
    if not 0 <= size <= max_size:
        raise BrokenMessage(f"a message of {size} bytes")
    # The size is checked first: a process could announce more memory than there is.
    data = stream.read(size)
    if len(data) < size:
        raise BrokenMessage("no answer")
    return data


def _packed(array: Array) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _unpacked(data: bytes) -> Array:
    file = io.BytesIO(data)
    try:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, TypeError, SyntaxError, EOFError, MemoryError, RecursionError) as error:
        raise BrokenMessage(f"an array that cannot be read ({type(error).__name__})") from None
    # Object arrays need pickle, which could run code, and bytes after the array belong to nothing.
    if array.dtype.kind not in _KINDS or file.read(1):
        raise BrokenMessage(f"an array of {array.dtype}")
    return array


Record = TypeVar("Record")


def to_json(value: object) -> object:
    """JSON values of a dataclass and everything in it; what has no counterpart becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def from_json(kind: type[Record], value: object) -> Record:
    """The dataclass of this ``kind``; raises ``TypeError`` or ``ValueError`` if the JSON values are none."""
    read: Record = _read(kind, value)
    return read


def _read(kind: Any, value: Any) -> Any:
    """``value`` as the type ``kind``; raises ``TypeError`` or ``ValueError``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is object or kind is Any:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _types(kind)
        if not isinstance(value, Mapping) or set(value) - set(hints):
            raise TypeError(f"no {kind.__name__}")
        return kind(**{name: _read(hints[name], item) for name, item in value.items()})
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"no {kind}")
        return value
    if origin in (Union, UnionType):
        options = [member for member in arguments if (member is NoneType) == (value is None)]
        return _read(options[0], value) if options and value is not None else None
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError(f"no {kind}")
        return {str(name): _read(arguments[1], item) for name, item in value.items()}
    if origin is tuple:
        return _tuple(arguments, value)
    # A whole number may be written for a float. True is not an int here, since its exact type is compared.
    if type(value) is int and kind is float:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} where {getattr(kind, '__name__', kind)} is expected")
    return value


def _tuple(arguments: Sequence[Any], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError("no list")
    if arguments[1:] == (...,):
        return tuple(_read(arguments[0], item) for item in value)
    return tuple(_read(kind, item) for kind, item in zip(arguments, value, strict=True))


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


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
        # PyTorch loads every `torch.backends` entry point on its path, which includes the folder of the port.
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
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

    def begin(self) -> None:
        """Let a process with one task begin it; until then it only imports its libraries."""
        self.tell({"do": "begin"})

    def result(self, say: Say) -> Message:
        """Wait for the result of a process that has begun its task; raises the error that it reports."""
        while True:
            try:
                message = self.answer()
            except BrokenMessage as error:
                what = f"the process of the {self.role} ended without a result ({error})"
                raise IncompleteError(
                    "verify", what, "free memory, or correct the code of the model that ended it"
                ) from None
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
