"""`traceparent` as W3C's standard has it; whatever else a header holds is no context."""

import pytest

from odradek.telemetry.trace_context import TraceContext, context_in, parsed

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = TraceContext(trace_id=int(TRACE, 16), span_id=int(SPAN, 16), is_sampled=True)


def test_the_example_of_the_standard_is_read_and_written_again() -> None:
    value = f"00-{TRACE}-{SPAN}-01".encode()
    assert parsed(value) == CONTEXT
    assert CONTEXT.header == value


def test_the_sampled_flag_is_one_bit_of_several() -> None:
    assert parsed(f"00-{TRACE}-{SPAN}-00".encode()).is_sampled is False
    assert parsed(f"00-{TRACE}-{SPAN}-fe".encode()).is_sampled is False
    assert parsed(f"00-{TRACE}-{SPAN}-ff".encode()).is_sampled is True


def test_a_later_version_may_have_more_fields() -> None:
    assert parsed(f"01-{TRACE}-{SPAN}-01-more".encode()) == CONTEXT
    assert parsed(f"00-{TRACE}-{SPAN}-01-more".encode()) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{TRACE[:-1]}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-1".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
        f" 00-{TRACE}-{SPAN}-01".encode(),
        f"01-{TRACE}-{SPAN}-01-{'x' * 1000}".encode(),
        f"00-{TRACE}-{SPAN}-0１".encode(),
        b"\xff" * 55,
    ],
)
def test_what_the_standard_does_not_allow_is_no_context(value: bytes | None) -> None:
    assert parsed(value) is None


def test_the_last_of_several_headers_counts() -> None:
    other = f"00-{TRACE}-{'1' * 16}-01".encode()
    assert context_in([("traceparent", other), ("x", b"y"), ("traceparent", CONTEXT.header)]) == CONTEXT
    assert context_in([("traceparent", other), ("traceparent", b"no context")]) is None
    assert context_in([("Traceparent", other)]) is None
