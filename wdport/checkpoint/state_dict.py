"""Find the state_dict in the tree of a checkpoint, and convert its names to the network's, without the prefixes of
wrappers.

``torch.compile``, ``FullyShardedDataParallel`` and activation checkpointing put a component of :data:`COMPONENTS`
before the names of the module that they wrap, at any depth; ``DistributedDataParallel`` and averaged models put
``module`` before all names. A prefix is removed only if every name has it: a partly wrapped file is ambiguous.

A state_dict is a flat table of name to tensor, or a whole module that has one. It is the whole file, or it is stored
under a key next to epochs, optimizer states and the like. If there are several candidates, the caller must choose.
It may be in tables within tables, as Megatron writes it, or in tables of the parts of one model, such as ``encoder``
and ``decoder``: their names are then joined with dots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from wdport.base.errors import printable
from wdport.base.limits import MAX_TENSORS
from wdport.checkpoint.faults import (
    AS_TENSORS,
    DROP_ENTRY,
    LOAD_TRUSTED,
    NO_WEIGHTS,
    NOT_WRITTEN_BY_TORCH,
    OTHER_DTYPE,
    RENAME,
    RENAME_TEXT,
    SPLIT_COMPLEX,
    Fault,
)
from wdport.checkpoint.foreign import foreign_tensors
from wdport.checkpoint.modules import MAX_TENSOR_NAME, is_module, is_script, walk_module
from wdport.checkpoint.tensor import NUMPY, StorageRef, TensorRef
from wdport.checkpoint.unloaded_object import UnloadedObject

_COUNTER: Final = "n_averaged"
COMPONENTS: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module")
"""Attributes in which wrappers keep their module; :data:`wdport.recording.checkpoint_file.COMPONENTS` are the same."""
_WRAPPERS: Final = ("module.", *(f"{component}." for component in COMPONENTS))


class NameCollision(Exception):
    """Two tensors, the arguments, would have one name."""


@dataclass(frozen=True)
class NetworkNames:
    """The result of stripping; ``network_names`` maps stored names to the network's names, in stored order."""

    network_names: dict[str, str]
    prefixes: tuple[str, ...]
    """Outermost first; a prefix inside the names includes its parent, such as ``"net._orig_mod."``."""
    ignored: dict[str, str]
    """Entries that are not tensors of the network, with the reason."""

    @property
    def averaged(self) -> bool:
        return bool(self.ignored)


def strip_prefixes(stored: Iterable[str]) -> NetworkNames:
    """Strip the wrappers from all names, or raise :class:`Fault` if only some names have one."""
    names = {name: name for name in stored}
    prefixes: list[str] = []
    ignored: dict[str, str] = {}
    while True:
        # torch.optim.swa_utils.AveragedModel stores its counter next to "module.*", so the counter itself has no
        # prefix.
        counter = next((name for name, short in names.items() if short == _COUNTER), None)
        rest = [name for name in names if name != counter]
        if counter and rest and all(names[name].startswith("module.") for name in rest):
            ignored[counter] = "counter of an averaged model"
            del names[counter]
        prefix = _shared_prefix(names)
        if prefix is None:
            break
        names = {name: short[len(prefix) :] for name, short in names.items()}
        prefixes.append(prefix)
    # Only now: a wrapper that all names begin with is an outer prefix, and is already gone.
    inner = _inner_places(names)
    return NetworkNames({name: _without(short, inner) for name, short in names.items()}, (*prefixes, *inner), ignored)


def _shared_prefix(names: dict[str, str]) -> str | None:
    """Return the wrapper prefix that all names have, if any."""
    for prefix in _WRAPPERS:
        wrapped = [name for name, short in names.items() if short.startswith(prefix)]
        if wrapped and len(wrapped) == len(names):
            return prefix
        if wrapped:
            _refuse_mixture(names, prefix)
    return None


def _inner_places(names: dict[str, str]) -> list[str]:
    """Return every ``parent._orig_mod.`` inside the names, or that of another wrapper; all names below such a parent
    must contain it."""
    places: dict[str, str] = {}
    for short in names.values():
        for head, deeper in pairwise(_heads(short)):
            if deeper[len(head) : -1] in COMPONENTS:
                places.setdefault(head, deeper)
    for short in names.values():
        for head, deeper in pairwise([*_heads(short), short]):
            if head in places and deeper != places[head]:
                below = {name: path[len(head) :] for name, path in names.items() if path.startswith(head)}
                _refuse_mixture(below, places[head][len(head) :])
    return list(places.values())


def _heads(short: str) -> list[str]:
    """``["a.", "a.b."]`` for ``"a.b.c"``."""
    return [short[: index + 1] for index, character in enumerate(short) if character == "."]


