"""The arguments of every command; docs/cli.md describes them and a test compares the two."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sandbox_kernel
from sandbox_kernel.cli import amounts
from sandbox_kernel.cli.detach_keys import DEFAULT_KEYS
from sandbox_kernel.cli.exit_codes import EXEC_CODES, EXIT_CODES, TERMINAL_CODES

if TYPE_CHECKING:
    # argparse keeps the class of this collection to itself.
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["build_parser", "commands_of", "parse_arguments"]

_SANDBOX_HELP = "the sandbox: its id, or the path of a notebook (.ipynb) that has one"
_COMMANDS = "sandbox_kernel.cli"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; wrong ones end the program with a message and code 2.

    Options may stand before, between and after the other words of a command.
    """
    parser = build_parser()
    words = list(argv)
    leaf = _Leaf.find(parser, words)
    if leaf is None:
        return parser.parse_args(words)  # help, the version, or an error
    program: list[str] = []
    own = leaf.words
    if leaf.runs_program:
        own, program = leaf.split_program()
    arguments = leaf.parser.parse_intermixed_args(own)
    if leaf.runs_program:
        if not program and not leaf.parser.get_default("program_is_optional"):
            leaf.parser.error(f"say what to run: {leaf.parser.prog} {arguments.sandbox} PROGRAM")
        arguments.argv = program
    return arguments


