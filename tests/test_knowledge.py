"""What one family knows is known in its own rooms alone: its words stand nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "wdport"

WORDS = re.compile(
    r"wavelet|coefficient|level_lengths|level_names|level_slices|level_transformer|cross.?level|seq_len|boundary_mode"
    r"|prediction_target|qk_norm|scale_embedding|\bc[AD](\d|_?L)\b",
    re.IGNORECASE,
)
"""WaveletDiff's own: its name and its transform's, what it diffuses, its levels, and the fields of its configuration
that no other model has."""

HOME = ("uses/waveletdiff/", "uses/wavelets/")

REGISTRY = ("families/shipped.py", "base/former_names.py")
"""Where families are named, each as one module; they may have its name and no other word."""

GENERAL = {
    "uses/diffusion/plans.py": "the coefficients of a row of updates",
    "uses/diffusion/run_plan.py": "the same, as the scan takes them",
    "uses/diffusion/sampler_updates.py": "the same",
    "uses/exporting/model_side.py": "those of a sampler's plan",
    "uses/data/__init__.py": "the coefficients of any transform, which is an argument",
    "uses/data/pipeline.py": "the same",
}
"""Files where "coefficient" is the word of mathematics; no other word of the list may be there."""

DEFAULTS = {"uses/cli/sample.py": {"coefficient"}}
"""Words that the command line's texts for this family may have: the default output."""


def words(text: str) -> set[str]:
    return {found[0].lower() for found in WORDS.finditer(text)}


def modules() -> Iterator[tuple[str, str]]:
    """Path within the package, and text, of everything outside the family's own rooms."""
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.suffix in (".py", ".yaml") and not name.startswith(HOME):
            yield name, path.read_text(encoding="utf-8")


def known(name: str, text: str) -> set[str]:
    """The words that a module should not know."""
    general = {"coefficient"} if name in GENERAL else {"wavelet"} if name in REGISTRY else set()
    return words(text) - general - DEFAULTS.get(name, set())


def test_no_other_room_knows_the_family() -> None:
    found = {name: known(name, text) for name, text in modules()}
    assert {name: each for name, each in found.items() if each} == {}


def test_every_exception_is_needed() -> None:
    texts = dict(modules())
    assert all("coefficient" in words(texts[name]) for name in GENERAL)
    assert all(each <= words(texts[name]) for name, each in DEFAULTS.items())


def test_the_list_finds_the_familys_words() -> None:
    """The other way round: in its own rooms nearly every module has one."""
    own = [path.read_text(encoding="utf-8") for home in HOME for path in (PACKAGE / home).glob("*.py")]
    assert sum(1 for text in own if words(text)) >= 0.8 * len(own)
