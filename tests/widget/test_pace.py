"""How output is spread over the kernel's channel."""

from __future__ import annotations

from sandbox_kernel.widget.pace import PIECE, RATE, Pace


def test_the_first_piece_goes_at_once():
    """An echo after a pause waits for nothing."""
    assert Pace().delay(100.0) == 0


def test_small_pieces_are_joined():
    """A second piece waits some milliseconds, in which more can be added to it."""
    pace = Pace()
    pace.sent(100.0, 10)

    assert 0 < pace.delay(100.0) < 0.02
    assert pace.delay(100.02) == 0


def test_a_flood_stays_below_the_rate_at_which_servers_mute_kernels():
    """Over any three seconds less goes than half of what the server counts to."""
    pace, now, sent = Pace(), 0.0, 0
    while now < 3.0:
        now += pace.delay(now)
        pace.sent(now, PIECE)
        sent += PIECE

    assert sent <= 3 * RATE + 2 * PIECE < 3 * 1_000_000
