"""Outputs of cells whose page has gone: kept for the next page, and no longer than they are news."""

from __future__ import annotations

from sandbox_kernel.kernel.outputs import KeptOutputs, Output
from sandbox_kernel.kernel.requests import Request
from sandbox_kernel.wire.kernel import Channel


def cell(msg_id: str, session: str, code: str = "x", *, silent: bool = False) -> Request:
    return Request(
        msg_id,
        b"{}",
        Channel.SHELL,
        [],
        "execute_request",
        session=session,
        code=code,
        silent=silent,
    )


def text(content: bytes = b"t", size: int = 0) -> Output:
    return Output("stream", content, b"{}", [b"b" * size] if size else [])


def test_the_next_page_gets_what_the_closed_one_could_not_show() -> None:
    """Under the first line of the code, in order, and once."""
    kept = KeptOutputs()
    train = cell("1", "closed", "\ntrain(model)\nsave(model)")
    for content in (b"a", b"b"):
        kept.offer(train, text(content))

    assert kept.waiting("new") == 2
    [lost] = kept.take("new")
    assert lost.title == "train(model)"
    assert [output.content for output in lost.outputs] == [b"a", b"b"]
    assert kept.take("new") == []


def test_a_page_that_speaks_again_has_seen_the_cells_that_are_over() -> None:
    """Not those that run still: it may be closed before their end."""
    kept = KeptOutputs()
    for name in ("over", "runs"):
        kept.offer(cell(name, "page", name), text())
    kept.heard("other", {"runs"})
    kept.heard("page", {"runs"})

    assert [lost.title for lost in kept.take("new")] == ["runs"]


def test_a_page_is_not_told_what_it_shows_itself() -> None:
    """Unless the relay was replaced meanwhile, when any page may have lost something."""
    kept = KeptOutputs()
    kept.offer(cell("1", "page"), text())

    assert kept.take("page") == []
    kept.of = {"1"}
    kept.heard("page", set())
    assert len(kept.take("page")) == 1


def test_only_what_can_be_shown_of_cells_is_kept() -> None:
    """No status, no comm, nothing of a silent request."""
    kept = KeptOutputs()
    kept.offer(cell("1", "page"), Output("comm_msg", b"{}", b"{}", []))
    kept.offer(cell("2", "page", silent=True), text())

    assert kept.waiting("new") == 0


def test_what_is_kept_is_bounded_with_buffers_and_metadata() -> None:
    """The oldest go, and their number is known."""
    kept = KeptOutputs()
    for _ in range(10):
        kept.offer(
            cell("1", "page"), Output("display_data", b"", b"m" * (2 << 20), [b"b" * (2 << 20)])
        )
    for _ in range(2100):
        kept.offer(cell("2", "page"), text())

    [lost] = kept.take("new")
    assert (len(lost.outputs), lost.dropped) == (2000, 100)
    kept.offer(cell("3", "page"), text(size=1 << 20))
    assert kept.waiting("new") == 1
