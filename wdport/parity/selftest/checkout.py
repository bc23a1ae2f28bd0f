"""All known faults, which a source checkout has next to the package, in ``parity_tests/faults``.

They are code, so they are looked for only next to this package, never in the current folder.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from wdport.compare.activities import Say
    from wdport.families.faults import Bounds
    from wdport.parity.selftest.result import GroupResult, Variant

ROOT = Path(__file__).resolve().parents[3]
"""The folder that the package is in."""

WHERE: Final = "run make selftest in a checkout of https://github.com/wdport/wdport"
"""How to try all known faults."""

_PARENT, _MODULE = "parity_tests", "parity_tests.faults"


class AllFaults(Protocol):
    """What the self-test uses of ``parity_tests.faults``."""

    FAMILIES: tuple[str, ...]
    """The families with known faults."""

    def run_faults(self, family: str, held: Bounds, say: Say) -> tuple[list[GroupResult], list[Variant], bool]:
        """The results of all faults and correct variants of a family, or of all if it is ""; and whether causes are
        looked for. Raises :class:`wdport.UsageError` if the family has no known faults."""


def all_faults() -> AllFaults | None:
    """The faults of the checkout that this package is in; ``None`` if it is not in one."""
    home = ROOT / _PARENT / "__init__.py"
    if not (ROOT / "pyproject.toml").is_file() or not (home.parent / "faults" / "__init__.py").is_file():
        return None
    if _PARENT not in sys.modules:
        # By its path, since an import could find another parity_tests in the current folder.
        spec = PathFinder.find_spec(_PARENT, [str(ROOT)])
        if spec is None or spec.loader is None:
            return None
        sys.modules[_PARENT] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_PARENT])
    if Path(sys.modules[_PARENT].__file__ or "").resolve() != home:
        return None
    return cast(AllFaults, import_module(_MODULE))
