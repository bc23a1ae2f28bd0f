"""The corpus: the public PyTorch models that ``wdport port`` is measured on, fixed before the writer was tuned.

Every model is a released class with small sizes and random weights, or a network of ``small`` as people write them;
nothing inside is simplified, and settings other than sizes are mostly the libraries' own defaults.

Twenty entries are *unseen*: nobody looks at their results before the end. The rule: sort all entries by group and then
by name; every fifth one, beginning with the fifth, is unseen. :data:`UNSEEN` lists them.

    python -m parity_tests.port.corpus            list the entries
    python -m parity_tests.port.corpus --check    build them, and run each at two sizes; names select some
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from parity_tests.port.entries import ENTRIES, Entry
from parity_tests.port.models import (
    diffusers,
    families,
    layers,
    signals,
    small,
    timm,
    torchvision,
    transformers,
)
from wdport.recording.input_text import parse_inputs

MODULES = (torchvision, timm, transformers, signals, diffusers, layers, small, families)
"""The modules that declare the entries, by being imported."""

UNSEEN = frozenset({
    "diffusers_pixart", "diffusers_vq_model", "small_fourier_mlp", "small_lstm_attention", "small_seq2seq",
    "small_wavenet", "timm_efficientnet", "timm_vit", "torch_transformer_decoder", "torchvision_efficientnet",
    "torchvision_mvit", "torchvision_resnet", "torchvision_vit", "transformers_bart", "transformers_clip",
    "transformers_deberta_v2", "transformers_falcon", "transformers_llama", "transformers_roberta",
    "wdport_masked_lm",
})  # fmt: skip
"""The names of the entries that are not looked at before the end."""

STEP = 5
"""Of the sorted entries, each one whose number is a multiple of this is unseen."""


def unseen_by_rule(entries: Sequence[Entry]) -> list[str]:
    """The names that the rule makes unseen."""
    ordered = sorted(entries, key=lambda entry: (entry.group, entry.name))
    return [entry.name for entry in ordered[STEP - 1 :: STEP]]


CORPUS: Mapping[str, Entry] = {entry.name: replace(entry, unseen=entry.name in UNSEEN) for entry in ENTRIES}
"""Every entry by name."""

BATCHES = (2, 1)
"""The batch sizes of a check: a batch of one has the second size of every axis that has two."""


@dataclass(frozen=True)
class Checked:
    """What a check of an entry measured: parameters, tensors of the output, and seconds of the slowest run."""

    parameters: int
    outputs: int
    seconds: float


def check(entry: Entry) -> Checked:
    """Build a module, and run it at two sizes; raises ``ValueError`` if its outputs are not finite, or if a second
    module built and run in the same way computes others."""
    module, again = entry.build(), entry.build()
    slowest, outputs = 0.0, 0
    for batch in BATCHES:
        arguments = make_arguments(entry, batch)
        started = time.perf_counter()
        values = run(module, arguments)
        slowest, outputs = max(slowest, time.perf_counter() - started), len(values)
        if not values or not all(value.isfinite().all() for value in values):
            raise ValueError(f"{entry.name}: outputs are missing or not finite at batch {batch}")
        others = run(again, arguments)
        if any(not torch.equal(value, other) for value, other in zip(values, others, strict=True)):
            raise ValueError(f"{entry.name}: a second module or run has other values at batch {batch}")
    if module.training:
        raise ValueError(f"{entry.name}: is not in evaluation mode")
    return Checked(sum(value.numel() for value in module.parameters()), outputs, slowest)


def make_arguments(entry: Entry, batch: int) -> dict[str, torch.Tensor]:
    """Arguments of ``forward`` by name, of ordinary values; numbers are float32."""
    drawn = {each.name: torch.from_numpy(each.make(0, batch, 1.0)) for each in parse_inputs(entry.inputs)}
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in drawn.items()}


def run(module: torch.nn.Module, arguments: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of what a module computes."""
    with torch.no_grad():
        return list(leaves(module(**{name: value.clone() for name, value in arguments.items()})))


def leaves(value: object) -> Iterator[torch.Tensor]:
    """The tensors in dictionaries and sequences; what else is there, such as a cache of keys, is left out."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for part in value.values() for tensor in leaves(part))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from (tensor for part in value for tensor in leaves(part))


def main() -> int:
    """List or check the entries; returns the number of those that fail."""
    parser = argparse.ArgumentParser(prog="python -m parity_tests.port.corpus", description="The corpus of port.")
    parser.add_argument("names", nargs="*", help="entries; all without")
    parser.add_argument("--check", action="store_true", help="build them, and run each at two sizes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    for entry in [CORPUS[name] for name in options.names] or CORPUS.values():
        line = f"{entry.name:<38} {entry.group:<30} {'unseen' if entry.unseen else '      '}"
        if options.check:
            try:
                result = check(entry)
                line += f" {result.parameters:>10,} {result.outputs:>3} {result.seconds:7.3f} s"
            except Exception as error:
                failed += 1
                line += f" FAIL {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        sys.stdout.write(f"{line.rstrip()}\n")
        sys.stdout.flush()
    unseen = sum(entry.unseen for entry in CORPUS.values())
    sys.stdout.write(f"{len(CORPUS)} entries, {unseen} unseen" + (f", {failed} failed\n" if options.check else "\n"))
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
