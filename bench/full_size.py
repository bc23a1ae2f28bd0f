"""Conversion and verification at the released size, compared with plain torch: prints ratios.

Makes a checkpoint of 63,099,552 parameters with and without optimizer state in a temporary folder,
then runs, in turn, as whole processes:

    A  wdport convert CHECKPOINT -o out.safetensors
    B  a bare script: torch.load(mmap=True), safetensors.torch.save_file of the same tensors
    C  wdport convert CHECKPOINT -o out.keras

and prints medians of wall time and peak resident memory, the ratio A/B pair by pair, and at last the
times of one `wdport verify` and one `wdport verify --full`. Nothing is asserted; see the README for what the
numbers should be.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 3
WDPORT = Path(sys.executable).with_name("wdport")
BARE = """
import sys, torch
from safetensors.torch import save_file
loaded = torch.load(sys.argv[1], mmap=True, weights_only=True)
save_file(dict(loaded.get("state_dict", loaded)), sys.argv[2])
"""


def make_checkpoints(folder: Path) -> None:
    """``full.ckpt`` with AdamW state as Lightning saves it, and ``bare.pt``."""
    import torch

    from wdport.uses.waveletdiff.config import Config
    from wdport.uses.waveletdiff.reference import WaveletDiff

    torch.manual_seed(0)
    model = WaveletDiff(Config((5, 5, 8, 13), 7, 256, 8, 8, 128))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0, 0.05)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    state = model.state_dict()
    lightning = {"epoch": 1, "global_step": 1, "pytorch-lightning_version": "2.6.6", "state_dict": state}
    torch.save(lightning | {"optimizer_states": [optimizer.state_dict()]}, folder / "full.ckpt")
    torch.save(state, folder / "bare.pt")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(state)} tensors", flush=True)


def run(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak resident bytes of one process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024.0


def compare(checkpoint: Path, folder: Path, weights: int) -> None:
    """One table: A, B and C in turn, RUNS times after one warm-up."""
    convert = [str(WDPORT), "convert", str(checkpoint), "--force", "-o"]
    commands = {
        "A wdport convert -o .safetensors": [*convert, str(folder / "a.safetensors")],
        "B torch.load + save_file": [sys.executable, "-c", BARE, str(checkpoint), str(folder / "b.safetensors")],
        "C wdport convert -o .keras": [*convert, str(folder / "c.keras")],
    }
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, command in commands.items():
            measured = run(command)
            if turn:
                results[name].append(measured)
    print(f"\n{checkpoint.name} ({checkpoint.stat().st_size / 1e6:.0f} MB, weights {weights / 1e6:.0f} MB)")
    for name, runs in results.items():
        wall, peak = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"  {name:<34} {wall:6.2f} s  {peak / 1e6:6.0f} MB peak")
    first, bare, keras = results.values()
    ratios = sorted(a / b for (a, _), (b, _) in zip(first, bare, strict=True))
    extra = sorted(c - a for (c, _), (a, _) in zip(keras, first, strict=True))
    middle = statistics.median(ratios)
    print(f"  A/B wall: median {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); at most 1 is the aim")
    print(f"  A peak over weights: {max(p for _, p in first) / weights:.2f}; at most 1.3 (+ 150 MB) is the aim")
    print(f"  C - A: median {statistics.median(extra):.2f} s; at most 3 s is the aim")


def main() -> None:
    """Make the files, print both tables and the time of verification."""
    if sys.argv[1:2] == ["--make"]:
        make_checkpoints(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a separate process: a child's peak memory counts what its parent had when it was forked.
        subprocess.run([sys.executable, __file__, "--make", name], check=True)
        weights = (folder / "bare.pt").stat().st_size
        for checkpoint in (folder / "full.ckpt", folder / "bare.pt"):
            compare(checkpoint, folder, weights)
        os.environ["WDPORT_COMPILE_CACHE"] = "off"
        print("\nwith no program compiled before:")
        for flags, aim in (([], "60 s"), (["--full"], "180 s and 6 GB")):
            command = [str(WDPORT), "verify", str(folder / "full.ckpt"), str(folder / "c.keras"), *flags]
            wall, peak = run(command)
            name = " ".join(["wdport verify", *flags])
            print(f"  {name:<21} {wall:4.0f} s, {peak / 1e9:.2f} GB peak; at most {aim} is the aim", flush=True)


if __name__ == "__main__":
    main()
