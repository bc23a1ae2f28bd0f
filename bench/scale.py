"""A synthetic language model of any size, converted and copied by ``cp`` in turn: throughput, memory, SHA-256.

    python bench/scale.py --gigabytes 2 --max-memory 512MiB FOLDER

makes a bfloat16 folder of a Llama-like model shard by shard (transposed linear layers, norms, a tied head), copies it
with ``cp`` and converts it with ``wdport convert``, taken in turn, and prints seconds, the ratio and peak memory. Both
times include the sync of what was written. Before each run the files are dropped from the page cache (``--warm`` reads
them into it instead). Memory is sampled from /proc every 20 ms: RssAnon and RssShmem, so that no page of a file counts,
and VmHWM. It is held against a bare interpreter, and against one that has loaded numpy, JAX and Keras. Files
are removed at the end (``--keep``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HEADS, KV_HEADS = 32, 8
STEP = 1 << 24
LIBRARIES = "import keras, jax.numpy, h5py, wdport.cli.main, wdport.conversion.convert; jax.numpy.zeros(1)"

TABLE = """format: 2
keras: model:build
config: [vocabulary, width, inner, blocks]
layers:
  - {torch: model.embed_tokens, keras: embed_tokens, kind: embedding}
tensors:
  - {torch: model.norm.weight, keras: norm/scale, rule: "... -> ..."}
  - {torch: model.layers.<n>.input_layernorm.weight, keras: blocks/<n>/input_norm/scale, rule: "... -> ..."}
  - {torch: model.layers.<n>.post_attention_layernorm.weight, keras: blocks/<n>/inner_norm/scale, rule: "... -> ..."}
LINEARS
tied:
  - {torch: lm_head.weight, same_as: model.embed_tokens.weight}
"""

LINEARS = {"self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
           "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down"}  # fmt: skip

MODEL = """
import keras
from keras import layers


class Block(layers.Layer):
    def __init__(self, width, inner):
        super().__init__()
        linear = lambda size: layers.Dense(size, use_bias=False)
        self.input_norm, self.inner_norm = layers.RMSNormalization(), layers.RMSNormalization()
        self.q, self.k, self.v, self.o = linear(width), linear(width // 4), linear(width // 4), linear(width)
        self.gate, self.up, self.down = linear(inner), linear(inner), linear(width)

    def build(self, shape):
        width = shape[-1]
        for layer in (self.input_norm, self.inner_norm, self.q, self.k, self.v, self.o, self.gate, self.up):
            layer.build(shape)
        self.down.build((*shape[:-1], self.gate.units))

    def call(self, x):  # attention itself has no weights, and is left out
        y = self.input_norm(x)
        x = x + self.o(self.q(y) + keras.ops.tile(self.k(y) + self.v(y), (1, 1, 4)))
        y = self.inner_norm(x)
        return x + self.down(keras.ops.silu(self.gate(y)) * self.up(y))


class Decoder(keras.Model):
    def __init__(self, vocabulary, width, inner, blocks):
        super().__init__()
        self.embed_tokens = layers.Embedding(vocabulary, width)
        self.blocks = [Block(width, inner) for _ in range(blocks)]
        self.norm = layers.RMSNormalization()

    def call(self, ids):
        x = self.embed_tokens(ids)
        for block in self.blocks:
            x = block(x)
        return keras.ops.matmul(self.norm(x), keras.ops.transpose(self.embed_tokens.embeddings))


def build(vocabulary, width, inner, blocks):
    model = Decoder(vocabulary, width, inner, blocks)
    model(keras.KerasTensor((None, 8), dtype="int32"))
    return model
"""


def shapes(config: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the checkpoint's tensors, in the order in which they are stored."""
    width, inner = config["width"], config["inner"]
    small = width * KV_HEADS // HEADS
    sizes = {"q": (width, width), "k": (small, width), "v": (small, width), "o": (width, width),
             "gate": (inner, width), "up": (inner, width), "down": (width, inner)}  # fmt: skip
    yield "model.embed_tokens.weight", (config["vocabulary"], width)
    for block in range(config["blocks"]):
        for name, short in LINEARS.items():
            yield f"model.layers.{block}.{name}.weight", sizes[short]
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{block}.{name}.weight", (width,)
    yield "model.norm.weight", (width,)


def config_of(gigabytes: float) -> dict[str, int]:
    """Llama 3's 8 billion parameters for 16 GB, the head tied; fewer blocks for less."""
    config = {"vocabulary": 128256, "width": 4096, "inner": 14336, "blocks": 0}
    if gigabytes < 4:
        config |= {"vocabulary": 64000, "width": 2048, "inner": 8192}
    sizes = [2 * int(np.prod(shape)) for _, shape in shapes(config | {"blocks": 1})]
    block = sum(sizes[1:-1])
    return config | {"blocks": max(1, round((gigabytes * 1e9 - sizes[0]) / block))}


def make(folder: Path, gigabytes: float, shard: int = 5_000_000_000) -> int:
    """Write the folder, shard by shard; its bytes. Values are random bits of normal numbers near one."""
    config = config_of(gigabytes)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    groups: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    for name, shape in shapes(config):
        if sum(2 * int(np.prod(s)) for _, s in groups[-1]) + 2 * int(np.prod(shape)) > shard:
            groups.append([])
        groups[-1].append((name, shape))
    random = np.random.default_rng(0)
    noise = (random.integers(0, 1 << 11, STEP, dtype=np.uint16) | np.uint16(0x3800)).tobytes()
    places: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        place = f"model-{number:05}-of-{len(groups):05}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        for name, shape in group:
            size = 2 * int(np.prod(shape))
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + size]}
            places[name], position = place, position + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / place).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            while position:
                start = int(random.integers(0, STEP)) & ~1
                position -= file.write(noise[start : start + min(position, len(noise) - start)])
            os.fsync(file.fileno())
    total = sum(2 * int(np.prod(shape)) for _, shape in shapes(config))
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def cool(folder: Path) -> None:
    """Drop a folder's files from the page cache."""
    for path in files(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(folder: Path) -> None:
    for path in files(folder):
        with path.open("rb", buffering=0) as file:
            while file.read(STEP):
                pass


def memory(pid: int) -> dict[str, int]:
    """Bytes by name in /proc; nothing once the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    told = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in told}


def watched(command: list[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Run it; seconds, and its peaks of memory that is no file's and of all."""
    started, used = time.monotonic(), cpu()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    peak = high = 0
    while process.poll() is None:
        found = memory(process.pid)
        peak = max(peak, found.get("RssAnon", 0) + found.get("RssShmem", 0))
        high = max(high, found.get("VmHWM", 0))
        time.sleep(0.02)
    seconds, used = time.monotonic() - started, cpu() - used
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}")
    return {"seconds": seconds, "cpu": used, "peak": peak, "high": high}


