from __future__ import annotations

import pytest

from sandbox_kernel.errors import (
    InvalidPortError,
    InvalidSandboxIdError,
    PortError,
    ValidationFailedError,
)
from sandbox_kernel.manager.preview_label import PreviewLabel, parse_preview_label, preview_label

RIGHT = [
    ("8000-demo-abc", (8000, "demo", "abc")),
    ("1024-a-_", (1024, "a", "_")),
    ("65535-a-0123456789abcdef", (65535, "a", "0123456789abcdef")),
    ("8080-my-long-id-k3j_0x9d", (8080, "my-long-id", "k3j_0x9d")),
    ("8080-5000-6000-7000", (8080, "5000-6000", "7000")),
    ("8080-a--b-tok", (8080, "a--b", "tok")),
    ("8000-xn--a-tok", (8000, "xn--a", "tok")),
    (f"8000-{'a' * 41}-{'t' * 16}", (8000, "a" * 41, "t" * 16)),
]

WRONG = [
    "",
    "-",
    "8000",
    "8000-demo",
    "8000-demo-",
    "8000--tok",
    "8000---tok",
    "-demo-tok",
    "demo-tok-8000-",
    "800-demo-tok",
    "80000-demo-tok",
    "1023-demo-tok",
    "65536-demo-tok",
    "99999-demo-tok",
    "0800-demo-tok",
    "08000-demo-tok",
    "+8000-demo-tok",
    " 8000-demo-tok",
    "8000-demo-tok ",
    "8000-demo-tok\n",
    "8000-demo-tok.example",
    "8_000-demo-tok",
    "8000.0-demo-tok",
    "\u0668\u0660\u0660\u0660-demo-tok",  # ARABIC-INDIC DIGITS
    "\uff18\uff10\uff10\uff10-demo-tok",  # FULLWIDTH DIGITS
    "8000-dem\u212a-tok",  # KELVIN SIGN, which lowers to k
    "8000-demo-t\u0131k",
    "8000-demo-abc!",
    "8000-demo-abcdefghijklmnopq",  # 17
    "8000-de_mo-tok",
    "8000-de mo-tok",
    "8000--demo-tok",
    "8000-demo--tok",
    "8000-www-tok",
    "8000-admin-tok",
    "8000-de\0mo-tok",
    f"8000-{'a' * 43}-{'t' * 16}",
]


@pytest.mark.parametrize(("label", "named"), RIGHT)
def test_labels_and_what_they_name(label, named):
    """Both ways: the port is before the first hyphen, the token after the last."""
    port, sandbox_id, token = named

    assert parse_preview_label(label) == PreviewLabel(port=port, sandbox_id=sandbox_id, token=token)
    assert preview_label(port, sandbox_id, token) == label


@pytest.mark.parametrize("label", WRONG)
def test_other_labels_are_none(label):
    """What does not parse is no preview; digits are those of ASCII, and a port has one spelling."""
    assert parse_preview_label(label) is None


def test_capitals_of_a_host_name_mean_nothing():
    """Some clients send a host as it was typed."""
    assert parse_preview_label("8000-Demo-ABC") == parse_preview_label("8000-demo-abc")


def test_a_label_does_not_show_its_token():
    """Printing one, as in a log, keeps the secret."""
    assert "abc" not in repr(parse_preview_label("8000-demo-abc"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((80, "demo", "abc"), InvalidPortError),
        (("8000", "demo", "abc"), InvalidPortError),
        ((True, "demo", "abc"), InvalidPortError),
        ((8000, "Demo", "abc"), InvalidSandboxIdError),
        ((8000, "demo", "Abc"), ValidationFailedError),
        ((8000, "demo", ""), ValidationFailedError),
        ((8000, "demo", "a-b"), ValidationFailedError),
        ((8000, "a" * 50, "t" * 16), PortError),
    ],
)
def test_no_label_is_made_that_would_not_come_back(arguments, error):
    """Mixed case, other characters, and more than a host name may have."""
    with pytest.raises(error):
        preview_label(*arguments)
