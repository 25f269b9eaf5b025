"""completion: what lets bash and zsh complete commands, options and ids, made from the parser."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.parser import build_parser, commands_of
from sandbox_kernel.cli.report import print_json

__all__ = ["completion", "script"]

_OF_THIS_MACHINE = {"FILE", "FOLDER", "NOTEBOOK"}
_ENDS_OF_A_COPY = {"SOURCE", "DESTINATION"}

_BASH = r"""# Completion of "jupyter sandbox" and "jupyter-sandbox".
_jupyter_sandbox_of() {
    subcommands="" options="" valued="" words="" rest="" program=""
    case "$1" in
@CASES@
    esac
}

_jupyter_sandbox_complete() {
    local start=$1 at command="" word kind="" kinds="" after="" here=0
    local subcommands options valued words rest program
    local current="${COMP_WORDS[COMP_CWORD]}"
    _jupyter_sandbox_of ""
    at=$start
    while [ "$at" -lt "$COMP_CWORD" ] && [ -n "$subcommands" ]; do
        command="${command:+$command }${COMP_WORDS[at]}"
        _jupyter_sandbox_of "$command"
        at=$((at + 1))
        [ -n "$subcommands$options" ] || return 0
    done
    if [ -n "$subcommands" ]; then
        COMPREPLY=($(compgen -W "$subcommands --help" -- "$current"))
        return 0
    fi
    # The words before this one: which of them are values of options, and how many are not.
    while [ "$at" -lt "$COMP_CWORD" ]; do
        word="${COMP_WORDS[at]}"
        if [ -n "$after" ]; then
            after=""
        else
            case "$word" in
                --) kind=program ;;
                -*) case " $valued " in *" $word="*) after=$word ;; esac ;;
                *) here=$((here + 1)) ;;
            esac
            # What follows the sandbox is another program's.
            [ -n "$program" ] && [ "$here" -gt 1 ] && return 0
        fi
        at=$((at + 1))
    done
    [ "$kind" = program ] && return 0
    if [ -n "$after" ]; then
        kinds=" $valued "
        kind="${kinds#* $after=}"
        kind="${kind%% *}"
    elif [ "${current#-}" != "$current" ]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
        return 0
    else
        kind="$rest"
        at=0
        for word in $words; do
            [ "$at" -eq "$here" ] && kind="$word"
            at=$((at + 1))
        done
    fi
    case "$kind" in
        sandbox) _jupyter_sandbox_ids "$start" ;;
        file) COMPREPLY=($(compgen -f -- "$current")) ;;
        end) _jupyter_sandbox_ids "$start" : ; COMPREPLY+=($(compgen -f -- "$current")) ;;
        choice:*) COMPREPLY=($(compgen -W "$(echo "${kind#choice:}" | tr , ' ')" -- "$current")) ;;
    esac
    return 0
}

_jupyter_sandbox_ids() {
    # Lists what there is; nothing is started by that.
    local ids="" id
    for id in $("${COMP_WORDS[@]:0:$1}" list --quiet 2>/dev/null); do
        ids="$ids $id${2-}"
    done
    COMPREPLY=($(compgen -W "$ids" -- "${COMP_WORDS[COMP_CWORD]}"))
}

_jupyter_sandbox() {
    _jupyter_sandbox_complete 1
}

_jupyter_and_sandbox() {
    if [ "$COMP_CWORD" -ge 2 ] && [ "${COMP_WORDS[1]}" = sandbox ]; then
        _jupyter_sandbox_complete 2
    elif typeset -f _jupyter >/dev/null 2>&1; then
        _jupyter "$@"  # what Jupyter itself brings
    elif [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W sandbox -- "${COMP_WORDS[1]}"))
    fi
}

complete -F _jupyter_sandbox jupyter-sandbox
complete -o default -F _jupyter_and_sandbox jupyter
"""

_ZSH = """autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit

"""


def completion(arguments: Namespace) -> int:
    """Print the script for a shell."""
    text = script(arguments.shell)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": text})
    else:
        print(text, end="")
    return OK


def script(shell: str) -> str:
    """Return what the shell is to read; zsh reads that of bash, which it has a module for."""
    cases = "\n".join(f"        {case} ;;" for case in _cases(build_parser(), ""))
    text = _BASH.replace("@CASES@", cases)
    return _ZSH + text if shell == "zsh" else text


def _cases(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
    subcommands = commands_of(parser)
    if subcommands is not None:
        yield f'"{path}") subcommands="{" ".join(subcommands)}"'
        for name, each in subcommands.items():
            yield from _cases(each, f"{path} {name}".strip())
        return
    options: list[str] = []
    valued: list[str] = []
    words: list[str] = []
    rest = ""
    for action in parser._actions:  # noqa: SLF001  there is no other way to ask
        options += action.option_strings
        kind = _kind(action)
        if not action.option_strings:
            if action.nargs == "*":
                rest = kind
            else:
                words.append(kind)
        elif action.nargs != 0:
            valued += [f"{option}={kind}" for option in action.option_strings]
    program = "yes" if parser.get_default("runs_program") else ""
    yield (
        f'"{path}") program="{program}" options="{" ".join(options)}" valued="{" ".join(valued)}"'
        f' words="{" ".join(words)}" rest="{rest}"'
    )


def _kind(action: argparse.Action) -> str:
    """Return what is completed for a value: ``sandbox``, ``file``, ``choice:A,B`` or ``none``."""
    if action.choices:
        return "choice:" + ",".join(map(str, action.choices))
    metavar = str(action.metavar)
    if metavar in _ENDS_OF_A_COPY:
        return "end"
    if metavar == "SANDBOX":
        return "sandbox"
    is_inside = action.dest == "cwd"
    return "file" if metavar in _OF_THIS_MACHINE and not is_inside else "none"
