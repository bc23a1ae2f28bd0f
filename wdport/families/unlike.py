"""A table that does not fit the user's two models: the first layer that the two were told differently.

A pooling that leaves another size is seen by a plan only where it meets a weight, some layers later. Both models are at
hand, so their layers' settings are compared; nothing is run.
"""

from __future__ import annotations

from wdport import recorder
from wdport.mapping.rows import Table
from wdport.model import Document, KerasLayer, KerasModel


def first_unlike(model: KerasModel, reference: str | None, arguments: Document, table: Table) -> str:
    """What sets the first such layer of ``model`` apart from its module, in words; "" where nothing does, or where the
    PyTorch model of the function ``reference`` cannot be had."""
    from wdport.compare.settings import differences
    from wdport.compare.taps import align
    from wdport.keras_runtime import layers_by_path

    if not reference:
        return ""
    layers = layers_by_path(model)
    try:
        module = recorder.find_function(reference)(**arguments)
        taps = align(table, recorder.module_names(module), layers, ())
        modules = dict(module.named_modules())
    except Exception:  # the function is the user's, and this is no more than a hint
        return ""
    known = {tap.candidate: tap for tap in taps if tap.reference in modules}
    for path, layer in layers.items():
        if path not in known:
            continue
        tap = known[path]
        if told := differences(tap.kind, modules[tap.reference], layer, _given(layer)):
            return f"{path}: {told[0]}"
    return ""


def _given(layer: KerasLayer) -> tuple[int, ...]:
    """The shape that a layer of a functional model is given; nothing if that cannot be told."""
    try:
        shape = layer.input.shape
    except (AttributeError, ValueError):
        return ()
    return (1, *shape[1:]) if all(isinstance(size, int) for size in shape[1:]) else ()
