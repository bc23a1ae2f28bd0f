"""Write the declared options of `verify` into the plugin, the action and the documentation:
``python -m tests.option_surfaces``.

Every generated region is between two comments. Options keep their places in it; a new one comes after the one that
precedes it in the declaration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from wdport.base.options import Argument, CommandOnly, Declared, Elsewhere, options_of
from wdport.parity.verify_options import PairOptions, RunOptions

ROOT: Final = Path(__file__).parents[1]
BEGIN: Final = "options of verify: made by make options"
END: Final = "end of options"
WIDTH: Final = 116

DECLARED: Final = {each.title: each for request in (PairOptions, RunOptions) for each in options_of(request).values()
                   if not each.marker(CommandOnly)}  # fmt: skip
"""The options that the plugin and the action have, by their names there."""

Render = Callable[[Sequence[Declared]], Iterator[str]]


def kind(each: Declared) -> str:
    """How often the plugin takes an option."""
    elsewhere = each.marker(Elsewhere)
    if elsewhere and elsewhere.each_pair:
        return "pair"
    return "flag" if each.base is bool else "several" if each.repeats else "one"


def sentence(each: Declared, name: str) -> str:
    """The help of an option, other options written as ``name`` says."""
    elsewhere = each.marker(Elsewhere)
    text = " ".join(((elsewhere.help if elsewhere else "") or each.option.help).split())
    return re.sub(rf"--({'|'.join(DECLARED)})\b(?!-)", name, text)


def former(each: Declared) -> list[str]:
    """Its former names in the plugin and the action."""
    return [name.removeprefix("--") for name in each.option.former]


def metavar(each: Declared) -> str:
    """What stands for the value of an option; "" for a flag."""
    return "" if each.base is bool else each.metavar or ("N" if each.base is int else "TEXT")


def plugin_sentence(each: Declared) -> str:
    """The help of an option of the plugin."""
    text, bracket, default = sentence(each, r"--wdport-\1").partition(" [default")
    if kind(each) == "pair" and each.title not in ("checkpoint", "against"):
        text = f"{text.removesuffix('.')}; one per pair, in the order of the pairs."
    return text + bracket + default


def plugin(options: Sequence[Declared]) -> Iterator[str]:
    """Entries of ``OPTIONS``."""
    for each in options:
        name = f"    Option({json.dumps(each.title)}, "
        parts = wrap(plugin_sentence(each), WIDTH - len(name) - 4, drop_whitespace=False, break_on_hyphens=False)
        text = f"\n{' ' * len(name)}".join(json.dumps(part) for part in parts)
        more = [f"metavar={json.dumps(metavar(each))}"] if metavar(each) not in ("", "FILE") else []
        more += [f'kind="{kind(each)}"'] if kind(each) != "one" else []
        more += ["file=False"] if not each.option.files and each.base is not bool else []
        more += [f"former={json.dumps(name)}" for name in former(each)]
        rest = "".join(f", {argument}" for argument in more)
        if len(name + text.rpartition("\n")[2] + rest) > WIDTH:
            rest = f",\n{' ' * (len(name) - 1)}{rest[1:]}"
        yield f"{name}{text}{rest}),"


def inputs(options: Sequence[Declared]) -> Iterator[str]:
    """Inputs of the action."""
    for each in options:
        text, bracket, default = sentence(each, r"`\1`").partition(" [default")
        text += " `true` or `false`." if each.base is bool else " One per line." if each.repeats else ""
        yield f"  {each.title}:"
        yield f"    description: {json.dumps(text + bracket + default)}"
        yield f'    default: "{"false" if each.base is bool and not former(each) else ""}"'
        for name in former(each):
            yield f"  {name}:"
            yield f'    description: "The former name of `{each.title}`."'
            yield f'    deprecationMessage: "{name} is now called {each.title}"'
            yield '    default: ""'


def environment(options: Sequence[Declared]) -> Iterator[str]:
    """The environment of the action's script."""
    for each in options:
        sources = " || ".join(f"inputs.{name}" for name in (each.title, *former(each)))
        yield f"        {variable(each)}: ${{{{ {sources} }}}}"


def script(options: Sequence[Declared]) -> Iterator[str]:
    """Lines of the action's script that pass inputs to the command."""
    for each in options:
        if not each.marker(Argument):
            function = "flag" if each.base is bool else "each_line" if each.repeats else "one"
            yield f'        {function} --{each.title} "${variable(each)}"'


def variable(each: Declared) -> str:
    """The environment variable of an input."""
    return each.title.upper().replace("-", "_")


def plugin_table(options: Sequence[Declared]) -> Iterator[str]:
    """The table of the plugin's options."""
    yield from ("", "| option | entry | meaning |", "|---|---|---|")
    for each in options:
        option = f"--wdport-{each.title} {metavar(each)}".strip()
        yield f"| `{option}` | `wdport_{each.title.replace('-', '_')}` | {plugin_sentence(each)} |"
    yield ""


def action_table(options: Sequence[Declared]) -> Iterator[str]:
    """The table of the action's inputs."""
    yield from ("", "| input | meaning |", "|---|---|")
    several = [each for each in options if each.repeats]
    flags = [each for each in options if each.base is bool]
    single = [each for each in options if each not in several + flags]
    note = "by default, `converted` is the `.keras` file next to the checkpoint or the recording"
    for chosen, meaning in ((single, f"the same as the options of `wdport verify`; {note}"),
                            (several, "likewise, with one value per line"), (flags, "`true` or `false`")):  # fmt: skip
        yield f"| {', '.join(f'`{each.title}`' for each in chosen)} | {meaning} |"
    yield ""


SURFACES: Final[tuple[tuple[str, str, Render], ...]] = (
    ("pytest_wdport.py", r'Option\("([\w-]+)"', plugin),
    ("action.yml", r"^  ([\w-]+):$", inputs),
    ("action.yml", r"inputs\.([\w-]+)", environment),
    ("action.yml", r" --([\w-]+)", script),
    ("docs/ci.md", r"^\| `--wdport-([\w-]+)", plugin_table),
    ("docs/ci.md", r"`([\w-]+)`[,| ]", action_table),
)
"""The generated regions in their order: the file, how a name stands there, and what writes it."""


def listed(region: str, pattern: str) -> list[Declared]:
    """The declared options in the order of a region, new ones after those that precede them in the declaration."""
    names = list(dict.fromkeys(name for name in re.findall(pattern, region, re.MULTILINE) if name in DECLARED))
    before = ""
    for name in DECLARED:
        if name not in names:
            names.insert(names.index(before) + 1 if before else 0, name)
        before = name
    return [DECLARED[name] for name in names]


def written() -> dict[Path, str]:
    """Every file that has generated regions, with its text, if it is in this copy of the sources; raises ``ValueError``
    for one that lacks its comments."""
    found: dict[Path, str] = {}
    done: dict[Path, int] = {}
    for name, pattern, render in SURFACES:
        path = ROOT / name
        if not path.is_file():
            continue
        text = found.get(path) or path.read_text(encoding="utf-8")
        begin = text.index("\n", text.index(BEGIN, done.get(path, 0))) + 1
        end = text.rindex("\n", 0, text.index(END, begin)) + 1
        lines = "".join(f"{line}\n" for line in render(listed(text[begin:end], pattern)))
        found[path] = text[:begin] + lines + text[end:]
        done[path] = begin + len(lines)
    return found


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
