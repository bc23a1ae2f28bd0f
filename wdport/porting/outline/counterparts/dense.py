"""Dense layers, embeddings, normalisations, dropout and flatten."""

from __future__ import annotations

from wdport.porting.outline.axes import Axes
from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, layer
from wdport.porting.outline.layout import keras_group, moved
from wdport.porting.outline.settings import Settings

EPSILON = {"epsilon": "eps"}


def linear(name: str, told: Settings, given: Given) -> Counterpart:
    call = layer("Dense", {"units": told["out_features"], "use_bias": bool(told.get("bias"))}, use_bias="bias")
    order = flattened(given.axes)
    notes = (f"reads a flattened image: its row needs {order}",) if order else ()
    return Counterpart("linear", (call,), notes)


def flattened(axes: Axes | None) -> str:
    """The fields that a layer's row needs if the last of these axes, which it reads, is a flattened image:
    ``flatten: "c h w -> h w c", sizes: {h: 3, w: 3}``; otherwise ""."""
    group = axes[-1] if axes else ()
    if len(group) < 2 or not any(atom.space >= 0 for atom in group) or not any(atom.channel for atom in group):
        return ""
    if group == keras_group(group):
        return ""
    sizes = ", ".join(f"{atom.name}: {atom.size}" for atom in group if atom.space >= 0)
    ours, theirs = (" ".join(atom.name for atom in each) for each in (group, keras_group(group)))
    return f'flatten: "{ours} -> {theirs}", sizes: {{{sizes}}}'


def embedding(name: str, told: Settings, given: Given) -> Counterpart:
    if told.get("max_norm") is not None:
        return Counterpart("embedding", (), ("Keras looks rows up as they are: carry max_norm out on the table",))
    notes: tuple[str, ...] = ()
    if told.get("padding_idx") is not None:
        notes = (f"padding_idx {told['padding_idx']} is a row as any other in inference; Keras's mask_zero is a mask",)
    call = layer("Embedding", {"input_dim": told["num_embeddings"], "output_dim": told["embedding_dim"]})
    return Counterpart("embedding", (call,), notes)


def batch_norm(name: str, told: Settings, given: Given) -> Counterpart:
    """``BatchNorm2d`` and so on, and an ``InstanceNorm2d`` with running statistics, which computes the same."""
    if not told.get("track_running_stats", True):
        return Counterpart("batch_norm", (), ("without running statistics it takes those of the batch, also here",))
    affine, momentum = bool(told.get("affine", True)), told.get("momentum", 0.1)
    arguments = {"epsilon": told["eps"], "center": affine, "scale": affine}
    notes: tuple[str, ...] = ()
    if momentum is None:
        notes = ("momentum None is a mean over all batches in training, which Keras does not have",)
    else:
        arguments["momentum"] = round(1 - momentum, 12)
    call = layer("BatchNormalization", arguments, momentum="momentum", **EPSILON)
    return Counterpart("batch_norm", (call,), notes)


def layer_norm(name: str, told: Settings, given: Given) -> Counterpart:
    affine = bool(told.get("elementwise_affine", True))
    axis, note = _normalised(told["normalized_shape"], given)
    arguments = {"axis": axis, "epsilon": told["eps"], "center": affine and bool(told.get("bias", True)),
                 "scale": affine}  # fmt: skip
    call = layer("LayerNormalization", arguments, **EPSILON)
    return Counterpart("layer_norm", (call,), (note,) if note else ())


def rms_norm(name: str, told: Settings, given: Given) -> Counterpart:
    import numpy as np

    axis, note = _normalised(told["normalized_shape"], given)
    notes = [note] if note else []
    eps = told.get("eps")
    if eps is None:
        eps = float(np.finfo(given.dtype).eps)
        notes.append(f"eps None is that of the dtype, in {given.dtype} {eps:.6g}")
    if not told.get("elementwise_affine", True):
        notes.append("it has no weight: keep Keras's scale at one, or write it with keras.ops")
    call = layer("RMSNormalization", {"axis": axis, "epsilon": eps}, **EPSILON)
    return Counterpart("rms_norm", (call,), tuple(notes))


def _normalised(shape: object, given: Given) -> tuple[object, str]:
    """Keras's ``axis`` for PyTorch's last axes, and a note if channels last moves them."""
    rank = len(shape) if isinstance(shape, (tuple, list)) else 1
    plain: object = -1 if rank == 1 else tuple(range(-rank, 0))
    order = moved(given.axes) if given.axes else None
    if order is None or given.axes is None:
        return plain, ""
    wanted = range(len(order) - rank, len(order))
    found = [at - len(order) for at, own in enumerate(order) if own in wanted]
    names, there = (" ".join(atom.name for at in each for atom in given.axes[at])
                    for each in (wanted, [own for own in order if own in wanted]))  # fmt: skip
    said = found[0] if len(found) == 1 else tuple(found)
    row = f', so its weights need tensors rows with the rule "{names} -> {there}"' if there != names else ""
    return said, f"it normalises {names} with channels first{row}"


def group_norm(name: str, told: Settings, given: Given) -> Counterpart:
    """``GroupNorm``, and ``InstanceNorm2d`` as a group per channel."""
    if name.startswith("InstanceNorm") and told.get("track_running_stats"):
        return batch_norm(name, told, given)
    groups = -1 if name.startswith("InstanceNorm") else told["num_groups"]
    affine = bool(told.get("affine", True))
    arguments = {"groups": groups, "epsilon": told["eps"], "center": affine, "scale": affine}
    return Counterpart("group_norm", (layer("GroupNormalization", arguments, **EPSILON),))


def dropout(name: str, told: Settings, given: Given) -> Counterpart:
    rate = told.get("p", 0.5)
    if name == "AlphaDropout":
        return Counterpart("dropout", (layer("AlphaDropout", {"rate": rate}),))
    if name == "FeatureAlphaDropout":
        return Counterpart("dropout", (), ("Keras's AlphaDropout drops single values; none in inference",))
    spatial = name[-2] if name.endswith("d") else ""
    call = layer(f"SpatialDropout{spatial}D" if spatial else "Dropout", {"rate": rate})
    return Counterpart("dropout", (call,))


def flatten(name: str, told: Settings, given: Given) -> Counterpart:
    """``Flatten`` from the first axis after the batch; others are a reshape."""
    start, end = told.get("start_dim", 1), told.get("end_dim", -1)
    last = len(given.shape) - 1
    if start != 1 or (end % len(given.shape) if given.shape else end) != (last if given.shape else -1):
        return Counterpart("flatten", (), ("a Reshape of the axes from start_dim to end_dim",))
    return Counterpart("flatten", (layer("Flatten", {}),))
