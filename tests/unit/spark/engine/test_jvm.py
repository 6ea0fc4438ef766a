"""What a JVM writes on standard error: all but the chatter of Spark's workers is passed on."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.engine.jvm import LINE_BYTES_MAX, ChatterFilter, StartOutput

LOUD = b"Starting Streaming TransformWithStateInPandas Python worker.\n\n"
LOUDER = b"Streaming TransformWithStateInPandas Python worker received parameters for UDF.\n\n"


def passed(*chunks: bytes) -> bytes:
    written: list[bytes] = []
    without_chatter = ChatterFilter(written.append)
    for chunk in chunks:
        without_chatter.feed(chunk)
    without_chatter.end()
    return b"".join(written)


@pytest.mark.parametrize(
    ("said", "stays"),
    [
        (LOUD + LOUDER, b""),
        (b"a\n\n" + LOUD + b"\nb\n", b"a\n\n\nb\n"),
        (b"[Stage 0:>   (0 + 1) / 1]\r" + LOUD + b"done\n", b"[Stage 0:>   (0 + 1) / 1]\rdone\n"),
        (b"Streaming query made progress\n", b"Streaming query made progress\n"),
        (b"it says: " + LOUD, b"it says: " + LOUD),
        (b"no end", b"no end"),
        (b"Streaming", b"Streaming"),
        (b"Streaming\n", b"Streaming\n"),
        (LOUD + b"Streaming\n\n", b"Streaming\n\n"),
        (LOUD.strip() + b"x" * 100_000 + b"\n\nafter\n", b"after\n"),
    ],
)
def test_only_chatter_is_left_out(said: bytes, stays: bytes) -> None:
    assert passed(said) == stays


@given(st.lists(st.sampled_from([LOUD, LOUDER, b"one\n", b"\n", b"bar\r", b"Starting Spark\n"])), st.data())
def test_it_does_not_matter_where_it_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    said = b"".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)))))
    chunks = [said[start:end] for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True)]
    assert passed(*chunks) == passed(said)


def test_the_beginning_of_a_line_does_not_wait() -> None:
    written: list[bytes] = []
    without_chatter = ChatterFilter(written.append)
    without_chatter.feed(b"WARN: the bro")
    assert written == [b"WARN: the bro"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b""])
def test_the_rest_of_a_long_line_is_left_out(end: bytes) -> None:
    line = b"p" * (LINE_BYTES_MAX + 1000)
    assert passed(line + end, b"next\n" if end else b"") == (
        b"p" * LINE_BYTES_MAX + b"... (1000 bytes left out)" + end + (b"next\n" if end else b"")
    )


@pytest.mark.parametrize("beginning", [b"", b"Streaming TransformWithStateIn", b"Streaming"])
def test_a_line_without_an_end_costs_a_fixed_number_of_steps_for_each_piece(beginning: bytes) -> None:
    """The work for each piece is the same, however long the line is already."""

    def steps(piece_count: int) -> int:
        without_chatter = ChatterFilter(lambda data: None)
        without_chatter.feed(beginning)
        taken = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal taken
            taken += 1

        sys.setprofile(count)
        try:
            for _ in range(piece_count):
                without_chatter.feed(b"x" * 64)
        finally:
            sys.setprofile(None)
        held = [value for value in vars(without_chatter).values() if isinstance(value, bytes)]
        assert sum(map(len, held)) <= 64
        return taken

    assert steps(2000) <= 2 * steps(1000)


def test_a_piece_of_megabytes_without_an_end_passes() -> None:
    """The filter looks at each byte once: a pattern that starts again at each byte takes days."""
    line = b"Streaming query " + b"x" * (8 << 20)
    assert passed(line).startswith(b"Streaming query xxx")


def test_what_a_jvm_writes_while_it_starts_is_shown_only_if_that_fails() -> None:
    shown: list[bytes] = []
    failed = StartOutput(bytes_max=5)
    for part in (b"no ", b"java", b" here"):
        failed.keep(part)
    failed.end(shown.append)
    failed.keep(b"later")
    failed.end(shown.append)
    assert shown == [b"no java"]
    begun = StartOutput()
    begun.keep(b"chatter")
    begun.end()
    begun.end(shown.append)
    assert shown == [b"no java"]
