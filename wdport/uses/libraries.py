"""The optional libraries whose released classes are references: diffusers and transformers, each an extra of wdport."""

from __future__ import annotations

import importlib
from typing import Any

from wdport.base.errors import MachineError, printable


def released_class(library: str, name: str) -> Any:
    """The class ``name`` of a library, whose extra has the library's name.

    Raises :class:`MachineError` if the library or torch is not installed, or the installed release lacks the class.
    """
    what, fix = f"its {name} is the reference", f"pip install 'wdport[{library}]'"
    try:
        importlib.import_module("torch")  # without it, the libraries offer classes that cannot be built
        return getattr(importlib.import_module(library), name)
    except ModuleNotFoundError as error:
        missing = (error.name or library).partition(".")[0]
        if missing == library:
            raise MachineError(library, f"is not installed, and {what}", fix) from None
        raise MachineError(library, f"needs {missing}, which is not installed, and {what}", fix) from None
    except AttributeError:
        raise MachineError(library, f"{release(library)} has no {name}, and {what}", fix) from None
    except (ImportError, RuntimeError) as error:  # RuntimeError: the libraries raise it for a module that fails
        why = printable(str(error).strip().partition("\n")[0], 100)
        raise MachineError(library, f"cannot be imported ({why}), and {what}", "reinstall it") from None


def release(library: str) -> str:
    """The installed release of a library that can be imported."""
    return str(importlib.import_module(library).__version__)
