"""What ``wdport port`` makes of the corpus, entry by entry: ``python -m parity_tests.port.table``.

Every model is traced, and its graph is run again in PyTorch on other inputs, which must give the same bits. The graph
is lowered, and run in Keras in float64 at two sizes; the source is written, imported, and run in the same way. Both
must be equal to PyTorch up to 1e-10. With ``--prove``, the written model is then proved as the command does it, by
``verify`` with other weights and inputs, gradients and training mode. An entry ends at its first step without a
counterpart, a *hole*, and is wrong if anything differs.

Unseen entries are left out, unless they are named or ``--unseen`` is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras  # noqa: F401  before our modules that need it
import numpy as np
import torch

from parity_tests.port.corpus import CORPUS
from parity_tests.port.entries import Entry
from wdport.base.errors import WdportError
from wdport.base.jax_settings import use_compile_cache
from wdport.compare.probe import is_tensor
from wdport.compare.reference import translated
from wdport.files.atomic import scratch_folder
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import parse_table
from wdport.models.interface import Array
from wdport.models.keras_runtime import float64, set_variable, unfilled, variables_by_path
from wdport.parity.proving.port import WrittenPort, write_port
from wdport.parity.proving.port_proof import prove_port
from wdport.parity.reports.phrases import claim
from wdport.porting.graph import Graph
from wdport.porting.lowering.comparison import error_of, filled, tensors_of
from wdport.porting.lowering.holes import line_of
from wdport.porting.lowering.interpreter import in_keras
from wdport.porting.lowering.keras_graph import KerasGraph
from wdport.porting.lowering.lower import lower
from wdport.porting.outline.steps import is_layer
from wdport.porting.replay import outputs_of, replay
from wdport.porting.torch_run import SEED, fill
from wdport.porting.tracing import constructed, trace
from wdport.recording import nested
from wdport.recording.calls import cast
from wdport.recording.errors import one_line
from wdport.recording.fitted_inputs import call_by_name
from wdport.recording.float64 import lifted
from wdport.recording.input_text import parse_inputs
from wdport.recording.nested import named_leaves
from wdport.recording.torch_functions import highest_precision

BOUND = 1e-10
"""Largest relative error of an output in float64, as verify has it."""

TRACED, OTHER = (0, 2), (1, 2)
"""Seed and batch size of the traced run, and of the one that is replayed."""

COMPARED = ((0, 2), (3, 1))
"""Those of the runs that are compared with Keras; a batch of one has the second size of every axis."""

MADE = "<!-- What follows is written by `make port`. -->\n"

Arguments = dict[str, Array]
Outcome = Literal["written", "hole", "refused", "wrong", "failed"]


@dataclass(frozen=True)
class Result:
    """What became of an entry.

    Attributes:
        entry: the entry.
        outcome: ``written`` and equal; a ``hole``; ``refused`` by the command with a reason; ``wrong``, for something
            differs; or ``failed``, with another exception or a table that does not fit.
        replayed: whether the graph gives the same bits in PyTorch.
        lowered: whether the lowered graph is equal.
        proved: ``yes``, with what is left out; or why there is no proof; "" without ``--prove``.
        reason: the hole, the refusal, or what differs.
        error: the largest relative error of an output of the written model.
        lines: lines of the source.
        torch_lines: lines of the PyTorch classes that are called.
        seconds: how long it took.
    """

    entry: Entry
    outcome: Outcome
    replayed: bool = False
    lowered: bool = False
    proved: str = ""
    reason: str = ""
    error: float = 0.0
    lines: int = 0
    torch_lines: int = 0
    seconds: float = 0.0


class DifferenceError(Exception):
    """Something is not equal to what PyTorch computes."""


class HoleError(Exception):
    """A step without a counterpart."""


@dataclass
class Progress:
    """The stages that an entry has passed."""

    replayed: bool = False
    lowered: bool = False
    proved: str = ""
    error: float = 0.0
    lines: int = 0
    torch_lines: int = 0


@dataclass(frozen=True)
class Reference:
    """The PyTorch side: a module with random weights in float64, and its graph and values in the traced run."""

    entry: Entry
    module: torch.nn.Module
    graph: Graph
    keras_graph: KerasGraph

    def run(self, arguments: Arguments) -> list[torch.Tensor]:
        """The outputs on these arguments."""
        with highest_precision(), lifted(), torch.no_grad():
            return nested.tensors_of(self.module(*(torch.from_numpy(array.copy()) for array in arguments.values())))

    @property
    def state(self) -> Arguments:
        """The tensors of its checkpoint."""
        return {name: tensor.detach().numpy() for name, tensor in self.module.state_dict().items()}


def arguments_of(entry: Entry, seed: int, batch: int) -> Arguments:
    """Arguments of ``forward`` in their order, in float64, by the names of the inputs."""
    inputs = parse_inputs(entry.inputs)
    return {each.name: cast(each.make(seed, batch, 1.0), np.float64) for each in inputs}


def run_entry(entry: Entry, prove: bool = False) -> Result:
    """Take one entry through all stages, and, if asked to, ``prove`` what is written."""
    progress, reason, started = Progress(), "", time.perf_counter()
    outcome: Outcome = "written"
    try:
        _stages(entry, progress, prove)
    except HoleError as error:
        outcome, reason = "hole", str(error)
    except DifferenceError as error:
        outcome, reason = "wrong", str(error)
    except WdportError as error:
        outcome, reason = "refused", error.command_line
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = "failed"
        reason = f"{one_line(error)} ({Path(place.filename).name}:{place.lineno})"
    jax.clear_caches()  # gigabytes after some dozens of models
    return Result(entry, outcome, reason=reason, seconds=time.perf_counter() - started, **vars(progress))


def _stages(entry: Entry, progress: Progress, prove: bool) -> None:
    reference = _lowered(entry, progress)
    if (hole := reference.keras_graph.refused) is not None:
        place = line_of(hole.node.place)
        raise HoleError(f"{hole.node.name or 'the model'}{f' ({place})' if place else ''}: {hole.what}")
    if reference.keras_graph.holes:
        _written_with_holes(entry)
    with float64():
        compare("lowered", _interpreted(reference), reference)
    progress.lowered = True
    port = write_port(entry.target, entry.inputs, f"{entry.name}_keras")
    if not port.written:
        raise HoleError(str(port.missing[0]))
    progress.lines, progress.torch_lines = port.lines, port.torch_lines
    with _imported(port.source, f"{entry.name}_keras") as module, float64():
        progress.error = compare("written", _written(reference, module, port.table), reference)
    if prove:
        progress.proved = _proved(port)


def _proved(port: WrittenPort) -> str:
    """Whether verify proves a port, as the command has it."""
    prove_port(port)
    if port.verdict is None:
        return f"no: {port.failure}"
    if port.verdict.exit_code == 1:
        raise DifferenceError(f"refuted: {claim(port.verdict)}")
    if not port.proved:
        return f"no: {claim(port.verdict)}"
    return "yes" if port.trains else "yes, but for training mode"


def _written_with_holes(entry: Entry) -> NoReturn:
    """Write an entry without the steps that have no counterpart, and compare all others."""
    port = write_port(entry.target, entry.inputs, f"{entry.name}_keras")
    if port.differs:
        raise DifferenceError(f"written with holes: {port.differs} differs")
    compile(port.source, f"{entry.name}_keras.py", "exec")
    texts = [f"{one}" for one in port.missing]
    raise HoleError(f"{'written without' if port.written else 'not written'}: {'; '.join(texts)}")


def _lowered(entry: Entry, progress: Progress) -> Reference:
    """Trace an entry, replay it, and lower it."""
    with lifted(), constructed() as construction:
        module = entry.build()
    module = module.double().eval()
    buffers = construction(module)
    fill(module, SEED)
    with translated():
        call_by_name(module, parse_inputs(entry.inputs))
    arguments = arguments_of(entry, *TRACED)
    graph = trace(module, list(arguments), list(arguments.values()), is_layer)
    values = {source: tensor.detach().numpy() for source, tensor in replay(graph, module, arguments).items()}
    sized = arguments_of(entry, *COMPARED[1])
    other = trace(module, list(sized), list(sized.values()), is_layer)
    reference = Reference(entry, module, graph, lower(graph, values, buffers, other))
    arguments = arguments_of(entry, *OTHER)
    again = outputs_of(graph, replay(graph, module, arguments))
    outputs = reference.run(arguments)
    if len(again) != len(outputs) or not all(map(_same_bits, again, outputs)):
        raise DifferenceError("replayed: the graph has other values in PyTorch")
    progress.replayed = True
    return reference


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.is_floating_point())


Run = Callable[[Arguments], Sequence[Any]]


def _interpreted(reference: Reference) -> Run:
    """The lowered graph as a function of PyTorch's arguments."""
    graph = reference.keras_graph
    run = arguments_of(reference.entry, *TRACED), {}
    model = filled(graph, reference.graph, tensors_of(reference.module, graph), run)
    return lambda arguments: model(_in_order(graph, arguments))


