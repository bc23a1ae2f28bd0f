"""Checkpoints with a name on the Hugging Face Hub, in its local cache or fetched into it.

Only safetensors files and configurations are fetched: no file whose reading could run code. The layout of the cache is
described at https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Final

from wdport.base.errors import InputError, MachineError
from wdport.checkpoint.regular_file import snapshot_of

_NAME: Final = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w./-]+))?")
_FETCHED: Final = ("*.safetensors", "*.safetensors.index.json", "config.json", "model_index.json")
_EXTRA: Final = "pip install 'wdport[hub]'"
_SUFFIXES: Final = (".ckpt", ".pt", ".pth", ".bin", ".safetensors", ".json", ".gz", ".keras", ".h5", ".npz", ".orbax",
                    ".yaml", ".yml", ".stablehlo", "/")  # fmt: skip


def find_checkpoint(text: str, fetch: bool = True) -> str:
    """The path of a checkpoint: the text itself, or the snapshot that ``ORGANIZATION/NAME`` or
    ``ORGANIZATION/NAME@REVISION`` names.

    A name is one if it has no suffix of a file that is read, and neither a file nor the folder of this path exists. A
    snapshot in the cache is taken as it is; with ``fetch``, others are fetched if ``huggingface_hub`` is installed,
    unless ``HF_HUB_OFFLINE`` is set.

    Raises:
        InputError: the text is a URL, or a name that is neither in the cache nor on the Hub.
        MachineError: the Hub cannot be reached.
    """
    if re.match(r"https?://", text):
        address = re.match(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)", text)
        fix = f"give its name on the Hub, {address[1]}" if address else "download the file, and give its path"
        raise InputError(text, "is a URL", fix)
    match = _NAME.fullmatch(text)
    is_path = text.endswith(_SUFFIXES) or os.path.lexists(text) or os.path.lexists(os.path.dirname(text))
    if match is None or is_path:
        return text
    repository, revision = match["repository"], match["revision"] or "main"
    cached = _cached(repository, revision)
    if cached is None and not fetch:
        return text
    return str(cached if cached is not None else _fetched(text, repository, revision))


def hub_name(path: Path) -> str | None:
    """``ORGANIZATION/NAME@COMMIT`` of a snapshot in a cache of the Hub, or of a file in it; ``None`` for others."""
    snapshot = snapshot_of(Path(os.path.abspath(path)))
    if snapshot is None:
        return None
    repository = snapshot.parents[1].name.removeprefix("models--").replace("--", "/", 1)
    return f"{repository}@{snapshot.name}"


def _cache() -> Path:
    """The folder of the cache, as ``huggingface_hub`` finds it."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _cached(repository: str, revision: str) -> Path | None:
    """A snapshot with weights, by a branch, a tag or a commit."""
    folder = _cache() / f"models--{repository.replace('/', '--')}"
    try:
        commit = (folder / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = revision
    snapshot = folder / "snapshots" / commit
    return snapshot if "/" not in commit and _is_whole(snapshot) else None


def _is_whole(snapshot: Path) -> bool:
    """Whether a snapshot has weights, and all of their shards."""
    names = [path.name for path in snapshot.glob("*.safetensors")]
    shards = [match for name in names if (match := re.fullmatch(r"(.*)-\d+-of-(\d+)\.safetensors", name))]
    counts = {(match[1], int(match[2])): sum(other[1] == match[1] for other in shards) for match in shards}
    return bool(names) and all(count == total for (_, total), count in counts.items())


def _fetched(text: str, repository: str, revision: str) -> Path:
    what = f"is no file, and not in the cache of the Hugging Face Hub ({_cache()})"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise InputError(text, f"{what}; HF_HUB_OFFLINE is set", "check the path or the name")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise InputError(text, what, f"check the path, or let it be fetched by its name on the Hub: {_EXTRA}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(repository, revision=revision, allow_patterns=list(_FETCHED)))
    except (HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(text, f"{what}; the Hub says: {reason}", "check the path or the name") from error
    except (LocalEntryNotFoundError, OSError) as error:
        what += ", and the Hub cannot be reached"
        raise MachineError(text, what, "check the path or the connection") from error
    if not any(snapshot.glob("*.safetensors")):
        fix = "download its file yourself, and give the path"
        raise InputError(text, "has no safetensors file on the Hub, and others are not fetched", fix)
    return snapshot
