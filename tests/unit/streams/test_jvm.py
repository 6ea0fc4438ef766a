"""What a JVM writes on standard error: all but the chatter of Spark's workers is passed on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.jvm import ChatterFilter

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
