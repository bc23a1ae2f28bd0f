"""The source of helpers as one port needs it: without the arguments that none of its calls states, and the branches
for these."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

from wdport.porting.lowering import helpers


def pruned_source(name: str, texts: Sequence[str]) -> str:
    """The source of a helper for the calls in these texts."""
    source = inspect.getsource(getattr(helpers, name)).rstrip()
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    calls = [node for text in texts for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name]  # fmt: skip
    arguments, defaults = function.args.args, function.args.defaults
    optional = dict(zip([one.arg for one in arguments[len(arguments) - len(defaults) :]], defaults, strict=True))
    stated = [_stated(node, [one.arg for one in arguments]) for node in calls]
    loops = [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While, ast.comprehension))]
    changed = {node.id for loop in loops for node in ast.walk(loop)
               if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    absent = {key: value for key, value in optional.items() if isinstance(value, ast.Constant)
              and key not in changed and not any(key in one for one in stated)}  # fmt: skip
    if not calls or not absent:
        return source
    function.args.args = [one for one in arguments if one.arg not in absent]
    function.args.defaults = [value for key, value in optional.items() if key not in absent]
    pruned = _Pruned(absent)
    function.body = pruned.block(function.body)
    return ast.unparse(function)


def _stated(call: ast.Call, names: Sequence[str]) -> set[str]:
    return {*names[: len(call.args)], *(one.arg for one in call.keywords if one.arg)}


class _Pruned(ast.NodeTransformer):
    """Replaces arguments by constants until they are assigned to, and conditions of constants by the branch taken."""

    def __init__(self, constants: dict[str, ast.Constant]) -> None:
        self._constants = dict(constants)

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements up to the first that returns."""
        result: list[ast.stmt] = []
        for statement in statements:
            visited = self.visit(statement)
            result += visited if isinstance(visited, list) else [visited]
            if result and isinstance(result[-1], ast.Return):
                break
        return result

    def visit_Name(self, node: ast.Name) -> Any:
        return self._constants.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        for target in node.targets:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name):
                    self._constants.pop(inner.id, None)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if (truth := _truth(test)) is not None:
            return self.visit(node.body if truth else node.orelse)
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_If(self, node: ast.If) -> Any:
        test = self.visit(node.test)
        if (truth := _truth(test)) is not None:
            return self.block(node.body if truth else node.orelse)
        return ast.If(test, self.block(node.body), self.block(node.orelse))


def _truth(test: ast.expr) -> bool | None:
    """Whether a condition of constants holds; ``None`` if it is not one."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and (inner := _truth(test.operand)) is not None:
        return not inner
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        pair = test.left, test.comparators[0]
        if isinstance(pair[0], ast.Constant) and isinstance(pair[1], ast.Constant):
            return (pair[0].value is pair[1].value) == isinstance(test.ops[0], ast.Is)
    return None
