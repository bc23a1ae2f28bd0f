"""The source of a module in; its guards out, and the module without one of them.

A guard is a ``raise`` of an error of ours. It is deleted with the ``if`` that holds nothing else; in an ``except`` the
foreign exception goes on instead; elsewhere nothing happens in its place.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOMS: Final = ("checkpoint", "mapping", "conversion", "files", "data", "training", "exporting", "generation",
                "sampling")  # fmt: skip
OURS: Final = {"Fault", "UnsupportedTensor", "InputError", "MisfitError", "UsageError", "MachineError",
               "IncompleteError", "InternalError", "NameCollision"}  # fmt: skip
"""Classes that a refusal is raised as."""


@dataclass(frozen=True)
class Guard:
    """The guard ``number`` of a module; ``line`` is where it raises."""

    path: Path
    number: int
    line: int
    function: str
    text: str

    @property
    def key(self) -> str:
        """What it is known by from run to run, whatever stands above it."""
        return f"{self.path.parent.name}/{self.path.name}:{self.function}:{self.text}"


def _raises_ours(node: ast.AST) -> bool:
    """Whether this is a ``raise`` of one of our errors, made there or by a function that makes one."""
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
    return name in OURS or (isinstance(node.exc, ast.Call) and not name[:1].isupper() and name != "type")


class _Deletion(ast.NodeTransformer):
    """Deletes the guard ``wanted`` and names all of them."""

    def __init__(self, path: Path, wanted: int) -> None:
        self.path, self.wanted = path, wanted
        self.found: list[Guard] = []
        self._inside: list[str] = []
        self._handlers = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._scope(node)

    def _scope(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        self._inside.append(node.name)
        outside, self._handlers = self._handlers, 0
        self.generic_visit(node)
        self._handlers = outside
        self._inside.pop()
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self._handlers += 1
        self.generic_visit(node)
        self._handlers -= 1
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """An ``if`` goes with its guard where nothing else stands in it, so that its condition is not asked either."""
        before = len(self.found)
        self.generic_visit(node)
        alone = len(node.body) == 1 and not node.orelse and before + 1 == len(self.found)
        return ast.copy_location(ast.Pass(), node) if alone and before == self.wanted and not self._handlers else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if not _raises_ours(node):
            return node
        number = len(self.found)
        self.found.append(Guard(self.path, number, node.lineno, ".".join(self._inside), ast.unparse(node)))
        if number != self.wanted:
            return node
        instead = ast.Raise() if self._handlers else ast.Pass()
        return ast.copy_location(instead, node)


def guards_in(path: Path) -> list[Guard]:
    """Every guard of a module, in order."""
    finder = _Deletion(path, -1)
    finder.visit(ast.parse(path.read_text(encoding="utf-8")))
    return finder.found


def without(guard: Guard) -> ast.Module:
    """The module with this guard deleted, every other statement on its line."""
    tree = ast.parse(guard.path.read_text(encoding="utf-8"))
    changed: ast.Module = _Deletion(guard.path, guard.number).visit(tree)
    return ast.fix_missing_locations(changed)


def all_guards(package: Path, rooms: tuple[str, ...] = ROOMS) -> list[Guard]:
    """The guards of some rooms of the package."""
    return [guard for room in rooms for path in sorted((package / room).rglob("*.py")) for guard in guards_in(path)]
