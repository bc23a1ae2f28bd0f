"""``python -m recording package.module:factory checkpoint.ckpt -o run.npz``, see :mod:`wdport.recording`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn, Sequence

from .errors import Refusal
from .input_text import read_inputs
from .record_file import record_file


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as any other error."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(2, self.prog, message, "see --help")


def _require_output(output: str, checkpoint: str) -> None:
    if not output.endswith(".npz"):
        raise Refusal(2, output, "unknown output format", "end the name in .npz")
    if os.path.exists(output) and os.path.exists(checkpoint) and os.path.samefile(output, checkpoint):
        raise Refusal(2, output, "is the checkpoint", "give another name with -o")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this folder as a command; returns the exit code."""
    parser = _Parser(prog="python -m recording", description="Record a PyTorch model for wdport verify.")
    parser.add_argument("reference", metavar="MODULE:FUNCTION", help="the function that builds your model")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the file with its weights")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the NPZ file to write")
    parser.add_argument("--key", metavar="NAME", help="key of the state_dict, if the file holds several")
    parser.add_argument("--leave-out", metavar="PATTERN", action="append", default=[], help="modules not to record")
    parser.add_argument("--keep", metavar="PATTERN", action="append", default=[], help="tensors whose values to store")
    parser.add_argument("--input", metavar="'NAME: AXES'", action="append", default=[], help="an input, 'x: b 3 48 48'")
    try:
        args = parser.parse_args(arguments)
        _require_output(args.output, args.checkpoint)
        inputs = read_inputs(args.input)
        index = record_file(
            args.reference, args.checkpoint, args.output, args.key, args.leave_out, inputs=inputs, keep=args.keep
        )
    except Refusal as refusal:
        sys.stderr.write(f"error: {refusal}\n")
        return refusal.exit_code
    for note in index["notes"]:
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"wrote {args.output}: {len(index['names'])} modules, torch {index['environment']['torch']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
