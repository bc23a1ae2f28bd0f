"""The tree of a checkpoint goes in; its one state_dict and where it stood come out.

A state_dict is a flat table of name to tensor. It is the whole file, or it stands under a key beside
epochs, optimiser states and the like. If two could be meant, the caller has to say which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wdport.checkpoint.dtypes import NUMPY
from wdport.checkpoint.faults import SAVE_AGAIN, STATE_DICT_ONLY, Fault
from wdport.checkpoint.tensor import TensorRef
from wdport.errors import printable

MAX_TENSOR_NAME: Final = 1000
"""The longest real tensor name seen has 76 characters; prefixes are searched component by component."""

_KNOWN_KEYS: Final = (
    "state_dict",
    "model",
    "model_state_dict",
    "model_state",
    "module",
    "network",
    "net",
    "weights",
    "params",
    "ema",
    "ema_state_dict",
    "ema_model",
    "model_ema",
)
"""Keys under which training programs keep a state_dict: Lightning, Fabric, and hand-written loops."""


@dataclass(frozen=True)
class StateDict:
    """The state_dict as stored, and what stood beside it."""

    layout: str
    """``"lightning"``, ``"fabric"`` (any other file that keeps it under a key) or ``"bare"``."""
    key: str | None
    tensors: dict[str, TensorRef]
    metadata: dict[str, object]
    """Plain scalars beside the state_dict: epoch, global_step, pytorch-lightning_version."""
    other_keys: tuple[str, ...]


def find_state_dict(tree: object, key: str | None) -> StateDict:
    """The state_dict under the dotted ``key``, or the only candidate if ``key`` is None."""
    if not isinstance(tree, dict):
        raise Fault(f"holds {_kind(tree)}, not a state_dict", SAVE_AGAIN)
    if key is None:
        key = _only_candidate(tree)
    if key is None:
        return StateDict("bare", None, _tensors(tree), {}, ())
    value = _lookup(tree, key)
    if not _has_tensors(value):
        raise Fault(f"key {key!r} holds no state_dict; {_candidates_text(tree)}", _pick(tree))
    top = next(name for name in tree if isinstance(name, str) and (key == name or key.startswith(f"{name}.")))
    others = {str(name): beside for name, beside in tree.items() if name != top}
    scalars = (str, int, float, bool, type(None))
    metadata: dict[str, object] = {name: beside for name, beside in others.items() if isinstance(beside, scalars)}
    lightning = key == "state_dict" and "pytorch-lightning_version" in tree
    return StateDict("lightning" if lightning else "fabric", key, _tensors(value), metadata, tuple(others))


def _only_candidate(tree: dict[object, object]) -> str | None:
    """The key of the one candidate; None when the file itself is the state_dict."""
    known = [key for key in _KNOWN_KEYS if _has_tensors(tree.get(key))]
    if len(known) == 1:
        return known[0]
    if known:
        raise Fault(f"has {len(known)} candidates for the state_dict: {', '.join(known)}", _pick(tree))
    if _has_tensors(tree):
        return None
    raise Fault(f"has no state_dict; {_candidates_text(tree)}", _pick(tree))


def _has_tensors(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(leaf, TensorRef) for leaf in value.values())


def _lookup(tree: dict[object, object], key: str) -> object:
    """The value at a dotted key; a component may itself contain dots."""
    if key in tree:
        return tree[key]
    for name, value in tree.items():
        if isinstance(name, str) and isinstance(value, dict) and key.startswith(f"{name}."):
            found = _lookup(value, key[len(name) + 1 :])
            if found is not None:
                return found
    return None


def _candidates(tree: dict[object, object]) -> list[str]:
    """Dotted keys, at most two deep, of everything that directly holds tensors."""
    found: list[str] = []
    for name, value in tree.items():
        if _has_tensors(value):
            found.append(str(name))
        elif isinstance(value, dict):
            found.extend(f"{name}.{inner}" for inner, deeper in value.items() if _has_tensors(deeper))
    return found


def _candidates_text(tree: dict[object, object]) -> str:
    found = _candidates(tree)
    if found:
        return f"tensors are under {', '.join(found[:4])}"
    return f"its keys are {', '.join(str(key) for key in list(tree)[:4]) or 'none'}"


def _pick(tree: dict[object, object]) -> str:
    return "choose one with --key NAME" if _candidates(tree) else STATE_DICT_ONLY


def _tensors(table: object) -> dict[str, TensorRef]:
    """The table itself, once every name is text and every leaf a tensor of a dtype that is read."""
    tensors: dict[str, TensorRef] = {}
    for name, leaf in table.items() if isinstance(table, dict) else ():
        if not isinstance(name, str):
            raise Fault(f"a tensor's name is {name!r}, not text", STATE_DICT_ONLY)
        if not 0 < len(name) <= MAX_TENSOR_NAME:
            raise Fault(f"a tensor's name has {len(name)} characters", STATE_DICT_ONLY)
        if not isinstance(leaf, TensorRef):
            raise Fault(f"its state_dict entry is {_kind(leaf)}, not a tensor", STATE_DICT_ONLY, name)
        if leaf.dtype not in NUMPY:
            raise Fault(f"has dtype {leaf.dtype}, which is not read", "convert it and save again", name)
        tensors[name] = leaf
    return tensors


def _kind(value: object) -> str:
    if isinstance(value, TensorRef):
        return "a single tensor"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__}"
    return printable(f"the {type(value).__name__} {value!r}", 40)
