"""Bind an edit to a definition: its module, its qualified name, and a fragment of its code.

The fragment is one of the definition without its docstrings as :func:`ast.unparse` writes it. Neither formatting nor
comments nor the place of the definition within its module matter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from textwrap import indent
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


def edited(source: str, name: str, old: str, new: str) -> str:
    """The source of a module with ``new`` in place of ``old`` in the definition ``name``, such as ``Class.method``.

    Raises ``ValueError`` if there is not one such definition, or if ``old`` is not in it once.
    """
    node = definition(ast.parse(source), name)
    text = ast.unparse(bare(node))
    if (count := text.count(old)) != 1:
        raise ValueError(f"its code is in {name} {count} times")
    lines = source.splitlines(keepends=True)
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    made = indent(text.replace(old, new), " " * node.col_offset)
    return "".join([*lines[: first - 1], f"{made}\n", *lines[node.end_lineno :]])


def bare(tree: Node) -> Node:
    """The tree without its docstrings, which changes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_text(each)] or [ast.Pass()]
    return tree


def definition(tree: ast.Module, name: str) -> Definition:
    """The function, class or assignment of this qualified name; raises ``ValueError`` if there is not one."""
    outer: list[Definition] = []
    body: Iterable[ast.stmt] = tree.body
    for part in name.split("."):
        outer = [node for node in body if isinstance(node, Definition) and part in _names(node)]
        if len(outer) != 1:
            raise ValueError(f"{name} is defined {len(outer)} times")
        body = getattr(outer[0], "body", [])
    return outer[0]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names(node: Definition) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    each = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [name.id for name in each if isinstance(name, ast.Name)]