def _without(short: str, places: list[str]) -> str:
    if not places:
        return short
    parts = short.split(".")
    # The last part is the tensor's own name, never a wrapper, which has modules.
    return ".".join([part for part in parts[:-1] if part not in COMPONENTS] + parts[-1:])


def _refuse_mixture(names: dict[str, str], prefix: str) -> None:
    """Refuse names of which only some have ``prefix``; the fault names two that would be equal, otherwise one that
    lacks it."""
    by_short = {short: name for name, short in names.items()}
    for short, name in by_short.items():
        bare = short.removeprefix(prefix)
        if bare != short and bare in by_short:
            raise NameCollision(by_short[bare], name)
    lacking = next(name for name, short in names.items() if not short.startswith(prefix))
    raise Fault(f"has no prefix {prefix!r}, which other tensors carry", RENAME, lacking)


_KNOWN_KEYS: Final = (
    "state_dict", "model", "model_state_dict", "model_state", "model.state_dict", "module", "network", "net",
    "net_state_dict", "network_state_dict", "weights", "params", "params_ema", "ema", "ema_state_dict", "ema_model",
    "model_ema", "g_ema", "generator", "discriminator", "netG", "netD", "student", "teacher", "encoder", "decoder",
)  # fmt: skip
"""Keys under which training programs keep a state_dict: Lightning, Fabric, and hand-written loops."""

_PARTS: Final = frozenset({
    "encoder", "decoder", "backbone", "neck", "head", "body", "stem", "trunk", "embedding", "embeddings", "embedder",
    "language_model", "vision_model", "text_model", "transformer", "classifier", "projector", "projection", "quantizer",
    "quantize", "bottleneck", "pooler", "lm_head", "output_layer", "vocoder", "prior",
})  # fmt: skip
"""Keys under which programs keep the parts of one model; two of them are not alternatives."""

_SHOWN: Final = 6


@dataclass(frozen=True)
class StateDict:
    """The stored state_dict, and the other content of the file."""

    layout: str
    """``"lightning"``, ``"keyed"`` (any other file that keeps it under a key), ``"nested"`` (tables of one model),
    ``"bare"`` or ``"module"``."""
    key: str | None
    tensors: dict[str, TensorRef]
    metadata: dict[str, object]
    """Plain scalars stored with the state_dict: epoch, global_step, pytorch-lightning_version."""
    other_keys: tuple[str, ...]
    node: object
    """The table or module in the tree."""
    not_read: tuple[str, ...]
    """Parts of a module that were left out."""
    parts: tuple[str, ...] = ()
    """Keys of tables whose names were joined with dots, outermost only."""


def layout_text(layout: str, key: str | None) -> str:
    """A layout as users read it."""
    return f"weights under {key}" if layout == "keyed" else layout


EMA, RAW = "ema", "raw"
"""The averaged weights of a checkpoint, and those that were trained."""


def find_state_dict(tree: object, key: str | None, likely: str | None = None) -> StateDict:
    """Return the state_dict under the dotted ``key``, or the only candidate if ``key`` is None or selects one of two,
    :data:`EMA` or :data:`RAW`. Without a ``key`` the ``likely`` one is chosen among several."""
    if isinstance(tree, UnloadedObject):
        if key is None and is_module(tree):
            return _state_dict_of("module", None, tree, {}, ())
        what = f"has no key {key!r}: it is a whole module" if is_module(tree) else _object(tree)
        raise Fault(what, "leave out `--key`" if is_module(tree) else LOAD_TRUSTED)
    if not isinstance(tree, dict):
        raise Fault(f"holds {_kind(tree)}, not a state_dict", NO_WEIGHTS)
    # A file may have an entry named "ema": the entry is meant then, not the choice.
    if key is None or (key in (EMA, RAW) and key not in tree):
        key = _only_candidate(tree, key or likely)
    if key is None:
        parts = _parts_of(tree)
        others = {str(name): value for name, value in tree.items() if name not in parts} if parts else {}
        _check_keys(tree if parts else None)
        return _state_dict_of("nested" if parts else "bare", None, parts or tree, _scalars(others), tuple(others))
    path = _lookup(tree, key)
    value = path[-1][1] if path else None
    if not (_is_state(value) or _is_nested(value)):
        if isinstance(value, UnloadedObject):
            raise Fault(f"key {key!r} {_object(value)}", LOAD_TRUSTED)
        raise Fault(f"key {key!r} holds no state_dict; {_candidates_text(tree)}", _pick(tree))
    others = {str(name): beside for name, beside in tree.items() if name != path[0][0]}
    lightning = key == "state_dict" and "pytorch-lightning_version" in tree
    layout = "module" if isinstance(value, UnloadedObject) else "lightning" if lightning else "keyed"
    for table in (tree, *(step for _, step in path[:-1])):
        _check_keys(table)
    return _state_dict_of(layout, key, value, _scalars(others), tuple(others))