def _in_order(graph: KerasGraph, arguments: Arguments) -> list[Array]:
    """The inputs of a Keras model, in its layouts."""
    return [np.transpose(arguments[name], placed.order) for name, placed in graph.inputs.items()]


def _written(reference: Reference, module: ModuleType, table: str) -> Run:
    """The written model, with the weights that its table gives it, as a function of PyTorch's arguments."""
    graph, state = reference.keras_graph, reference.state
    with unfilled():
        model = module.build()
    variables = variables_by_path(model)
    if variables:
        shapes = {path: tuple(each.shape) for path, each in variables.items()}
        tensors = {name: tuple(array.shape) for name, array in state.items()}
        try:
            plan = make_plan(parse_table(table.encode(), "the table"), tensors, shapes, {})
        except WdportError as error:
            raise ValueError(error.command_line) from error
        if not isinstance(plan, Plan):
            raise ValueError(f"the table does not fit: {plan}")
        for path, array in plan.apply(state.__getitem__, rounded=False):
            set_variable(variables[path], array)

    def run(arguments: Arguments) -> Sequence[Any]:
        inputs = _in_order(graph, arguments)
        outputs = model(inputs[0] if len(inputs) == 1 else tuple(inputs))
        return [leaf for _, leaf in named_leaves(outputs, is_tensor)]

    return run


