"""Bad checkpoints: every list of the room's own tests through the verbs that read a checkpoint, and what they add."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.bad.case import Bad, Content, changed, flipped, half
from tests.checkpoint import test_bad_archives, test_bad_files, test_bad_pickles, test_folders, test_legacy
from tests.checkpoint import test_safetensors as tensors
from tests.checkpoint.forge import EMPTY, archive, entry, name, pickled, safetensors, table, tensor

LOOK, CONVERT, VERIFY = "inspect bad.pt", "convert bad.pt", "verify bad.pt good.keras"
READ = "record bad.pt --mapping own.yaml"
"""Reads every tensor, as the three others do only where the checkpoint is of a model that they know."""

EVERY = (LOOK, CONVERT, VERIFY, READ)
BY_READING = {
    "archive: CRC of a tensor", "archive: CRC zero", "tensor: bool that is 2", "safetensors: bool that is 2",
}  # fmt: skip
"""Faults in the bytes of a tensor: opening does not look at them."""


def _commands(name: str) -> tuple[str, ...]:
    return (READ,) if name in BY_READING else EVERY


def _listed(kind: str, cases: Iterable[tuple[str, tuple[bytes, str]]]) -> dict[str, Bad]:
    rows = {}
    for case, (content, fragment) in cases:
        name = f"{kind}: {case}"
        file = "bad.safetensors" if kind == "safetensors" else "bad.pt"
        commands = tuple(command.replace("bad.pt", file) for command in _commands(name))
        rows[name] = Bad(commands, 3, f"{file}: *{fragment}*" if fragment else f"{file}: *", {file: content})
    return rows


def _pickles() -> Iterable[tuple[str, tuple[bytes, str]]]:
    for case, (body, fragment) in test_bad_pickles.PICKLES.items():
        yield case, (archive(pickled(body)), fragment)


def _indexes() -> dict[str, Bad]:
    rows = {}
    for case, (weight_map, fragment) in tensors.INDEXES.items():
        index = json.dumps({"weight_map": weight_map}).encode()
        files: dict[str, Content] = {
            "x.safetensors": tensors.A, "in/x.safetensors": tensors.A, "in/y.safetensors": tensors.B,
            "in/y2.safetensors": tensors.B, "in/bad.safetensors": tensors.A[:-1],
            "in/link.safetensors": lambda path: path.symlink_to("../x.safetensors"),
            "in/model.safetensors.index.json": index,
        }  # fmt: skip
        rows[f"index: {case}"] = Bad(("inspect in", "convert in -o out.keras"), 3, f"in*: *{fragment}*", files)
    return rows


def _folders() -> dict[str, Bad]:
    rows = {}
    for kind, fragment in test_folders.FOLDERS.items():

        def make(path: Path, kind: str = kind) -> None:
            path.mkdir()
            test_folders.broken(path, kind)

        commands = ("inspect in", "convert in -o out.keras", "verify in good.keras", "record in --mapping own.yaml")
        rows[f"folder: {kind}"] = Bad(commands, 3, f"in*: *{fragment}*", {"in": make})
    return rows


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


PATHS: dict[str, tuple[str, Mapping[str, Content]]] = {
    "missing": ("bad.pt: no such file; check the path", {}),
    "a named pipe": ("bad.pt: is a named pipe; *", {"bad.pt": os.mkfifo}),
    "a device": ("bad.pt: is a device; *", {"bad.pt": _device}),
    "a socket": ("bad.pt: is a socket; *", {"bad.pt": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600)}),
    "a link to itself": ("bad.pt: cannot be opened *", {"bad.pt": lambda path: path.symlink_to(path)}),
    "a link to nothing": ("bad.pt: no such file; *", {"bad.pt": lambda path: path.symlink_to("nowhere")}),
    "below a file": ("bad.pt/x: *", {"bad.pt": b"x"}),
}


def _paths() -> dict[str, Bad]:
    rows = {}
    for case, (line, files) in PATHS.items():
        named = "bad.pt/x" if case == "below a file" else "bad.pt"
        commands = tuple(command.replace("bad.pt", named) for command in EVERY)
        if named == "bad.pt/x":
            commands = (commands[0], f"{commands[1]} -o out.keras", commands[2], f"{commands[3]} -o out.npz")
        rows[f"path: {case}"] = Bad(commands, 3, line, files)
    return rows


TURNED = changed("good.ckpt", flipped)
LIGHTNING = {
    "first half": (changed("good.ckpt", half), "*does not end with a zip end record*"),
    "minus the last byte": (changed("good.ckpt", lambda data: data[:-1]), "*does not end with a zip end record*"),
    "one byte more": (changed("good.ckpt", lambda data: data + b"\0"), "*does not end with a zip end record*"),
    "the first byte": (changed("good.ckpt", lambda data: b"p" + data[1:]), "*"),
}


def _whole() -> dict[str, Bad]:
    """A real checkpoint, damaged as disks and networks damage files."""
    rows = {
        f"checkpoint: {case}": Bad(EVERY, 3, f"bad.pt: {line}", {"bad.pt": content})
        for case, (content, line) in LIGHTNING.items()
    }
    rows["checkpoint: one bit of a tensor"] = Bad(
        ("convert bad.pt --set num_heads=2 --set wavelet=db2 --set seq_len=24", READ), 3,
        "bad.pt: level_transformers.*: data/*: the bytes do not match their CRC; *", {"bad.pt": TURNED},
    )  # fmt: skip
    rows["checkpoint: one bit of a tensor, verified"] = Bad(
        (VERIFY,), 3, "bad.pt: level_transformers.*: the bytes do not match their CRC; *", {"bad.pt": TURNED},
        builds=True,
    )  # fmt: skip
    rows["checkpoint: one bit of a tensor, recorded"] = Bad(
        ("record tests.user_model:small bad.pt",), 3, "bad.pt: *", {"bad.pt": TURNED}, builds=True
    )
    return rows


TWO = archive(pickled(table({"model": table({"w": tensor()}), "ema": table({"w": tensor()})})))
MIXED = archive(pickled(table({"module.a": tensor(), "b": tensor()})))
OBJECT = archive(pickled(table({"model": table({"w": tensor()}), "net": name("my", "Net") + EMPTY + b"\x81"})))
CONTENTS: dict[str, tuple[str, int, str, bytes]] = {
    "two candidates": ("inspect bad.pt", 3, "bad.pt: *--key*", TWO),
    "two candidates, converted": ("convert bad.pt", 3, "bad.pt: *--key*", TWO),
    "another key": ("inspect bad.pt --key optimizer", 3, "bad.pt: *optimizer*", TWO),
    "a key of an object": ("inspect bad.pt --key net", 3, "bad.pt: key 'net' is an object of class my.Net, *", OBJECT),
    "mixed prefixes": ("convert bad.pt", 3, "bad.pt: *", MIXED),
    "no table fits": ("convert bad.pt", 4, "bad.pt: *", archive()),
    "no table fits a safetensors": ("convert bad.pt", 4, "bad.pt: *", safetensors({"w": entry()})),
    "no table fits, verified": ("verify bad.pt good.keras", 4, "bad.pt: *", archive()),
    "the table of another": ("record bad.pt --mapping own.yaml", 4, "*", archive()),
}


def checkpoints() -> dict[str, Bad]:
    """The rows."""
    contents = {
        f"contents: {case}": Bad((command,), code, line, {"bad.pt": content})
        for case, (command, code, line, content) in CONTENTS.items()
    }
    return {
        **_listed("file", test_bad_files.FILES.items()),
        **_paths(),
        **_listed("archive", test_bad_archives.ARCHIVES.items()),
        **_listed("tensor", test_bad_archives.TENSORS.items()),
        **_listed("pickle", _pickles()),
        **_listed("legacy", test_legacy.LEGACY.items()),
        **_listed("safetensors", tensors.HEADERS.items()),
        **_indexes(),
        **_folders(),
        **_whole(),
        **contents,
    }
