"""Runs the blocks of a page in a folder of its own, in order; what they should have done and did not is a fault."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tests.docs.blocks import ROOT, Block, Command, commands_of
from tests.docs.compare import difference
from tests.docs.files import MAKERS, PAGES, names_of
from tests.schemas.compared import COMPARED
from tests.schemas.held import hold
from wdport.cli.main import main
from wdport.families.registry import find_family
from wdport.mapping.table import parse_table
from wdport.parity.policy.policy import read_policy

Check = Callable[["Run", Block], None]
MOST_TIME = 1800
"""Seconds for one command, on a busy machine."""


class Fault(AssertionError):
    """A block that does not do what the page says."""


@dataclass
class Run:
    """A page that is being run; ``updates`` are the printed lines by command, where they differ from the page."""

    page: str
    folder: Path
    names: dict[str, Any]
    update: bool = False
    updates: dict[int, list[str]] = field(default_factory=dict)


@contextmanager
def prepared(page: str, folder: Path, sources: Path | None = None, update: bool = False) -> Iterator[Run]:
    """The page's folder with its files, as the current folder; files of the same name in ``sources`` come first."""
    before, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        for name in PAGES.get(page, ()):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if sources and (sources / name).exists():
                target.symlink_to((sources / name).resolve())
            else:
                MAKERS[name](target)
        yield Run(page, folder, {"__name__": "__page__", **names_of(page)}, update)
    finally:
        os.chdir(before)
        sys.path[:] = path
        forget_modules(folder, modules)


def forget_modules(folder: Path, others: Collection[str] = ()) -> None:
    """Import the files of a folder again where they are imported next, but for modules with these names."""
    for name in set(sys.modules).difference(others):
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def run(block: Block, on: Run) -> None:
    """Run one block; raises :class:`Fault`."""
    if block.written:
        compare_file(on, block)
        return
    try:
        RUNNERS[block.language](on, block)
    except KeyError as error:
        if block.language not in RUNNERS:
            raise Fault(f"{block.where}: nothing is known to do with a block of {block.language!r}") from error
        raise


def console(on: Run, block: Block) -> None:
    for command in commands_of(block):
        code, out, error = execute(command.text, on)
        where = f"{on.page}:{command.line}: $ {command.text}"
        if code != block.code:
            raise Fault(f"{where}\nexit code {code}, the page says {block.code}\n{out[-2000:]}{error[-2000:]}")
        compare(on, command, where, (out + error if code else out).splitlines())


def compare(on: Run, command: Command, where: str, printed: Sequence[str]) -> None:
    if not any(line.strip() for line in command.shown):
        return
    if not (fault := difference(command.shown, printed)):
        if on.update and "..." not in command.shown:
            on.updates[command.line] = list(printed)
        return
    if not on.update or "..." in command.shown:
        raise Fault(f"{where}\n{fault}\n(python -m tests.docs --update {on.page} writes what the command prints)")
    on.updates[command.line] = list(printed)


def compare_file(on: Run, block: Block) -> None:
    """A file that a command wrote, whose text is the block's; ``...`` alone in a line stands for any lines."""
    text = Path(block.written).read_text(encoding="utf-8")
    parts = re.split(r"^\.\.\.\n", block.text, flags=re.MULTILINE)
    if on.update and len(parts) == 1:
        on.updates[block.line - 1] = text.splitlines()
    elif not re.fullmatch(r"(?:.*\n)?".join(map(re.escape, parts)), text, re.DOTALL):
        raise Fault(f"{block.where}: {block.written} is\n{text}\n(python -m tests.docs --update {on.page} writes it)")


def execute(text: str, on: Run) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command; `wdport` runs in this process."""
    words = shlex.split(text, comments=True)
    if words[0] == "cd":
        os.chdir(words[1])
        sys.path.insert(0, str(Path.cwd()))
        return 0, "", ""
    if words[0] == "wdport":
        out, error = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            code = main(words[1:])
        return code, out.getvalue(), error.getvalue()
    program = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]}
    if words[0] == "sed":
        forget_modules(on.folder)
        program["sed"] = ["sed"]
    if words[0] not in program:
        raise Fault(f"{on.page}: $ {text}\nmark this block: <!-- not run: REASON -->")
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([*program[words[0]], *words[1:]], capture_output=True, text=True, timeout=MOST_TIME,
                          env={**os.environ, "PYTHONPATH": search})  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def python(on: Run, block: Block) -> None:
    if block.file:
        write(on, block)
    elif on.page.endswith("ci.md") and "def test_" in block.text:  # tests for the plugin, which runs them
        write(on, block, "test_of_the_page.py")
        compile(block.text, block.where, "exec")
    else:
        exec(compile("\n" * (block.line - 1) + block.text, str(ROOT / block.page), "exec"), on.names)


def write(on: Run, block: Block, name: str = "") -> None:
    """Keep a block as the file that its first line names."""
    path = Path(name or block.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def yaml_text(on: Run, block: Block) -> None:
    if block.file:
        write(on, block)
    told = yaml.safe_load(block.text)
    schema = re.match(r"# yaml-language-server: \$schema=\S+/(\S+)\.schema\.json\n", block.text)
    if schema:
        hold(schema[1], told)
    if not (of_a_format(on, block, told) or (schema and schema[1] != "mapping-table")):
        table_or_workflow(told, block)


def of_a_format(on: Run, block: Block, told: Any) -> bool:
    """Whether the page is that of a format; then the format's own reader has read the document."""
    name = Path(block.page).stem
    if name.startswith("configuration-"):
        family = name.removeprefix("configuration-")
        find_family(family, family).read_settings(told, block.where)
    elif name in COMPARED:
        COMPARED[name].read(told, on.folder)
    return name in COMPARED