def _scalars(entries: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in entries.items() if isinstance(value, (str, int, float, bool, type(None)))}


def _state_dict_of(
    layout: str, key: str | None, node: object, metadata: dict[str, object], others: tuple[str, ...]
) -> StateDict:
    """Return ``node`` as a state_dict with checked tensors."""
    if not isinstance(node, UnloadedObject):
        leaves = node if isinstance(node, dict) else {}
        parts = [name for name, value in leaves.items() if _is_nested(value)]
        return StateDict(layout, key, _tensors(_joined(leaves)), metadata, others, node, (), tuple(map(str, parts)))
    walked = walk_module(node)
    if not walked.leaves:
        kind = "TorchScript module (frozen?)" if is_script(node) else f"module of {node.described}"
        raise Fault(f"holds a {kind} without parameters or buffers", NO_WEIGHTS)
    unread = f"{key or 'the module'} (code and other attributes of {node.described})"
    return StateDict(layout, key, _tensors(walked.leaves), metadata, others, node, (unread, *walked.not_read))


def _only_candidate(tree: dict[object, object], requested: str | None) -> str | None:
    """Return the key of the only candidate, or of the ``requested`` one; None if the file itself is the state_dict."""
    keys: list[str] = []
    for name in _KNOWN_KEYS:
        value = tree.get(name)
        if _is_state(value):
            keys.append(name)
        elif isinstance(value, dict):
            inner_keys = [inner for inner in _KNOWN_KEYS if _is_state(value.get(inner))]
            # Tables of one model, as Megatron writes them, or several state_dicts.
            nested = _is_nested(value) and _PARTS.issuperset(inner_keys)
            keys += [name] if nested else [f"{name}.{inner}" for inner in inner_keys]
    if requested is None and _PARTS.issuperset(keys) and _parts_of(tree):
        return None
    # A copy of the weights under an unknown key, such as "shadow", is a candidate: which one is meant must be asked.
    if len(keys) == 1:
        keys += _copies(tree, keys[0])
    chosen = keys
    if requested in (EMA, RAW):
        chosen = [name for name in keys if _is_average(name) == (requested == EMA)]
    elif requested in keys:
        chosen = [requested]
    if len(chosen) == 1:
        return chosen[0]
    if keys:
        listing = ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
        averages = len(list(filter(_is_average, keys)))
        fix = f"choose with `--key {EMA!r}` or {RAW!r}" if averages == 1 == len(keys) - averages else _pick(tree)
        what = f"has {len(keys)} candidates for the state_dict: {listing}"
        if len(keys) == 1:
            what, fix = f"has no {requested} weights, only {keys[0]}", "leave out `--key`"
        raise Fault(what, fix)
    if _is_state(tree):
        if requested == EMA:
            raise Fault(f"has no {EMA} weights: it is itself a state_dict", "leave out `--key`")
        return None
    if any(_is_array(leaf) for table in (tree, *tree.values()) if isinstance(table, dict) for leaf in table.values()):
        raise Fault("holds numpy arrays, not tensors", AS_TENSORS)
    raise Fault(f"has no state_dict; {_candidates_text(tree)}", _pick(tree))


def _is_array(leaf: object) -> bool:
    """Whether a leaf is an array of numpy; numbers of numpy are not."""
    return (
        isinstance(leaf, UnloadedObject)
        and leaf.module.startswith("numpy")
        and leaf.name in ("_reconstruct", "_frombuffer")
    )


def _parts_of(tree: dict[object, object]) -> dict[str, object]:
    """Return the tables of the parts of one model, and the tensors next to them; empty if there are fewer than two."""
    tables = {name: value for name, value in tree.items() if isinstance(name, str) and _is_nested(value)}
    if len(_PARTS.intersection(tables)) < 2 or any(map(_is_average, tables)):
        return {}
    return {name: value for name, value in tree.items()
            if isinstance(name, str) and (name in tables or isinstance(value, TensorRef))}  # fmt: skip


def _is_nested(value: object) -> bool:
    """Whether a value is a table, or tables within tables, of nothing but tensors."""
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(name, str) and (_is_tensor(leaf) or _is_nested(leaf)) for name, leaf in value.items())


def _joined(table: Mapping[object, object]) -> dict[object, object]:
    """Return the leaves of tables within tables, by their names joined with dots."""
    joined: dict[object, object] = {}
    pending = list(reversed(list(table.items())))
    while pending:
        name, value = pending.pop()
        if _is_nested(value) and isinstance(value, dict):
            pending += [(f"{name}.{inner}", leaf) for inner, leaf in reversed(list(value.items()))]
        elif name in joined:
            raise Fault("has the same name as another tensor once names are joined with dots", RENAME_TEXT, str(name))
        else:
            joined[name] = value
        if len(joined) + len(pending) > MAX_TENSORS:
            raise Fault(f"more than {MAX_TENSORS} tensors", NOT_WRITTEN_BY_TORCH)
    return joined


