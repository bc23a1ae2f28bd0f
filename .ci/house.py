"""Sizes and shapes of the code, as numbers to compare: ``make house``; ``make house LIST=NAME`` prints what one counts.

``--check``, a part of ``make lint``, refuses names that say nothing and class names that stand in several modules.

Lines are all lines. A binding is a parameter or a name that is assigned to; it is vague if it is one of :data:`VAGUE`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

VAGUE = frozenset({
    "told", "found", "made", "given", "seen", "wanted", "taken", "shown", "kept", "said", "known", "own", "whole",
    "alone", "off", "each", "at", "how", "many", "most",
})  # fmt: skip
"""Names that say nothing of what they hold."""

INTERFACES = {
    "wdport/uses/cli/sample.py": {"known"},
    "wdport/uses/cli/results.py": {"known"},
    "wdport/compare/setting_values.py": {"found"},
    "wdport/conversion/convert.py": {"shown"},
    "wdport/conversion/manifest_schema.py": {"kept"},
    "wdport/conversion/prepare.py": {"known", "own"},
    "wdport/families/custom.py": {"shown"},
    "wdport/uses/masked_lm/family.py": {"kept"},
    "wdport/uses/generation/api.py": {"taken"},
    "wdport/mapping/kinds/kind.py": {"how"},
    "wdport/parity/recording_file.py": {"made"},
    "wdport/porting/divergence.py": {"wanted"},
    "wdport/parity/proving/suggest.py": {"found", "wanted"},
    "wdport/recording/conditioning.py": {"made"},
    "wdport/recording/inputs.py": {"alone"},
    "wdport/uses/sampling/api.py": {"known"},
    "wdport/uses/sampling/request.py": {"known"},
    "wdport/uses/sampling/sampler.py": {"given"},
}
"""Such names that users rely on: options, keys of documents, fields of public results and of a family's role."""

SEVERAL = {
    "Block", "Blocks", "Gate", "Level", "Mid", "NoiseSchedule", "RMSNorm", "TS2Vec", "WaveletDiff",
    "Config", "Network", "Sampler",
    "Fault", "Pair", "Port", "Verdict",
}  # fmt: skip
"""Classes whose name stands in several modules, and may: layers of networks as their papers and libraries call them, on
either side; a family's configuration, and what the loader of exported files has, which is copied elsewhere; and results
that are public under the name of what they hold."""

USES = "wdport.uses."
"""What one does with a ported model; the core never imports it."""

MANY = 7
"""Parameters of a function, without self, that are not too many."""

SHORT = 80
"""Lines of a module that is worth a file."""

DIRECTIVE = re.compile(r"#\s*(type:|noqa|fmt:|pragma|!)")
"""Comments that are for tools."""


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node

    @property
    def place(self) -> str:
        return str(self.path.relative_to(ROOT))


def modules(folder: str) -> list[Module]:
    """The Python files below a folder of the repository."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path) for path in paths]


def bindings(module: Module) -> Iterator[str]:
    """Every name that is bound, as often as it is."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of parameters without self and cls."""
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"])) + (given.vararg is not None) + (given.kwarg is not None)


def inner_imports(module: Module) -> Iterator[str]:
    """Imports of the package within functions, each statement once."""
    found = {
        node
        for function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "wdport"
    }
    yield from (f"{module.place}:{node.lineno} {node.module}" for node in sorted(found, key=lambda node: node.lineno))


def imported(module: Module, known: frozenset[str]) -> set[str]:
    """The modules of the package that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & known) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name if name in known else f"{name}.__init__" for name in found} & known


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next; the longest such row."""

    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        sys.exit(f"modules import one another: {' -> '.join(error.args[1])}")
    below: dict[str, list[str]] = {}
    for name in order:  # after what it imports
        below[name] = [name, *max((below[each] for each in sorted(graph[name])), key=len, default=[])]
    return max((below[name] for name in sorted(below)), key=len)


def twice(package: Iterable[Module]) -> dict[str, list[str]]:
    """Names of classes that stand in two modules or more, with the modules."""
    places: defaultdict[str, set[str]] = defaultdict(set)
    for module in package:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module.place)
    return {name: sorted(found) for name, found in sorted(places.items()) if len(found) > 1}