def table_or_workflow(told: dict[str, Any], block: Block) -> None:
    if "jobs" in told:
        workflow(told, block)
    elif "repos" in told:
        hooks(told, block)
    elif {"layers", "tensors", "tied", "sections"} & set(told):
        head = "" if "format" in told else "format: 2\n"
        parse_table(f"{head}{block.text}".encode(), block.where)
    elif set(told) == {"sampling"}:
        sampled(block)
    else:
        raise Fault(f"{block.where}: a table, a workflow or hooks? {sorted(told)}")


def workflow(told: dict[str, Any], block: Block) -> None:
    """Inputs that a step gives to an action of ours are inputs that the action has."""
    actions = [path for path in (ROOT / "action.yml", ROOT / ".github/actions/verify/action.yml") if path.is_file()]
    known = set().union(*(yaml.safe_load(path.read_text())["inputs"] for path in actions))
    for job in told["jobs"].values():
        for step in job["steps"]:
            if not {"uses", "run"} & set(step):
                raise Fault(f"{block.where}: a step that neither uses nor runs anything: {step}")
            if "wdport" in step.get("uses", "") and (other := set(step.get("with", {})) - known):
                raise Fault(f"{block.where}: the action has no input {sorted(other)}")


def hooks(told: dict[str, Any], block: Block) -> None:
    """Hooks of ours exist; local ones name a command of ours."""
    ours = ROOT / ".pre-commit-hooks.yaml"
    known = {hook["id"] for hook in yaml.safe_load(ours.read_text())} if ours.is_file() else set()
    for repo in told["repos"]:
        for hook in repo["hooks"]:
            if repo["repo"] == "local":
                known_command(hook["entry"], block)
            elif hook["id"] not in known:
                raise Fault(f"{block.where}: there is no hook {hook['id']!r}")


def sampled(block: Block) -> None:
    """A `sampling:` section, read with the table of the example."""
    from wdport.families.registry import own_model

    table = (ROOT / "examples/points/flow.yaml").read_text().partition("sampling:")[0]
    Path("section.yaml").write_text(table + block.text)
    own_model("section.yaml", None, None, ())


def toml(on: Run, block: Block) -> None:
    if "tool" in tomllib.loads(block.text):  # pyproject.toml, for the plugin
        return write(on, block)
    path = Path("of-the-page.toml")
    path.write_text(block.text)
    read_policy(path, date.today())
    return None


def text(on: Run, block: Block) -> None:
    if any(line.startswith("$ ") for line in block.text.splitlines()):
        raise Fault(f"{block.where}: a command in a block of text; call the block console")


def json_text(on: Run, block: Block) -> None:
    of_a_format(on, block, json.loads(block.text))


def known_command(command: str, block: Block) -> None:
    """A `wdport` command has a verb and options that exist, and as many arguments as it must have."""
    import click

    from wdport.cli.execute import group

    words = shlex.split(command, comments=True)
    if words[0] != "wdport" or words == ["wdport", "--version"]:
        return
    context = click.Context(group, info_name="wdport", **group.context_settings)
    inner: click.Command = group
    try:
        while isinstance(inner, click.Group):
            words = words[1:]
            found = inner.get_command(context, words[0])
            if found is None:
                raise Fault(f"{block.where}: $ {command}\nthere is no command {words[0]!r}")
            inner = found
        inner.make_context(words[0], words[1:], parent=context)
    except click.ClickException as error:
        raise Fault(f"{block.where}: $ {command}\n{error.format_message()}") from error


RUNNERS: dict[str, Check] = {
    "console": console,
    "python": python,
    "yaml": yaml_text,
    "toml": toml,
    "text": text,
    "json": json_text,
}
