"""What a PyTorch model computes in training alone: stochastic depth, and the steps of a run in training mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from wdport.base.errors import MisfitError
from wdport.porting.functions import bound, canonical
from wdport.porting.graph import CodePlace, Graph, Node, TracedTensor, mapped
from wdport.porting.lowering.needs import needed_nodes
from wdport.porting.tracing import IsLayer, trace

if TYPE_CHECKING:
    from wdport.models.interface import Array

ATTENTION = "scaled_dot_product_attention"
SAMPLES = 4096
MOST_PLACES = 3


def sample_drops(module: torch.nn.Module, graph: Graph) -> dict[str, float]:
    """The rates of the modules that do nothing in evaluation mode and drop whole samples in training, by path; also
    those of 0 and of ``Identity`` in their place in other blocks."""
    ranks = {node.module.path: len(node.inputs[0].shape) for node in graph.nodes
             if node.module is not None and (node.module.torch == "Identity" or _is_silent(node))}  # fmt: skip
    with _training(module), torch.no_grad():
        rates = {path: _rate(module.get_submodule(path), rank) for path, rank in ranks.items()}
    places = {_block(path) for path, rate in rates.items() if rate}
    return {path: rate for path, rate in rates.items() if rate is not None and _block(path) in places}


def _is_silent(node: Node) -> bool:
    """Whether a module returns its input and computes nothing."""
    sources = [tensor.source for tensor in node.inputs]
    return not node.is_layer and not node.inside and [tensor.source for tensor in node.outputs] == sources[:1] != []


def _block(path: str) -> str:
    return re.sub(r"\d+", "<n>", path)


def _rate(part: Callable[[torch.Tensor], object], rank: int) -> float | None:
    """The rate at which a module drops samples and divides those that are left by the share of them; ``None`` if it
    does something else."""
    x = torch.randn(SAMPLES, *[2] * (rank - 1), dtype=torch.float64)
    try:
        y = part(x)
    except Exception:  # whatever the user's code raises
        return None
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        return None
    if torch.equal(x, y):
        return 0.0
    factors = (y / x).reshape(SAMPLES, -1)
    left = factors[:, 0][factors[:, 0] != 0.0]
    if not 0 < len(left) < SAMPLES or not torch.allclose(factors, factors[:, :1]) or not torch.allclose(left, left[0]):
        return None
    rate = round(1.0 - 1.0 / float(left[0]), 12)
    # Five standard deviations.
    return rate if abs(len(left) / SAMPLES - (1.0 - rate)) < 5.0 * (rate * (1.0 - rate) / SAMPLES) ** 0.5 else None


@dataclass(frozen=True)
class TrainingTrace:
    """What a run in training mode shows.

    Attributes:
        reason: what it computes that a run in evaluation mode does not, apart from dropout and batch normalization, or
            why a port cannot be compared with it; "" if nothing.
        still: the paths of layers that stay in evaluation mode.
        idle: the serials of functions that drop no values in training either.
        rates: the rates at which functions drop values in training, by serial, where the code has another one in
            evaluation mode.
    """

    reason: str = ""
    still: frozenset[str] = frozenset()
    idle: tuple[int, ...] = ()
    rates: Mapping[int, float] = field(default_factory=dict)

    def mark(self, graph: Graph) -> None:
        """Let the steps of a run in evaluation mode drop values in training as PyTorch does."""
        for node in graph.nodes:
            if node.serial in self.idle and node.inputs:
                node.same = node.inputs[0].source
            if node.serial in self.rates and canonical(node.name) == ATTENTION:
                node.rate = self.rates[node.serial]
            elif node.serial in self.rates:
                node.args, node.kwargs = node.args[:1], {**node.kwargs, "p": self.rates[node.serial]}


def run_in_training(
    module: torch.nn.Module, names: Sequence[str], inputs: Sequence[Array], is_layer: IsLayer, graph: Graph,
    drops: Mapping[str, float],
) -> TrainingTrace:  # fmt: skip
    """Run a model in training mode, and compare the steps with those of ``graph``."""
    with _training(module):
        try:
            trained = trace(module, names, inputs, is_layer, drops)
        except MisfitError as error:
            return TrainingTrace(f"in training, {error.what}")
        still = frozenset(path for path, part in module.named_modules() if not part.training)
    first, second = ([_name(node) for node in one.nodes] for one in (graph, trained))
    needed = needed_nodes(graph)
    places: dict[str, None] = {}
    idle: list[int] = []
    rates: dict[int, float] = {}
    for kind, begin, end, other_begin, other_end in SequenceMatcher(None, first, second, False).get_opcodes():
        if kind != "equal":
            # What evaluation computes and does not use, such as a look at a mask for the fast path, is nothing.
            left = [node for node in graph.nodes[begin:end] if node.module is not None or node.serial in needed]
            nodes = (*trained.nodes[other_begin:other_end], *left)
            if not nodes:
                continue
            places[next((_text(node.place) for node in nodes if node.place), nodes[0].name)] = None
            continue
        for node, other in zip(graph.nodes[begin:end], trained.nodes[other_begin:other_end], strict=True):
            if _numbers(node) != _numbers(other):
                places[_text(other.place)] = None
            if node.module is None and "dropout" in canonical(node.name):
                dropped = bound(other)
                if dropped.get("training") is False:
                    idle.append(node.serial)
                elif dropped.get("p") != bound(node).get("p"):
                    rates[node.serial] = dropped["p"]
            if node.module is None and canonical(node.name) == ATTENTION and not bound(node).get("dropout_p"):
                rates[node.serial] = bound(other).get("dropout_p", 0.0)
    if places:
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        listed = ", ".join(list(places)[:MOST_PLACES])
        reason = f"PyTorch computes something else in training than the port, at {listed}{more}"
    else:
        reason = next(filter(None, map(_unlike, graph.nodes)), "")
    return TrainingTrace(reason, still, tuple(idle), rates)


def _unlike(node: Node) -> str:
    """What a layer does in training that cannot be compared with the Keras layer; "" if nothing."""
    module = node.module
    if module is None:
        return ""
    if module.settings.get("num_layers", 1) > 1 and module.settings.get("dropout"):
        return f"the dropout between the layers of {module.path} cannot be repeated"
    if module.torch == "RReLU":
        return f"{module.path} draws random numbers"
    if module.torch.startswith("BatchNorm") and module.settings.get("momentum") is None:
        return f"the statistics of {module.path} are means of all batches, as it has no momentum"
    return ""


def _name(node: Node) -> tuple[str, str]:
    return node.name, node.module.path if node.module is not None else ""


def _text(place: CodePlace | None) -> str:
    return f"{Path(place.file).name}:{place.line}" if place is not None else ""


def _numbers(node: Node) -> list[Any]:
    """The arguments of a function, without tensors and those that say whether the model is trained."""
    function = canonical(node.name)
    leaves: list[Any] = []
    if node.module is None and function == ATTENTION:
        mapped({key: value for key, value in bound(node).items() if key != "dropout_p"}, leaves.append)
    elif node.module is None and "dropout" not in function and "norm" not in function:
        mapped((node.args, dict(node.kwargs)), leaves.append)
    return [leaf for leaf in leaves if not isinstance(leaf, TracedTensor)]


@contextmanager
def _training(module: torch.nn.Module) -> Iterator[None]:
    """Inside, a model is in training mode; its buffers, its modes and the random numbers are the same afterwards."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(part, part.training) for part in module.modules()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module.train()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