def cpu() -> float:
    """Seconds of processors that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def copied(source: Path, target: Path) -> dict[str, float]:
    started, used = time.monotonic(), cpu()
    subprocess.run(["cp", "-r", source, target], check=True)
    returned = time.monotonic() - started
    subprocess.run(["sync", *files(target)], check=True)
    return {"seconds": time.monotonic() - started, "cpu": cpu() - used, "returned": returned}


def sha256(folder: Path) -> dict[str, str]:
    def one(path: Path) -> tuple[str, str]:
        with path.open("rb") as file:
            return path.name, hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, files(folder)))


def in_turn(folder: Path) -> str:
    """The SHA-256 of the index and then its shards."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("model*"), key=lambda path: (path.suffix != ".json", path.name)):
        with path.open("rb", buffering=0) as file:
            while data := file.read(STEP):
                digest.update(data)
    return digest.hexdigest()


def idle(code: str, environment: dict[str, str]) -> int:
    """The memory of an interpreter that has run ``code``."""
    command = [sys.executable, "-c", f"{code}; print(open('/proc/self/status').read())"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(("RssAnon", "RssShmem")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--max-memory", default="512MiB")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare the hashes with those of a second read")
    given = parser.parse_args()
    folder, source = given.folder, given.folder / "source"
    folder.mkdir(parents=True, exist_ok=True)
    ready: Callable[[Path], None] = warm if given.warm else cool
    try:
        size = make(source, given.gigabytes) if not source.exists() else sum(p.stat().st_size for p in files(source))
        (folder / "model.py").write_text(MODEL)
        rows = "\n".join(
            f"  - {{torch: model.layers.<n>.{name}.weight, keras: blocks/<n>/{short}/kernel, rule: out in -> in out}}"
            for name, short in LINEARS.items()
        )
        (folder / "table.yaml").write_text(TABLE.replace("LINEARS", rows))
        state = "warm" if given.warm else "cold"
        print(
            f"{size / 1e9:.2f} GB in {len(files(source))} files, {state} page cache, "
            f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"
        )
        environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join(sys.path[1:])}
        bare, loaded = idle("pass", environment), idle(LIBRARIES, environment)
        print(f"memory of a bare interpreter {bare / 2**20:.0f} MiB, with the libraries {loaded / 2**20:.0f} MiB")
        command = [sys.executable, "-m", "wdport", "convert", str(source), "--mapping", "table.yaml", "-o", "out/",
                   "--dtype", "bfloat16", "--max-memory", given.max_memory]  # fmt: skip
        for _ in range(given.rounds):
            ready(source)
            copy = copied(source, folder / "copy")
            shutil.rmtree(folder / "copy")
            print(f"cp       {copy['seconds']:6.1f} s {size / copy['seconds'] / 1e9:5.2f} GB/s with sync, "
                  f"{copy['returned']:.1f} s without; {copy['cpu']:.1f} s of CPU")  # fmt: skip
            ready(source)
            made = watched(command, folder, environment)
            print(f"convert  {made['seconds']:6.1f} s {size / made['seconds'] / 1e9:5.2f} GB/s, "
                  f"{copy['seconds'] / made['seconds']:.2f} x cp with sync, "
                  f"{copy['returned'] / made['seconds']:.2f} x without; {made['cpu']:.1f} s of CPU")  # fmt: skip
            print(
                f"memory   {made['peak'] / 2**20:.0f} MiB at most: {(made['peak'] - bare) / 2**20:.0f} above a bare "
                f"interpreter, {(made['peak'] - loaded) / 2**20:.0f} above one with the libraries; "
                f"VmHWM {made['high'] / 2**20:.0f} MiB"
            )
            manifest = json.loads((folder / "out.wdport.json").read_text())
            print(f"sha256   in {manifest['source']['sha256']}, out {manifest['output']['sha256']}")
            if given.check:
                found = sha256(folder / "out")
                assert all(found[each["name"]] == each["sha256"] for each in manifest["output"]["files"])
                assert in_turn(source) == manifest["source"]["sha256"]
                print("         a second read of all files gives the hashes that the manifest states")
            shutil.rmtree(folder / "out")
            (folder / "out.wdport.json").unlink()
    finally:
        if not given.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
