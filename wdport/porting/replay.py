"""Run a graph again in PyTorch, call by call, on other inputs or with one call changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch

from wdport.models.interface import Array
from wdport.porting.graph import Graph, Node, Slice, TensorSource, TracedTensor
from wdport.recording.float64 import lifted
from wdport.recording.nested import tensors_of
from wdport.recording.torch_functions import highest_precision, masked_rows
from wdport.recording.watching import has_hooks, parameter_names

Values = dict[TensorSource, torch.Tensor]
"""The tensors of a replay, by their source."""

Function = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Change = Callable[[Function, Arguments], Any]
"""Replaces one call: it is given the function, and its positional and named arguments."""


def replay(graph: Graph, module: torch.nn.Module, inputs: Mapping[str, Array]) -> Values:
    """The values of all nodes on these inputs, each as it was returned; layers and weights are those of ``module``.

    Parameters share the memory of the module's.
    """
    values: Values = {}
    run = steps(graph, module, inputs, values)
    results = dict(values)
    for node, _ in run:
        # Copies, since functions in place change their inputs.
        results |= {traced.source: values[traced.source].clone() for traced in node.outputs}
        if node.base is not None:
            results[node.base[1].source] = values[node.base[1].source].clone()
        results |= {after.source: values[after.source].clone() for _, after in node.outdated}
    held = {source: tensor if source.kind == "parameter" else tensor.clone()
            for source, tensor in values.items() if source.kind != "node"}  # fmt: skip
    return held | results


def steps(
    graph: Graph, module: torch.nn.Module, inputs: Mapping[str, Array], values: Values,
    changes: Mapping[int, Change] | None = None,
) -> Iterator[tuple[Node, Any]]:  # fmt: skip
    """Run the nodes in order; yields each with what it returned, and adds its tensors to ``values``. ``changes`` are
    calls to replace, by the node's serial."""
    for name, array in inputs.items():
        values[TensorSource("input", name)] = torch.tensor(array)
    # The arrays of tensors of 16 bits have 32.
    dtypes = {tensor.source: tensor.dtype for node in graph.nodes for tensor in node.inputs}
    for index, array in enumerate(graph.constants):
        source = TensorSource("constant", index=index)
        values[source] = torch.tensor(array).to(getattr(torch, dtypes.get(source, str(array.dtype))))
    for name, held in graph.tensors.items():
        get = module.get_parameter if held.kind == "parameter" else module.get_buffer
        values[TensorSource(held.kind, name)] = get(name)
    with highest_precision(), lifted(), torch.no_grad():
        for node in graph.nodes:
            if node.module is None or node.is_layer:
                yield node, _run(node, module, values, (changes or {}).get(node.serial))


def _run(node: Node, module: torch.nn.Module, values: Values, change: Change | None) -> Any:
    args, kwargs = _given(node.args, values), _given(dict(node.kwargs), values)
    if node.module is not None:
        part = module.get_submodule(node.module.path)
        # What hooks compute are nodes of their own.
        function: Function = part.forward if node.module.path and has_hooks(part) else part
        order = parameter_names(part)
        # Arguments of *args come after those with names.
        args = tuple(value for key, value in kwargs.items() if key not in order and key.startswith("input_"))
        if args:
            args = (*(kwargs.pop(key) for key in order if key in kwargs), *args)
        kwargs = {key: value for key, value in kwargs.items() if not key.startswith("input_")}
    else:
        function = find_function(node.name)
    # As the recorder runs torch's attention.
    with masked_rows() if node.name.endswith(".multi_head_attention_forward") else nullcontext():
        result = change(function, (args, kwargs)) if change else function(*args, **kwargs)
    output = args[0] if node.name.endswith("__setitem__") else result
    for traced, tensor in zip(node.outputs, tensors_of(output), strict=True):
        values[traced.source] = tensor
    if node.base is not None:
        before, after = node.base
        values[after.source] = values[before]
    for before, after in node.outdated:
        values[after.source] = values[before]
    return result


def _given(value: Any, values: Values) -> Any:
    """Arguments with tensors in place of their records."""
    if isinstance(value, TracedTensor):
        return values[value.source]
    if isinstance(value, Mapping):
        return {key: _given(item, values) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_given(item, values) for item in value)
    if isinstance(value, Slice):
        return slice(*(_given(limit, values) for limit in (value.start, value.stop, value.step)))
    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    return None if isinstance(value, str) and value in ("cpu", "strided") else value


@cache
def find_function(name: str) -> Function:
    """The function of torch with this full name; a property as a function of the tensor."""
    value: Any = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value if callable(value) else lambda tensor: value.__get__(tensor)


def outputs_of(graph: Graph, values: Values) -> Sequence[torch.Tensor]:
    """The outputs of the model."""
    return [values[tensor.source] for tensor in graph.root.outputs]
