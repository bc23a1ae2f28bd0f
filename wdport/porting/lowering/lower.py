"""Lower a graph with the rules of all functions and layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdport.porting.graph import Graph, TensorSource, with_sources
from wdport.porting.lowering import (  # noqa: F401
    arithmetic,
    creation,
    indexing,
    joins,
    layers,
    losses,
    products,
    reductions,
    reshapes,
    sequences,
    windows,
)
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import KerasGraph
from wdport.porting.tracing import Construction


def lower(
    graph: Graph, values: Mapping[TensorSource, Any] | None = None, construction: Construction | None = None,
    other: Graph | None = None,
) -> KerasGraph:  # fmt: skip
    """The lowered graph, up to the first node without a counterpart. ``values`` are those of a replay: what depends on
    neither inputs nor sizes may become a constant. ``other`` is the graph of a run with inputs of other sizes: what
    differs in a way that is not seen is a hole."""
    register()
    lowering = GraphLowering(with_sources(graph, True), values or {}, construction, other and with_sources(other, True))
    lowering.run()
    return lowering.result


def register() -> None:
    """Declare the rules."""
    layers.register()


__all__ = ["GraphLowering", "lower", "register"]
