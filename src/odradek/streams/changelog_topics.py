"""What changelog topics are called. No Spark."""

from __future__ import annotations

from typing import Final

SUFFIX: Final = "-changelog"


def changelog_topic(sink_id: str, operator: str) -> str:
    """Of an operator, in the query that writes to a sink: each query has a state of its own."""
    return f"{sink_id}-{operator}{SUFFIX}"
