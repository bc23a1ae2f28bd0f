"""Contexts in which a handler sees, and may answer, every call of the modules of a network."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Collection, Iterator, Mapping, Sequence
from unittest.mock import patch

import numpy as np

from .calls import MOST_CALLS, Call, call_name
from .inner_calls import is_attention
from .nested import as_tensor, fill_tensors, leaves, nested_arrays, tensors_of, to_array

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from .shared_types import Array, Given, Handle, Nested


@contextmanager
def watched(parts: Mapping[str, Module], handle: Handle, limit: int = MOST_CALLS) -> Iterator[Collection[str]]:
    """Inside, calls of these modules go to ``handle(name, caller, module, compute, (args, kwargs))``, where ``name`` is
    the call's name, ``caller`` the innermost enclosing one and ``compute(args, kwargs)`` the module's own computation.
    Yields the names of modules that are called too often; only the first ``limit`` calls are handled. What the user's
    hooks of a submodule compute is outside of its call, as if the enclosing module computed it.

    Hooks are not used, since before torch 2 they do not see keyword arguments.
    """
    from torch import nn

    names = {id(part): name for name, part in parts.items()}
    count = dict.fromkeys(names.values(), 0)
    within = [""]
    call: Callable[..., object] = nn.Module.__call__

    def seen(self: Module, *args: object, **kwargs: object) -> object:
        name = names.get(id(self))
        if name is None or count[name] > limit:
            return call(self, *args, **kwargs)
        count[name] += 1
        if count[name] > limit:
            return call(self, *args, **kwargs)
        called = call_name(name, count[name])
        if not name or not has_hooks(self):
            return handled(called, self, functools.partial(call, self), args, kwargs)
        forward = self.forward

        @functools.wraps(forward)
        def between_hooks(*args: object, **kwargs: object) -> object:
            with patch.object(self, "forward", forward):
                return handled(called, self, forward, args, kwargs)

        with patch.object(self, "forward", between_hooks):
            return call(self, *args, **kwargs)

    def handled(
        name: str, part: Module, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        within.append(name)
        try:
            compute = lambda positional, named: function(*positional, **named)  # noqa: E731
            return handle(within[-1], within[-2], part, compute, (args, kwargs))
        finally:
            within.pop()

    too_often: list[str] = []
    # On the class, since Python looks up __call__ there and not on the object.
    with patch.object(nn.Module, "__call__", seen):
        yield too_often
        too_often += [name for name, calls in count.items() if calls > limit]


def has_hooks(part: Module) -> bool:
    """Whether a module has forward hooks of the user, not only those with which torch computes weights."""
    if type(part).__module__.startswith("torch.jit."):  # its forward cannot be replaced
        return False
    hooks = (*part._forward_pre_hooks.values(), *part._forward_hooks.values())
    return any(not str(getattr(hook, "__module__", "")).startswith("torch.nn.utils.") for hook in hooks)


def inputs_of(
    part: Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[tuple[Nested, ...], tuple[str, ...]]:
    """Copies of the tensors among a module's arguments, in the order of its signature, nested ones in lists; and their
    parameters' names."""
    order = parameter_names(part)
    named = [*zip([*order, *([""] * len(args))], args), *_ordered(part, kwargs).items()]
    held = [(name, value) for name, value in named if tensors_of(value)]
    return tuple(nested_arrays(value) for _, value in held), tuple(name for name, _ in held)


def shapes_of(values: Sequence[Nested]) -> list[tuple[int, ...]]:
    """The shapes of all arrays, in order."""
    return [np.shape(leaf) for leaf in leaves(list(values))]


def outputs_of(part: Module, output: object) -> tuple[Array, ...]:
    """Copies of the tensors that a module returns; for attention only the output, not the weights."""
    return tuple(to_array(tensor) for tensor in tensors_of(output)[: 1 if is_attention(part) else None])


def fed_arguments(part: Module, arguments: Given, answer: Call) -> Given:
    """The arguments with their tensors replaced by the answer's inputs."""
    values = iter([as_tensor(leaf) for leaf in leaves(list(answer.inputs))])
    args = tuple(fill_tensors(value, values) for value in arguments[0])
    return args, {name: fill_tensors(value, values) for name, value in _ordered(part, arguments[1]).items()}


def with_tensors(part: Module, output: object, tensors: Sequence[Tensor]) -> object:
    """The output with its tensors replaced by these."""
    if is_attention(part) and isinstance(output, tuple):
        return (tensors[0], *output[1:])
    return fill_tensors(output, iter(tensors))


def parameter_names(part: Module) -> list[str]:
    """The names of the positional parameters of a module's ``forward``."""
    try:
        parameters = inspect.signature(part.forward).parameters.items()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters if parameter.kind in positional]


def _ordered(part: Module, kwargs: Mapping[str, object]) -> dict[str, object]:
    order = parameter_names(part) if kwargs else []
    return dict(sorted(kwargs.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
