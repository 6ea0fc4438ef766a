"""Ids of exactly-once sinks, and the consumer groups whose committed offsets are their decisions."""

from __future__ import annotations

import re
from typing import Final

from odradek.model.errors import ConfigError

GROUP_PREFIX: Final = "__odradek_sink."
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def sink_id_in(text: str, need: str) -> str:
    """Returns a sink's name, without blanks around it. ConfigError: `need` where there is none."""
    sink_id = text.strip()
    if not sink_id:
        raise ConfigError(need)
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigError(
            f"option sinkId takes 1 to 200 letters, digits, dots, dashes and underscores, not {sink_id!r:.80}"
        )
    return sink_id


def group_of(sink_id: str) -> str:
    """Returns the group whose offsets are the sink's decisions."""
    return GROUP_PREFIX + sink_id
