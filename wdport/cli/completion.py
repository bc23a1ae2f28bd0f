"""Tab completion in bash, zsh and fish: commands, options and their values by click, files by type.

``eval "$(_WDPORT_COMPLETE=bash_source wdport)"`` switches it on, see docs/completion.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from glob import escape, glob
from typing import Any, ClassVar, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from wdport.base.errors import UsageError
from wdport.checkpoint.hub import find_checkpoint

VARIABLE: Final = "_WDPORT_COMPLETE"

CHECKPOINTS: Final = (".ckpt", ".pt", ".pth", ".bin", ".safetensors", ".index.json")
CONVERTED: Final = (".keras", ".safetensors", ".weights.h5", ".npz", ".orbax")
TABLES: Final = (".yaml", ".yml")
FOLDERS: Final = ("/",)
"""With which no file ends."""


class FilePath(click.types.StringParamType):
    """A file name, completed to folders and to files with certain suffixes; any file if there are none. An error calls
    it the ``phrase``. With ``hub``, it may be the name of a checkpoint in the cache of the Hugging
    Face Hub, which is fetched into it with ``fetch``."""

    name = "file"

    def __init__(self, endings: Iterable[str] = (), phrase: str = "a file", hub: bool = False, fetch: bool = False
    ) -> None:  # fmt: skip
        self.endings, self.phrase, self.hub, self.fetch = tuple(dict.fromkeys(endings)), phrase, hub, fetch

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            name = max(param.opts, key=len) if isinstance(param, click.Option) else "-"
            raise UsageError(name, "standard input and output are not used for this", "give the name of a file")
        text = str(os.fspath(value))
        return find_checkpoint(text, self.fetch) if self.hub else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name, type="path") for name in matching(incomplete, self.endings)]


class Suggested(click.types.StringParamType):
    """Any text, completed to known values; with ``several``, values separated by commas."""

    name = "text"

    def __init__(self, values: Callable[[], Iterable[str]], several: bool = False) -> None:
        self._values, self._several = values, several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        previous = before.split(",")
        matches = (value for value in self._values() if value.startswith(begun) and value not in previous)
        return [CompletionItem(f"{before}{comma}{value}") for value in matches]


def matching(begun: str, endings: tuple[str, ...]) -> list[str]:
    """The folders, with a trailing slash, and the files that complete a word; hidden ones if it begins with a dot.

    A leading ``~`` is kept.
    """
    folder = begun[: begun.rfind("/") + 1]
    paths = sorted(glob(f"{escape(os.path.expanduser(folder) + begun.removeprefix(folder))}*"))
    names = [(f"{folder}{os.path.basename(path)}", os.path.isdir(path)) for path in paths]
    return [name + "/" * is_folder for name, is_folder in names if is_folder or name.endswith(endings or "")]


@add_completion_class
class _Bash(BashComplete):
    """Words with spaces stay whole, and no space is added after a folder; works from bash 4.4 on."""

    source_template: ClassVar[str] = """\
%(complete_func)s() {
    local IFS=$'\\n' line kind value
    COMPREPLY=()
    while read -r line; do
        kind=${line%%%%,*} value=${line#*,}
        [[ $kind == path ]] && compopt -o filenames 2>/dev/null && value=${value%%/}
        COMPREPLY+=("$value")
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Bash passes the ``=`` of ``--option=value`` as a separate word."""
        words, begun = super().get_completion_args()
        return [word for word in words if word != "="], "" if begun == "=" else begun


class _WholeWords(ShellComplete):
    """For shells that replace the whole of ``--option=value``."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if option.startswith("--") and equals:
            for item in items:
                item.value = f"{option}={item.value}"
        return items


@add_completion_class
class _Zsh(_WholeWords, ZshComplete):
    """As click's, with files completed by their kind."""

    source_template: ClassVar[str] = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a lines plain described files folders
    local kind value help
    (( ! $+commands[%(prog_name)s] )) && return 1
    lines=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    for kind value help in ${lines}; do
        if [[ $kind == path && $value == */ ]]; then
            folders+=("$value")
        elif [[ $kind == path ]]; then
            files+=("$value")
        elif [[ $help == _ ]]; then
            plain+=("$value")
        else
            described+=("${value//:/\\\\:}":"$help")
        fi
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
    (( $#files )) && compadd -U -f -V unsorted -a files
    (( $#folders )) && compadd -U -f -S '' -V unsorted -a folders
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


@add_completion_class
class _Fish(_WholeWords, FishComplete):
    """As click's, with files completed by their kind."""

    source_template: ClassVar[str] = """\
function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) \
%(prog_name)s)
    for line in $response
        set -l parts (string split -m 1 "," $line)
        echo $parts[2]
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