def _is_tensor(value: object) -> bool:
    return isinstance(value, TensorRef) or (isinstance(value, UnloadedObject) and bool(value.reason))


def _is_average(key: str) -> bool:
    """Whether a key is that of an exponential moving average of the weights."""
    # Whole words only: "ema" is also part of "schema" and "cinema".
    return "ema" in key.casefold().replace(".", "_").split("_")


def _copies(tree: dict[object, object], key: str) -> list[str]:
    """Keys of other tables with the same names, such as averaged weights under a key that the program chose."""
    # A key that is not text is not found by its text.
    paths = {name: _lookup(tree, name) for name in dict.fromkeys([key, *_candidates(tree)])}
    tables = {name: steps[-1][1] for name, steps in paths.items() if steps}
    names = {name: table.keys() for name, table in tables.items() if isinstance(table, dict)}
    return [name for name in names if name != key and names[name] == names.get(key)]


def _is_state(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_is_tensor, value.values()))
    return is_module(value)


def _lookup(tree: dict[object, object], key: str) -> list[tuple[str, object]]:
    """Return the steps to a dotted key, each with its value; a component may contain dots."""
    if key in tree:
        return [(key, tree[key])]
    for name, value in tree.items():
        if isinstance(name, str) and isinstance(value, dict) and key.startswith(f"{name}."):
            # Every name that is a prefix is tried: in "model.state_dict" the dot may separate levels or belong to one
            # key.
            steps = _lookup(value, key[len(name) + 1 :])
            if steps:
                return [(name, value), *steps]
    return []


def _check_keys(table: object) -> None:
    """Refuse a key on the path to the tensors that could have the same text as another one."""
    for name in table if isinstance(table, dict) else ():
        if isinstance(name, UnloadedObject) and name.form in ("object", "call"):
            raise Fault(f"has a key that is {name.described}", LOAD_TRUSTED)


def _candidates(tree: dict[object, object]) -> list[str]:
    """Return dotted keys, at most two levels deep, of all modules and of everything that directly contains tensors."""
    keys: list[str] = []
    for name, value in tree.items():
        if _is_state(value):
            keys.append(str(name))
        elif isinstance(value, dict):
            keys.extend(f"{name}.{inner}" for inner, deeper in value.items() if _is_state(deeper))
    return keys


def _candidates_text(tree: dict[object, object]) -> str:
    keys = _candidates(tree)
    if keys:
        return f"tensors are under {', '.join(keys[:4])}"
    pairs = list(tree.items())[:4]
    listed = (f"{key} ({value.described})" if isinstance(value, UnloadedObject) else str(key) for key, value in pairs)
    return f"its keys are {', '.join(listed) or 'none'}"


def _pick(tree: dict[object, object]) -> str:
    return "choose one with `--key NAME`" if _candidates(tree) else NO_WEIGHTS


def _tensors(table: Mapping[object, object] | Mapping[str, object]) -> dict[str, TensorRef]:
    """Return the table after checking that every name is text and every leaf a tensor of a supported dtype."""
    tensors: dict[str, TensorRef] = {}
    for name, leaf in table.items():
        if not isinstance(name, str):
            raise Fault(f"a tensor's name is {_kind(name)}, not text", RENAME_TEXT)
        if not 0 < len(name) <= MAX_TENSOR_NAME:
            raise Fault(f"a tensor's name has {len(name)} characters", RENAME_TEXT)
        if isinstance(leaf, UnloadedObject) and leaf.reason:
            raise Fault(leaf.reason, leaf.fix, name)
        if _is_array(leaf):
            raise Fault("its state_dict entry is a numpy array, not a tensor", AS_TENSORS, name)
        if not isinstance(leaf, TensorRef):
            if fault := foreign_tensors([name]):
                raise fault
            raise Fault(f"its state_dict entry is {_kind(leaf)}, not a tensor", DROP_ENTRY, name)
        if leaf.dtype not in NUMPY:
            complex_fix = SPLIT_COMPLEX if leaf.dtype.startswith("complex") else OTHER_DTYPE
            raise Fault(f"has dtype {leaf.dtype}, which is not read", complex_fix, name)
        tensors[name] = leaf
    return tensors


def _object(value: UnloadedObject) -> str:
    return f"is an object of {value.described}, whose contents are not read"


def _kind(value: object) -> str:
    if isinstance(value, TensorRef):
        return "a single tensor"
    if isinstance(value, StorageRef):
        return "a bare storage"
    if isinstance(value, UnloadedObject):
        return f"an object ({value.described})" if value.form != "key" else f"of type {value.name}"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__}"
    return printable(f"the {type(value).__name__} {value!r}", 40)
