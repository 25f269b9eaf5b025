"""The keys that detach a terminal, found in what is typed; pure."""

from __future__ import annotations

from sandbox_kernel.errors import SandboxConfigurationError

__all__ = ["DEFAULT_KEYS", "DetachKeys"]

DEFAULT_KEYS = "ctrl-]"
"""What telnet and the consoles of virtual machines use: one key, which shells leave alone."""

_CONTROLS = {"@": 0, "[": 27, "\\": 28, "]": 29, "^": 30, "_": 31}
_CONTROLS.update({chr(96 + number): number for number in range(1, 27)})


class DetachKeys:
    """Looks for a sequence of keys; keys that only begin it are held back until the next one.

    Parameters
    ----------
    text : str
        Keys with commas in between, each one character or ``ctrl-`` and one; ``none`` for no keys.

    Raises
    ------
    SandboxConfigurationError
        It names no keys.
    """

    def __init__(self, text: str = DEFAULT_KEYS) -> None:
        self._keys = [] if text == "none" else [_spellings(text, key) for key in text.split(",")]
        self._held: list[bytes] = []
        self.label = ", ".join(map(_label, text.split(","))) if self._keys else ""
        """The keys as people read them; empty for none."""

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Return what is to be passed on, and whether the keys were typed; no more is read then."""
        if not self._keys:
            return data, False
        out, at = bytearray(), 0
        while at < len(data):
            spelling = self._match(data, at)
            if spelling is not None:
                self._held.append(spelling)
                at += len(spelling)
                if len(self._held) == len(self._keys):
                    self._held.clear()
                    return bytes(out), True
            elif self._held:
                # Another key: what was held back was meant for the program, but for what may
                # itself begin the sequence anew.
                out += self._held.pop(0)
                data, at = b"".join(self._held) + data[at:], 0
                self._held.clear()
            else:
                out.append(data[at])
                at += 1
        return bytes(out), False

    def _match(self, data: bytes, at: int) -> bytes | None:
        for spelling in self._keys[len(self._held)]:
            if data.startswith(spelling, at):
                return spelling
        return None


def _spellings(text: str, key: str) -> tuple[bytes, ...]:
    """Return what terminals may send for a key.

    A program can ask the terminal for the longer forms, and must not lock anybody in by that.
    """
    name = key.removeprefix("ctrl-")
    if len(name) != 1 or not name.isascii() or not name.isprintable():
        raise SandboxConfigurationError(
            f"{text!r} names no keys.",
            hint="Give keys with commas in between, such as ctrl-] or ctrl-p,ctrl-q; or none.",
        )
    if name == key:
        return (key.encode(),)
    number = _CONTROLS.get(name.lower())
    if number is None:
        raise SandboxConfigurationError(
            f"No terminal can send {key!r}.",
            hint="Besides letters, ctrl- goes with @ [ \\ ] ^ and _.",
        )
    point = ord(name.lower())
    return (bytes((number,)), b"\x1b[%d;5u" % point, b"\x1b[27;5;%d~" % point)


def _label(key: str) -> str:
    name = key.removeprefix("ctrl-")
    return name if name == key else f"Ctrl-{name.upper()}"