class _Leaf:
    """The command that the words name, and the words after its name.

    argparse itself gives every word after a command to a parser that cannot mix options with
    words of any number, so the command's parser is called directly.
    """

    def __init__(self, parser: argparse.ArgumentParser, words: list[str]) -> None:
        self.parser = parser
        self.words = words

    @classmethod
    def find(cls, parser: argparse.ArgumentParser, words: list[str]) -> _Leaf | None:
        while (choices := commands_of(parser)) is not None:
            if not words or words[0] not in choices:
                return None
            parser, words = choices[words[0]], words[1:]
        return cls(parser, words)

    @property
    def runs_program(self) -> bool:
        return self.parser.get_default("runs_program") is True

    def split_program(self) -> tuple[list[str], list[str]]:
        """Return our own words, and the program's: all after SANDBOX, less our options and a "--".

        No program is named like an option, so that options just after SANDBOX are still ours.
        """
        with_value = {
            option
            for action in self.parser._actions  # noqa: SLF001  there is no other way to ask
            for option in action.option_strings
            if action.nargs != 0
        }
        words, here, named = self.words, 0, False
        while here < len(words):
            word = words[here]
            if word == "--":
                return words[:here], words[here + 1 :]
            if not word.startswith("-"):
                if named:
                    return words[:here], words[here:]
                named = True
            here += 2 if word in with_value else 1
        return words, []


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    """Return the parsers of the commands below this one, if it has some."""
    for action in parser._actions:  # noqa: SLF001  there is no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action.choices
    return None


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; `command` of its result names the function to call."""
    parser = argparse.ArgumentParser(
        prog="jupyter sandbox",
        description="Run notebooks and commands in sandboxes, and look after the sandboxes.",
        epilog=_exit_codes(EXIT_CODES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=sandbox_kernel.__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_import(commands)
    _add_exec(commands)
    _add_terminal(commands)
    _add_list(commands)
    _add_create(commands)
    _add_cp(commands)
    _add_info(commands)
    _add_stats(commands)
    _add_logs(commands)
    _add_stop(commands)
    _add_destroy(commands)
    _add_gc(commands)
    _add_ports(commands)
    _add_diff(commands)
    _add_apply(commands)
    _add_discard(commands)
    _add_doctor(commands)
    _add_kernelspec(commands)
    _add_image(commands)
    _add_completion(commands)
    return parser


def _exit_codes(codes: Mapping[int, str]) -> str:
    rows = [f"  {code:>3}  {meaning}" for code, meaning in codes.items()]
    return "\n".join(["exit codes:", *rows])


def _add(commands: _Commands, name: str, function: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.add_argument("--json", action="store_true", help="answer with one JSON document")
    command.set_defaults(command=f"{_COMMANDS}.{function}")
    return command


def _add_group(commands: _Commands, name: str, text: str) -> _Commands:
    group = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _add_start_options(command: argparse.ArgumentParser) -> None:
    """Add what decides how a sandbox is started; without effect on one that runs."""
    command.add_argument(
        "--network",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="let programs in the sandbox reach the network, or not",
    )
    command.add_argument(
        "--memory",
        type=amounts.size,
        metavar="SIZE",
        help="memory of the whole sandbox, such as 512M or 2G",
    )
    command.add_argument(
        "--cpus",
        type=amounts.cores,
        metavar="CORES",
        help="processor time of the sandbox, such as 1.5",
    )
    command.add_argument(
        "--processes",
        type=amounts.count,
        metavar="COUNT",
        help="processes and threads in the sandbox at one time",
    )
    command.add_argument(
        "--notebook-folder",
        choices=("overlay", "read", "write", "none"),
        metavar="MODE",
        help="how the notebook's folder is shown: overlay, read, write or none",
    )
    command.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable in the sandbox; may be repeated",
    )


def _add_run(commands: _Commands) -> None:
    command = _add(
        commands,
        "run",
        "run:run",
        "Execute a notebook in a sandbox, from the first cell to the last.",
    )
    command.add_argument("notebook", metavar="NOTEBOOK", help="the notebook to execute")
    target = command.add_mutually_exclusive_group()
    target.add_argument("-o", "--output", metavar="FILE", help="write the executed notebook here")
    target.add_argument(
        "--inplace", action="store_true", help="write the outputs into the notebook itself"
    )
    command.add_argument(
        "--id",
        metavar="ID",
        help="execute in the sandbox of this id, which stays; by default in a new one, which goes",
    )
    command.add_argument(
        "--timeout",
        type=amounts.seconds,
        metavar="TIME",
        help="end a cell that takes longer; by default there is no limit",
    )
    command.add_argument(
        "--allow-errors",
        action="store_true",
        help="go on after a cell that raises, and exit with 0",
    )
    command.add_argument(
        "--kernel",
        default="sandbox-python",
        metavar="NAME",
        help="the kernelspec to use (default: %(default)s), whatever the notebook names",
    )
    command.add_argument("-q", "--quiet", action="store_true", help="show no progress bar")
    _add_start_options(command)


def _add_import(commands: _Commands) -> None:
    command = _add(
        commands,
        "import",
        "importing:import_",
        "Copy a notebook of somebody else's without what acts when it is opened, for a sandbox.",
    )
    command.add_argument("notebook", metavar="NOTEBOOK", help="the notebook; it is not executed")
    target = command.add_mutually_exclusive_group()
    target.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the copy here; by default to NAME-sandbox.ipynb beside it, if there is none",
    )
    target.add_argument("--inplace", action="store_true", help="change the notebook itself")


def _add_exec(commands: _Commands) -> None:
    command = _add(
        commands,
        "exec",
        "execute:execute",
        "Run a command in a sandbox and end with its exit code; starts the sandbox if need be.",
    )
    command.usage = f"{command.prog} [OPTION ...] SANDBOX PROGRAM [ARGUMENT ...]"
    command.epilog = (
        "Everything after SANDBOX is the program with its arguments; '--' may stand before it.\n\n"
        + _exit_codes(EXEC_CODES)
    )
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.set_defaults(runs_program=True)
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    command.add_argument("--cwd", metavar="FOLDER", help="the folder in the sandbox to run it in")
    command.add_argument(
        "--timeout",
        type=amounts.seconds,
        metavar="TIME",
        help="kill it after this time (exit code 124)",
    )
    _add_start_options(command)


def _add_terminal(commands: _Commands) -> None:
    command = _add(
        commands,
        "terminal",
        "terminal:terminal",
        "Attach this terminal to one in a sandbox, which goes on when this one is left.",
    )
    command.usage = f"{command.prog} [OPTION ...] SANDBOX [PROGRAM [ARGUMENT ...]]"
    command.epilog = (
        "Without a program: the terminal of the session, with a shell; it is made if need be.\n"
        "With one: a new terminal. Everything after SANDBOX is the program with its arguments;\n"
        "'--' may stand before it.\n\n" + _exit_codes(TERMINAL_CODES)
    )
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.set_defaults(runs_program=True, program_is_optional=True)
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    command.add_argument(
        "--terminal", metavar="ID", help="attach to this terminal, also to one that has ended"
    )
    command.add_argument(
        "--session",
        metavar="SESSION",
        help="the session whose terminal is meant; without a program: default",
    )
    command.add_argument(
        "--list", action="store_true", help="list the terminals of the sandbox; starts nothing"
    )
    command.add_argument(
        "--detach-keys",
        default=DEFAULT_KEYS,
        metavar="KEYS",
        help="the keys that leave the terminal (default: %(default)s), such as ctrl-p,ctrl-q;"
        " none for no keys",
    )
    command.add_argument(
        "--cwd", metavar="FOLDER", help="the folder in the sandbox to start a new terminal in"
    )
    _add_start_options(command)


def _add_list(commands: _Commands) -> None:
    command = _add(commands, "list", "sandboxes:list_all", "List the sandboxes; starts none.")
    command.add_argument("-q", "--quiet", action="store_true", help="print only their ids")


def _add_create(commands: _Commands) -> None:
    command = _add(
        commands,
        "create",
        "creating:create",
        "Make a sandbox, start it, and print its id; one that is there already is started.",
    )
    command.add_argument(
        "id", nargs="?", metavar="ID", help="the id it gets; one of its own by default"
    )
    command.add_argument("--engine", metavar="NAME", help="the engine: bubblewrap or docker")
    command.add_argument("--image", metavar="IMAGE", help="the image of the docker engine")
    command.add_argument(
        "--folder",
        metavar="FOLDER",
        help="the folder of this machine that it shows, as a notebook's",
    )
    command.add_argument(
        "--sleep-after",
        type=amounts.positive_seconds,
        metavar="TIME",
        help="let it go to sleep after this time without use",
    )
    command.add_argument(
        "--keep-alive",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="never let it go to sleep by itself, or do",
    )
    _add_start_options(command)


def _add_gc(commands: _Commands) -> None:
    command = _add(
        commands,
        "gc",
        "cleaning:clean",
        "Remove what crashes and ephemeral sandboxes left; sandboxes that run or sleep stay.",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only tell what would be removed or ended"
    )
    command.add_argument("-q", "--quiet", action="store_true", help="show no progress bar")


def _add_ports(commands: _Commands) -> None:
    actions = _add_group(commands, "ports", "Show and expose ports of sandboxes.")
    for name, function, text in (
        (
            "listen",
            "listen",
            "List the ports on which programs in a sandbox listen; starts nothing.",
        ),
        ("list", "list_exposed", "List the ports that are exposed; starts nothing."),
    ):
        command = _add(actions, name, f"ports:{function}", text)
        command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    command = _add(
        actions,
        "expose",
        "ports:expose",
        "Let whoever has a token reach a port through a Jupyter server, and print where.",
    )
    _add_port(command)
    command.add_argument("--name", metavar="NAME", help="what people call it")
    command.add_argument(
        "--token", metavar="TOKEN", help="the token: 1 to 16 of a-z, 0-9 and _; random by default"
    )
    _add_port(
        _add(actions, "unexpose", "ports:unexpose", "Revoke the token of a port; starts nothing.")
    )


def _add_port(command: argparse.ArgumentParser) -> None:
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    command.add_argument("port", type=amounts.port, metavar="PORT", help="the port: 1024 to 65535")


def _add_image(commands: _Commands) -> None:
    actions = _add_group(commands, "image", "Make images for the docker engine.")
    command = _add(
        actions,
        "build",
        "images:build",
        "Build an image with the runtime in it, for the docker engine; from a checkout only.",
    )
    command.add_argument(
        "tag", nargs="?", default="jupyter-sandbox", metavar="TAG", help="its name"
    )
    command.add_argument("--base", metavar="IMAGE", help="the image to build on")
    command.add_argument("-q", "--quiet", action="store_true", help="do not show what docker says")


def _add_completion(commands: _Commands) -> None:
    command = _add(
        commands,
        "completion",
        "completion:completion",
        "Print what lets a shell complete commands, options and ids.",
    )
    command.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh")


def _add_cp(commands: _Commands) -> None:
    command = _add(
        commands,
        "cp",
        "copying:copy",
        "Copy files and folders into a sandbox or out of it; starts the sandbox if need be.",
    )
    place = "SANDBOX:PATH, or a path on this machine, or - for standard input or output"
    command.add_argument("source", metavar="SOURCE", help=place)
    command.add_argument("destination", metavar="DESTINATION", help="likewise; one is in a sandbox")
    command.add_argument(
        "-L",
        "--follow-link",
        action="store_true",
        help="copy what links on this machine lead to, not the links",
    )
    command.add_argument("-q", "--quiet", action="store_true", help="show no progress bar")


def _add_info(commands: _Commands) -> None:
    command = _add(
        commands, "info", "stats:info", "Show what is known of a sandbox; starts nothing."
    )
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)


def _add_stats(commands: _Commands) -> None:
    command = _add(
        commands,
        "stats",
        "stats:stats",
        "Show what sandboxes use, all or those named; starts none.",
    )
    command.add_argument(
        "sandboxes",
        nargs="*",
        default=[],  # or argparse says that it is required
        metavar="SANDBOX",
        help=_SANDBOX_HELP,
    )
    command.add_argument(
        "--disk", action="store_true", help="count their files too, which may take long"
    )
    command.add_argument("--watch", action="store_true", help="look again and again, until Ctrl-C")
    command.add_argument(
        "--interval",
        type=amounts.positive_seconds,
        default=2.0,
        metavar="TIME",
        help="the time between two looks (default: %(default)g seconds)",
    )


def _add_logs(commands: _Commands) -> None:
    command = _add(
        commands, "logs", "logs:logs", "Show who ran what in a sandbox, and when; starts nothing."
    )
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--process", metavar="ID", help="show what this process has written instead")
    which.add_argument(
        "--runtime", action="store_true", help="show what engine and runtime say of themselves"
    )
    command.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C"
    )
    command.add_argument(
        "-n",
        "--tail",
        type=amounts.count,
        metavar="COUNT",
        help="begin with this many lines at the end; not with --process",
    )


def _add_stop(commands: _Commands) -> None:
    command = _add(
        commands, "stop", "sandboxes:stop", "End everything that runs in a sandbox; its files stay."
    )
    _add_several(command)
    command.add_argument(
        "--grace",
        type=amounts.seconds,
        default=5.0,
        metavar="TIME",
        help="how long programs have to end by themselves (default: %(default)g)",
    )


def _add_destroy(commands: _Commands) -> None:
    command = _add(
        commands,
        "destroy",
        "sandboxes:destroy",
        "End a sandbox and remove its files; the notebook's folder on the host is not touched.",
    )
    _add_several(command)
    _add_yes(command)


def _add_several(command: argparse.ArgumentParser) -> None:
    command.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help=_SANDBOX_HELP)
    command.add_argument("--all", action="store_true", help="every sandbox")


def _add_yes(command: argparse.ArgumentParser) -> None:
    command.add_argument("-y", "--yes", action="store_true", help="do not ask first")


def _add_diff(commands: _Commands) -> None:
    command = _add(
        commands,
        "diff",
        "changes:diff",
        "Show what a sandbox changed in the notebook's folder; the host has none of it.",
    )
    _add_paths(command)
    command.add_argument(
        "--exit-code", action="store_true", help="exit with 1 when there are changes"
    )


def _add_apply(commands: _Commands) -> None:
    command = _add(
        commands,
        "apply",
        "changes:apply",
        "Take changes of a sandbox over into the notebook's folder on the host.",
    )
    _add_paths(command)
    command.add_argument(
        "--links", action="store_true", help="take symbolic links over too, as links"
    )
    command.add_argument(
        "--hidden",
        action="store_true",
        help="also hidden files that are not named themselves; they configure tools, such as git",
    )
    command.add_argument(
        "--force", action="store_true", help="also where the host's file has changed since"
    )
    command.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask before files of the host are deleted or replaced",
    )


def _add_discard(commands: _Commands) -> None:
    command = _add(
        commands,
        "discard",
        "changes:discard",
        "Drop changes of a sandbox, which must be stopped; the host's files show again.",
    )
    _add_paths(command)
    command.add_argument("--all", action="store_true", help="every change")
    _add_yes(command)


def _add_paths(command: argparse.ArgumentParser) -> None:
    command.add_argument("sandbox", metavar="SANDBOX", help=_SANDBOX_HELP)
    command.add_argument(
        "paths",
        nargs="*",
        default=[],  # or argparse says that it is required
        metavar="PATH",
        help="changed files, or folders with some, relative to the notebook's folder",
    )


def _add_doctor(commands: _Commands) -> None:
    _add(
        commands,
        "doctor",
        "doctor:doctor",
        "Find out by trying whether sandboxes work on this machine, and say what to do if not.",
    )


def _add_kernelspec(commands: _Commands) -> None:
    actions = _add_group(commands, "kernelspec", "Make the sandbox kernel known to Jupyter.")
    command = _add(
        actions,
        "install",
        "kernelspec:install",
        "Install a kernelspec that starts sandboxes with this very Python.",
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user")
    where.add_argument(
        "--sys-prefix", action="store_true", help="into this Python's environment (the default)"
    )
    where.add_argument("--prefix", metavar="FOLDER", help="below this folder, such as /usr/local")
    command.add_argument(
        "--language",
        metavar="LANGUAGE",
        help="for this language, with the kernel of it that Jupyter has (default: python)",
    )
    command.add_argument(
        "--kernel",
        metavar="NAME",
        help="with this kernel of Jupyter's; needed where it has several of the language",
    )
    command.add_argument(
        "--name", help="the kernelspec's name; sandbox-LANGUAGE by default, so sandbox-python"
    )
    command.add_argument(
        "--display-name",
        metavar="TEXT",
        help="the name that people see; by default the one given with --name, else the kernel's",
    )
    command.add_argument(
        "--id", metavar="ID", help="let every notebook on this kernel share the sandbox of this id"
    )