def comments(module: Module) -> int:
    """Comments that are for readers."""
    with module.path.open("rb") as file:
        found = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return sum(DIRECTIVE.match(token.string) is None for token in found)


def measure() -> tuple[dict[str, float], dict[str, list[str]]]:
    """The numbers, and what each of them counts where that is a list."""
    package, tests, parity = (modules(folder) for folder in ("wdport", "tests", "parity_tests"))
    lines = sum(module.lines for module in package)
    names = Counter(name for module in package for name in bindings(module))
    vague = {name: count for name, count in names.most_common() if name in VAGUE}
    known = frozenset(module.name for module in package)
    public = {"wdport.__init__", "wdport.__main__"}
    graph = {module.name: imported(module, known) - public for module in package if module.name not in public}
    importers = Counter(name for found in graph.values() for name in found)
    lists = {
        "class names in several modules": [f"{name}: {', '.join(found)}" for name, found in twice(package).items()],
        "imports within functions": [place for module in package for place in inner_imports(module)],
        f"functions with over {MANY} parameters": [
            f"{module.place}:{function.lineno} {function.name} ({parameters(function)})"
            for module in package
            for function in module.functions()
            if parameters(function) > MANY
        ],
        f"modules under {SHORT} lines with one importer": [
            f"{module.place} ({module.lines})"
            for module in package
            if module.lines < SHORT and importers[module.name] == 1 and module.path.name != "__init__.py"
        ],
        "longest chain of imports": longest_chain(graph),
        "vague bindings": [f"{name} {count}" for name, count in vague.items()],
        "type: ignore": _having(package, r"# type: ignore"),
        "Any": _having(package, r"\bAny\b(?!,|$)"),
    }
    numbers: dict[str, float] = {
        "lines of wdport": lines,
        "lines of its core": sum(module.lines for module in package if not module.name.startswith(USES)),
        "lines of wdport.uses": sum(module.lines for module in package if module.name.startswith(USES)),
        "files of wdport": len(package),
        "lines of tests": sum(module.lines for module in tests),
        "lines of parity_tests": sum(module.lines for module in parity),
        "vague bindings, %": round(100 * sum(vague.values()) / names.total(), 2),
        "comments per 1000 lines": round(1000 * sum(map(comments, package)) / lines, 1),
    }
    return numbers | {name: len(found) for name, found in lists.items() if name != "vague bindings"}, lists


def _having(package: Iterable[Module], pattern: str) -> list[str]:
    """The lines that have a pattern, by their places."""
    search: Callable[[str], object] = re.compile(pattern).search
    return [
        f"{module.place}:{number}"
        for module in package
        for number, line in enumerate(module.text.splitlines(), 1)
        if search(line) and not line.lstrip().startswith(("from typing", "import"))
    ]


def violations() -> list[str]:
    """Vague names and class names in several modules that are not stated above, and statements that nothing needs."""
    package = modules("wdport")
    vague = {module.place: {name for name in bindings(module) if name in VAGUE} for module in package}
    several = twice(package)
    return [
        *(f"{place}: {name!r} says nothing of what it holds"
          for place, names in vague.items() for name in sorted(names - INTERFACES.get(place, set()))),
        *(f"{', '.join(places)}: class {name} stands in several modules"
          for name, places in several.items() if name not in SEVERAL),
        *(f"{__file__}: INTERFACES has {name!r} of {place}, which is not there"
          for place, names in INTERFACES.items() for name in sorted(names - vague.get(place, set()))),
        *(f"{__file__}: SEVERAL has {name}, which stands once" for name in sorted(SEVERAL - set(several))),
    ]  # fmt: skip


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--list", metavar="NAME", help="print what a number counts; a part of its name is enough")
    parser.add_argument(
        "--check", action="store_true", help="print names that say nothing or stand twice; exit 1 for any"
    )
    arguments = parser.parse_args()
    if arguments.check:
        lines = violations()
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return bool(lines)
    numbers, lists = measure()
    if arguments.list:
        names = [name for name in lists if arguments.list in name]
        if len(names) != 1:
            parser.error(f"--list: {arguments.list!r} is not one of: {'; '.join(lists)}")
        text = "\n".join(lists[names[0]])
    elif arguments.json:
        text = json.dumps(numbers, indent=1)
    else:
        text = "\n".join(f"{name:<44} {value:>8g}" for name, value in numbers.items())
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
