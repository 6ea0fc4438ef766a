"""W3C's trace context as record headers carry it: `traceparent`.
https://www.w3.org/TR/trace-context/#traceparent-header

A record's header comes from a stranger: what is not exactly as the standard writes it is no context, and never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TRACEPARENT: Final = "traceparent"
_SAMPLED: Final = 1
_WRITTEN: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_FIRST_VERSION: Final = b"00"
_NO_VERSION: Final = b"ff"
_TEXT_BYTES_MAX: Final = 512
"""A later version of the standard may append fields to the 55 bytes of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The position of a span in its trace."""

    trace_id: int
    """128 bits, never 0."""
    span_id: int
    """64 bits, never 0."""
    is_sampled: bool
    """Whether the parts of the trace are recorded."""

    @property
    def header(self) -> bytes:
        """The value of a `traceparent` header."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, int(self.is_sampled))


def parsed(value: bytes | None) -> TraceContext | None:
    """Returns the context in a header's value; None where there is none that the standard allows."""
    if value is None or len(value) > _TEXT_BYTES_MAX:
        return None
    match = _WRITTEN.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _NO_VERSION or (version == _FIRST_VERSION and more):
        return None
    context = TraceContext(
        trace_id=int(trace_id, 16), span_id=int(span_id, 16), is_sampled=bool(int(flags, 16) & _SAMPLED)
    )
    return context if context.trace_id and context.span_id else None


def context_in(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Returns the context in a record's headers. Of several `traceparent` headers the last one counts, as in Kafka."""
    context = None
    for name, value in headers:
        if name == TRACEPARENT:
            context = parsed(value)
    return context
