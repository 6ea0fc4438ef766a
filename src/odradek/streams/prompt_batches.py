"""Batches that begin when records come, and not at Spark's next trigger: which source of a query waits for them, and how long.

A program commits at most once in an interval while it is busy. After a pause its first records would wait for the next
trigger, half an interval on average; so a source waits for them within the trigger (`spark/reading/trigger_wait.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.model.errors import ConfigError
from odradek.streams.plan.keyed import Processed
from odradek.streams.plan.operators import FrameSource, Operator, TopicSource, walk
from odradek.streams.plan.windows import milliseconds
from odradek.streams.processors.custom import has_wall_clock_timers

INTERVAL_MS_MAX: Final = 1_000
"""The longest interval within which a source waits. A longer one is chosen to have fewer and larger batches."""
_MARGIN_MS: Final = 25
"""The part of an interval in which nothing waits: Spark asks all sources, and is ready for the next trigger in time."""


def prompt_batches(ends: Iterable[Operator], interval: str) -> dict[TopicSource, Mapping[str, str]]:
    """Returns the options of the source that waits for all of a query; none where the clock decides when its batches run.

    Spark asks the sources in the order of the plan. The first one waits, so that the others are asked after it.
    """
    operators = list(walk(*ends))
    sources = [operator for operator in operators if isinstance(operator, TopicSource)]
    wait_ms = _interval_ms(interval) - _MARGIN_MS
    if not sources or not 0 < wait_ms < INTERVAL_MS_MAX or any(map(_needs_triggers, operators)):
        return {}
    first = sources[0]
    topics = sorted({source.topic for source in sources} - {first.topic})
    beside = {"triggerWaitTopics": ",".join(topics)} if topics else {}
    return {first: {"triggerWaitMs": str(wait_ms), **beside}}


def _interval_ms(interval: str) -> int:
    """Returns 0 for the forms of an interval that only Spark reads."""
    try:
        return milliseconds(interval, "interval")
    except ConfigError:
        return 0


def _needs_triggers(operator: Operator) -> bool:
    """Tells whether an operator counts on triggers: what is due on the clock, and a DataFrame of the user's, which nothing here
    can wait for.
    """
    if isinstance(operator, Processed):
        return has_wall_clock_timers(operator.processor)
    window = getattr(operator, "window", None)
    return isinstance(operator, FrameSource) or (window is not None and window.idle_ms is not None)
