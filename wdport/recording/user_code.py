"""The user's functions: where they are found, and what is said of those that are not."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import TYPE_CHECKING, Any

from .errors import Refusal, one_line
from .runs import module_names

if TYPE_CHECKING:
    from .shared_types import Factory


def find_factory(target: str) -> Factory:
    """As :func:`find_function`, where torch is installed; otherwise raises :class:`Refusal`."""
    split_target(target)
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise Refusal(5, target, f"recording needs {error.name}, which is not installed", "install torch") from None
    return find_function(target)


def find_function(target: str) -> Factory:
    """The function that ``module:name`` names, in the current folder or the environment; with ``module:name/path``, one
    that returns this part of the model. Raises :class:`Refusal`."""
    name, attributes = split_target(target)
    attributes, _, path = attributes.partition("/")
    search_modules_in(os.getcwd())
    resolved = _imported(name, target)
    try:
        for attribute in attributes.split("."):
            resolved = getattr(resolved, attribute)
    except AttributeError as error:
        near = difflib.get_close_matches(
            attributes, [public for public in dir(sys.modules.get(name)) if public[:1] != "_"], 1
        )
        fix = f"did you mean {name}:{near[0]}?" if near else "name a function of this module"
        raise Refusal(2, target, f"{name} has no {attributes}", fix) from error
    if not callable(resolved):
        raise Refusal(2, target, "is not a function", "name a function that returns the model")
    factory: Factory = resolved
    return _part_of(factory, path, target) if path else factory


class _FromSource(SourceFileLoader):
    """Compiles a module whenever it is imported. Python takes a compiled file for the source's if the source has the
    same time, in seconds, and size, which an edit may keep; and some compiled files without looking at the source."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_user_finder = FileFinder.path_hook(
    (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES)
)


@functools.lru_cache(maxsize=None)
def _others() -> tuple[str, ...]:
    """The folders of Python's library and of wdport."""
    return (sysconfig.get_path("stdlib"), *getattr(sys.modules.get("wdport"), "__path__", ()))


def _find_user_modules(folder: str) -> Any:
    """A hook of ``sys.path_hooks`` for folders that hold a user's modules, not installed ones or wdport."""
    inside = any(f"{folder}{os.sep}".startswith(f"{one}{os.sep}") for one in _others())
    if inside or re.search(r"[\\/](site|dist)-packages\b", folder):
        raise ImportError(path=folder)
    return _user_finder(folder)


def search_modules_in(folder: str) -> None:
    """Look for modules in this folder first, unless Python searches it already, and compile all users' modules from
    their sources."""
    if folder not in sys.path:
        # A console script finds modules in its own folder, not in the current one.
        sys.path.insert(0, folder)
    if _find_user_modules not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_user_modules)
        sys.path_importer_cache.clear()


def _imported(name: str, target: str) -> Any:
    """The module of this name; raises :class:`Refusal`, which names the file and line whose import fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A process that runs a port alone refuses PyTorch, and says so.
        _, where, why = str(error).partition(" where ")
        if why:
            what = f"no module named {error.name}{where}{why}"
            raise Refusal(2, target, what, "import it in another module") from error
        if error.name and f"{name}.".startswith(f"{error.name}."):
            fix = "run in your project's folder and environment"
            raise Refusal(2, target, f"no module named {error.name}", fix) from error
        fix = "install it, or run in your project's folder and environment"
        raise Refusal(2, target, f"importing it raises {_at_line(error)}", fix) from error
    except ImportError as error:
        raise Refusal(2, target, f"importing it raises {_at_line(error)}", "correct the import") from error
    except (Exception, SystemExit) as error:  # a script without a main guard reads the command line and exits
        raise Refusal(4, target, f"importing it raises {_at_line(error)}", "correct your module") from error


def _at_line(error: BaseException) -> str:
    """An error's text, with the last line of the user's own files that led to it; a syntax error names its own."""
    library = os.path.dirname(os.__file__)
    lines = [
        f" ({os.path.basename(path)}, line {line})"
        for path, line in ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
        if path != __file__ and os.path.isfile(path) and not path.startswith(library) and "site-packages" not in path
    ]
    return one_line(error) + ("" if isinstance(error, SyntaxError) else "".join(lines[-1:]))


def _part_of(factory: Factory, path: str, target: str) -> Factory:
    @functools.wraps(factory)
    def part(*args: Any, **kwargs: Any) -> Any:
        built = factory(*args, **kwargs)
        model = built[0] if isinstance(built, tuple) else built
        try:
            return model.get_submodule(path)
        except AttributeError:
            near = difflib.get_close_matches(path, module_names(model), 1)
            fix = f"did you mean {near[0]}?" if near else "name a module of the model, such as encoder.layers.0"
            raise Refusal(2, target, f"the model has no part {path}", fix) from None

    return part


def split_target(target: str) -> tuple[str, str]:
    """The module's name, and what follows the colon; raises :class:`Refusal`."""
    name, _, attributes = target.partition(":")
    is_path = "/" in name or name.endswith(".py")
    if name and attributes and not is_path:
        return name, attributes
    fix = "write for example my_project.model:build"
    module = re.sub(r"\.py$", "", os.path.normpath(name)).replace("/", ".") if name else ""
    if all(map(str.isidentifier, module.split("."))):
        fix = f"write {module}:{attributes or 'NAME, with the name of the function that builds the model'}"
    raise Refusal(2, target, "is not MODULE:FUNCTION", fix)


def takes_path(factory: Factory, target: str) -> bool:
    """Whether a factory requires the checkpoint's path; raises :class:`Refusal` if it requires more arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        fix = "give a function without required arguments, or with only the path"
        raise Refusal(2, target, f"needs the arguments {names}", fix)
    return bool(needed)