def compare(stage: str, run: Run, reference: Reference) -> float:
    """The largest relative error of an output in Keras, at two sizes; raises :class:`DifferenceError`."""
    largest = 0.0
    for seed, batch in COMPARED:
        arguments = arguments_of(reference.entry, seed, batch)
        outputs = reference.run(arguments)
        computed = run(arguments)
        if len(computed) != len(outputs):
            raise DifferenceError(f"{stage}: {len(computed)} outputs, PyTorch has {len(outputs)}")
        for index, placed in enumerate(reference.keras_graph.outputs):
            error = error_of(np.asarray(computed[index]), in_keras(outputs[index].numpy(), placed))
            if not error <= BOUND:
                raise DifferenceError(f"{stage}: output {index} differs by {error:.1e} at batch {batch}")
            largest = max(largest, error)
    return largest


@contextmanager
def _imported(source: str, name: str) -> Iterator[ModuleType]:
    """The module of a source; its classes need its name."""
    with scratch_folder() as folder:
        path = Path(folder, f"{name}.py")
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            del sys.modules[name]


def row_of(result: Result) -> str:
    """A line of the report."""
    detail = result.reason
    if result.outcome == "written":
        detail = f"error {result.error:.1e}, {result.lines} lines (torch: {result.torch_lines})"
        detail += f", proved: {result.proved}" if result.proved else ""
    outcome = result.outcome.upper() if result.outcome == "wrong" else result.outcome
    return f"{result.entry.name:<36} {outcome:<8} {detail}"


def summary_of(results: Sequence[Result]) -> str:
    """The figures of all entries."""
    counts = {outcome: sum(result.outcome == outcome for result in results)
              for outcome in ("written", "hole", "refused", "failed", "wrong")}  # fmt: skip
    return (
        f"{len(results)} tried, {sum(result.replayed for result in results)} replayed, "
        f"{sum(result.lowered for result in results)} lowered and equal, {counts['written']} written and equal, "
        f"{sum(result.proved.startswith('yes') for result in results)} proved, {counts['hole']} holes, "
        f"{counts['refused']} refused, {counts['failed']} failed, {counts['wrong']} wrong"
    )


def markdown_of(results: Sequence[Result]) -> str:
    """The report as a page."""
    heads = ("model", "replayed", "lowered and equal", "source", "proved", "lines", "lines in PyTorch", "error")
    rows = [heads, ("---",) * len(heads)]
    for result in results:
        passed = ["yes" if stage else "no" for stage in (result.replayed, result.lowered)]
        if result.outcome == "written":
            numbers = (result.proved or "-", f"{result.lines}", f"{result.torch_lines}", f"{result.error:.1e}")
            rows.append((result.entry.name, *passed, "written and equal", *numbers))
        else:
            reason = result.reason.replace("|", "\\|").replace("<", "&lt;")
            rows.append((result.entry.name, *passed, f"{result.outcome}: {reason}", "-", "-", "-", "-"))
    return f"{summary_of(results)}.\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def selected(names: Sequence[str], unseen: bool, seen: bool) -> list[Entry]:
    """The named entries or, without names, the seen ones, the unseen ones or both."""
    if names:
        return [CORPUS[name] for name in names]
    return [entry for entry in CORPUS.values() if (unseen if entry.unseen else seen or not unseen)]


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 1 if an entry is wrong or failed."""
    parser = argparse.ArgumentParser(prog="python -m parity_tests.port.table", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; the seen ones without")
    parser.add_argument("--seen", action="store_true", help="the entries that are not unseen")
    parser.add_argument("--unseen", action="store_true", help="the unseen entries")
    parser.add_argument("--prove", action="store_true", help="prove what is written; takes minutes for large models")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="replace the table in FILE")
    options = parser.parse_args(words)
    if unknown := [name for name in options.names if name not in CORPUS]:
        parser.error(f"no entry {', '.join(unknown)}; python -m parity_tests.port.corpus lists them")
    torch.set_num_threads(1)
    use_compile_cache()
    results = []
    for entry in selected(options.names, options.unseen, options.seen):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(run_entry(entry, options.prove))
        sys.stdout.write(f"{row_of(results[-1])}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{summary_of(results)}\n")
    if options.markdown:
        before = options.markdown.read_text(encoding="utf-8").partition(MADE)[0]
        options.markdown.write_text(f"{before}{MADE}\n{markdown_of(results)}", encoding="utf-8")
    return int(any(result.outcome in ("wrong", "failed") for result in results))


if __name__ == "__main__":
    sys.exit(main())
