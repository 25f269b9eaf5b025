"""The ``%sandbox`` commands, answered on the host."""

from __future__ import annotations

from collections.abc import Callable

from sandbox_kernel.kernel.hostcells import HELP, Command, Commands, UsageProblem
from sandbox_kernel.kernel.jsontext import read, write
from sandbox_kernel.kernel.notes import Notes
from sandbox_kernel.kernel.outputs import KeptCell, KeptOutputs
from sandbox_kernel.kernel.requests import Request
from sandbox_kernel.kernel.speaker import Speaker

__all__ = ["sandbox_commands"]


def sandbox_commands(
    *,
    describe: Callable[[], list[tuple[str, str]]],
    restart: Callable[[], None],
    expose: Callable[[int], tuple[str, str]] | None,
    outputs: KeptOutputs,
    notes: Notes,
    speaker: Speaker,
) -> Commands:
    """Return the commands.

    Parameters
    ----------
    describe : callable
        Returns rows of name and value about sandbox and interpreter.
    restart : callable
        Begins to replace the interpreter; whoever does so finishes the cell.
    expose : callable, optional
        Exposes a port; returns the address of its preview, and a link to it in HTML.
    outputs, notes, speaker
        What the commands show, and how.
    """

    def show_status(request: Request, words: list[str]) -> str:
        _refuse_words("status", words)
        rows = describe()
        if waiting := outputs.waiting(request.session):
            rows.append(("kept outputs", f"{waiting} (%sandbox outputs)"))
        if notes.count:
            rows.append(("refused", f"{notes.count} messages; the last:"))
            rows.extend(("", note) for note in notes.last(5))
        return "".join(f"{name:<16} {value}\n" for name, value in rows)

    def show_outputs(request: Request, words: list[str]) -> str:
        _refuse_words("outputs", words)
        kept = outputs.take(request.session)
        for cell in kept:
            publish_cell(request, cell)
        if not kept:
            return "Nothing is kept: no cell ran on after its page was closed or lost.\n"
        count = sum(len(cell.outputs) for cell in kept)
        cells = _counted(len(kept), "cell")
        return f"({_counted(count, 'output')} of {cells}, not kept any longer)\n"

    def publish_cell(request: Request, cell: KeptCell) -> None:
        head = f"--- {cell.title or 'a cell of an earlier page'}\n"
        if cell.dropped:
            head += f"({_counted(cell.dropped, 'output')} before these were not kept)\n"
        speaker.publish("stream", request.header, write({"name": "stdout", "text": head}))
        for each in cell.outputs:
            msg_type, content = each.msg_type, each.content
            if msg_type == "execute_result":
                # A result belongs to the number of its own cell; here it is a display.
                value = read(content)
                value.pop("execution_count", None)
                msg_type, content = "display_data", write(value)
            speaker.publish(
                msg_type, request.header, content, metadata=each.metadata, buffers=each.buffers
            )

    def show_preview(request: Request, words: list[str]) -> str:
        if len(words) != 1 or not words[0].isdecimal():
            raise UsageProblem("%sandbox preview takes the number of a port: %sandbox preview 8000")
        if expose is None:
            raise UsageProblem("This kernel cannot show previews.")
        text, link = expose(int(words[0]))
        data = {"text/plain": text, "text/html": link}
        content = write({"data": data, "metadata": {}, "transient": {}})
        speaker.publish("display_data", request.header, content)
        return ""

    def begin_restart(_request: Request, words: list[str]) -> None:
        _refuse_words("restart", words)
        restart()

    return Commands(
        "sandbox",
        {
            "status": Command(show_status, immediate=True),
            "outputs": Command(show_outputs),
            "preview": Command(show_preview),
            "restart": Command(begin_restart),
            "help": Command(lambda _request, _words: HELP, immediate=True),
        },
        "status",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _refuse_words(command: str, words: list[str]) -> None:
    if words:
        raise UsageProblem(f"%sandbox {command} takes no further words.")
