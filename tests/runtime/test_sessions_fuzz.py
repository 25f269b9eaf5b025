"""Sessions against plain bash: the same bytes and codes for whatever text; many at once; losses."""

from __future__ import annotations

import os
import random
import signal
import subprocess

import pytest

from sandbox_kernel.errors import SessionTerminatedError
from tests.support.runtime_child import Client, RuntimeChild, join

WORDS = [
    "a b",
    "",
    "*",
    "$HOME",
    "`id`",
    "'\"",
    "-n",
    "--",
    "x\ny",
    "é漢😀",
    "\\",
    "~",
    "\xff",
    "\t#",
]


def single(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def random_word(dice: random.Random) -> str:
    word = dice.choice(WORDS) + dice.choice(WORDS)
    return dice.choice(
        [
            single(word),
            '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"',
            f"$'\\x{dice.randrange(1, 256):02x}\\n\\0{dice.randrange(1, 256):o}'",
            '"$(printf %s ' + single(word) + ')"',
            "{a,b}$((1 + 2))",
        ]
    )


def random_text(dice: random.Random, depth: int = 0) -> str:
    """Return a text whose output depends on nothing but itself."""
    words = " ".join(random_word(dice) for _ in range(dice.randrange(4)))
    mark = "E" + str(dice.randrange(100))
    kinds = [
        lambda: f"printf '%s|' {words}",
        lambda: f"printf '\\{dice.randrange(256):03o}\\000\\{dice.randrange(256):03o}'",
        lambda: f"printf '%s' {words} >&2",
        lambda: f"cat <<'{mark}'\n{dice.choice(WORDS)}\n$x\n{mark}\n",
        lambda: f'cat <<-{mark}\n\t"$((2 * 3))"\n\t{mark}\n',
        lambda: f"cat <<< {random_word(dice)}",
        lambda: f"(exit {dice.randrange(256)})",
        lambda: f"x={random_word(dice)}; printf '%s' \"$x\" | od -c",
        lambda: f"echo {dice.randrange(1000)} | tr 0-9 a-j",
        lambda: (
            f'f{depth}() {{ printf \'%s,\' "$#" "$@"; return {dice.randrange(256)}; }}; '
            f"f{depth} {words}"
        ),
        lambda: "head -c 70000 /dev/zero | tr '\\0' z",
        lambda: f"for i in {words or 1}; do printf '<%s>' \"$i\"; done",
        lambda: 'read line; echo "eof $?"',
        lambda: "case x in (x) printf y;; esac",
        lambda: "[[ abc =~ b(.) ]] && printf '%s' \"${BASH_REMATCH[1]}\"",
        lambda: "true # a comment",
    ]
    if depth < 2:
        kinds += [
            lambda: f"{{ {random_text(dice, depth + 1)}\n}}",
            lambda: f"( {random_text(dice, depth + 1)}\n)",
            lambda: f"if {random_text(dice, depth + 1)}\nthen echo yes; else echo no $?; fi",
            lambda: f"{{ {random_text(dice, depth + 1)}\n}} 2>&1 | cat",
        ]
    return "\n".join(dice.choice(kinds)() for _ in range(dice.randrange(1, 4)))


@pytest.mark.parametrize("seed", range(6))
def test_random_texts_do_as_in_plain_bash(client: Client, runtime: RuntimeChild, seed: int) -> None:
    """Both streams byte for byte, and the code."""
    dice = random.Random(seed)  # noqa: S311
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for _ in range(40):
        text = random_text(dice)
        # A shell of its own has no code from before.
        text = "true\n" + text
        plain = subprocess.run(
            ["bash", "-c", text.encode("utf-8", "surrogateescape")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            cwd=runtime.workspace,
            timeout=20,
            check=False,
        )
        items, end = client.call("exec", command=text, session="default")

        assert join(items, "stdout") == plain.stdout, text
        assert join(items, "stderr") == plain.stderr, text
        assert end.exit_code == plain.returncode, text


def test_two_hundred_sessions_at_once(client: Client) -> None:
    """Each with its own state; none waits for another's command."""
    names = [f"s{number}" for number in range(200)]
    for name in names:
        client.call("session.create", session_id=name)
    for round_ in range(2):
        calls = {
            name: client.begin(
                "exec", command=f"N=${{N-0}}{name}; sleep 0.2; echo $N", session=name
            )
            for name in names
        }
        for name, call in calls.items():
            items, end = client.finish(call, 100)
            assert join(items, "stdout").decode() == "0" + name * (round_ + 1) + "\n"
            assert end.exit_code == 0
    assert [each.session_id for each in client.call("session.list").sessions] == names
    for name in names:
        client.call("session.delete", session_id=name)
    assert client.call("session.list").sessions == []


def finish_and_go_on(client: Client, call: int) -> None:
    client.finish(call)
    for _ in range(100):
        client.call("exec", command="true", session="default")


def test_a_shell_killed_at_any_moment_is_told_once(client: Client) -> None:
    """SIGKILL in the middle of a text: that one fails, the next has a new shell; nothing hangs."""
    dice = random.Random(1)  # noqa: S311
    for number in range(40):
        pid = int(join(client.call("exec", command="echo $$", session="default")[0], "stdout"))
        text = dice.choice(["sleep 100", "while :; do echo x; done", "head -c 9000000 /dev/zero"])
        call = client.begin("exec", command=text, session="default")
        if number % 2:
            client.event_within(call, dice.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        # It may have been done before; then the next one is told.
        with pytest.raises(SessionTerminatedError) as caught:
            finish_and_go_on(client, call)
        assert caught.value.context["signal"] == 9
        assert join(client.call("exec", command="echo new", session="default")[0], "stdout") == (
            b"new\n"
        )


def test_texts_of_one_session_run_in_the_order_they_came(client: Client) -> None:
    """Without gaps; more than may wait are refused and were not started."""
    calls = [
        client.begin("exec", command=f"L=$L,{number}; echo $L", session="default")
        for number in range(200)
    ]
    last = [client.finish(call) for call in calls][-1]

    assert join(last[0], "stdout").decode() == "".join(f",{n}" for n in range(200)) + "\n"
