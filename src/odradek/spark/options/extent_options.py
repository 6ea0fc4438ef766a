"""Parses the options that define where a read starts and ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import ParsedOptions, Use
from odradek.spark.options.positions import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    KnownPosition,
    Position,
    UniformPosition,
    partition_numbers,
)
from odradek.spark.options.sink_ids import group_of, sink_id_in

_TIMESTAMP_MS_MAX: Final = (1 << 63) - 1


def starting(parsed: ParsedOptions, use: Use) -> Position:
    """Returns the position where a read starts."""
    sink_id = _sink_to_resume(parsed)
    position = _without_decision(parsed, use)
    if sink_id is None:
        return position
    if isinstance(position, AtGroup):
        raise ConfigError(
            "resume=true starts from the last decision of its sink, and startingOffsets=group:NAME from a group: give one of"
            " them"
        )
    return AtGroup(group=group_of(sink_id), otherwise=position)


def _sink_to_resume(parsed: ParsedOptions) -> str | None:
    """Returns the sink whose last decision a read starts from."""
    if not parsed.flag("resume"):
        if parsed.text("sinkId") is not None:
            raise ConfigError("option sinkId of a read is only of use with resume=true")
        return None
    need = "resume=true needs the name of the sink that the query writes to: set the option sinkId"
    return sink_id_in(parsed.text("sinkId") or "", need)


def _group_in(text: str) -> str | None:
    """Returns the group that `group:NAME` names."""
    prefix, colon, name = text.strip().partition(":")
    if not colon or prefix.strip().lower() != "group":
        return None
    if not name.strip():
        raise ConfigError("option startingOffsets=group:NAME names no group")
    return name.strip()


def _without_decision(parsed: ParsedOptions, use: Use) -> Position:
    by_time = _position_by_time(parsed, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = parsed.text("startingOffsets")
    streaming = use is Use.STREAM_READ
    if text is None:
        return UniformPosition(bound=LATEST if streaming else EARLIEST)
    group = _group_in(text)
    if group is not None:
        return AtGroup(group=group)
    position = _position_by_offset(text, "startingOffsets")
    if use is Use.BATCH_READ and _mentions(position, LATEST):
        raise ConfigError(
            "option startingOffsets of a batch read cannot be latest (-1): there would be nothing to read"
        )
    return position


def ending(parsed: ParsedOptions) -> KnownPosition:
    """Returns the position where a batch read ends."""
    by_time = _position_by_time(parsed, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = parsed.text("endingOffsets")
    position = UniformPosition(bound=LATEST) if text is None else _position_by_offset(text, "endingOffsets")
    if _mentions(position, EARLIEST):
        raise ConfigError("option endingOffsets cannot be earliest (-2): there would be nothing to read")
    return position


def _mentions(position: KnownPosition, bound: int) -> bool:
    if isinstance(position, UniformPosition):
        return position.bound == bound
    return isinstance(position, AtOffsets) and bound in position.offsets.values()


def _position_by_offset(text: str, option: str) -> KnownPosition:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return UniformPosition(bound=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        or_group = ", group:NAME" if option == "startingOffsets" else ""
        raise ConfigError(
            f"option {option} is earliest, latest{or_group} or JSON like {{'topic': {{'0': 23}}}}, not {text!r}"
        )
    offsets = partition_numbers(text, option)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ConfigError(
                f"option {option}: {offset} for {partition} is no offset, nor -2 (earliest), nor -1 (latest)"
            )
    return AtOffsets(offsets=offsets)


def _position_by_time(parsed: ParsedOptions, everywhere: str, name: str) -> KnownPosition | None:
    timestamp_ms = parsed.number_or_none(everywhere)
    if timestamp_ms is not None:
        _check_moments((timestamp_ms,), everywhere)
        return AtTime(timestamp_ms=timestamp_ms)
    text = parsed.text(name)
    if text is None:
        return None
    timestamps = partition_numbers(text, name)
    if any(moment < 0 for moment in timestamps.values()):
        raise ConfigError(f"option {name} holds a negative timestamp; it takes milliseconds since 1970")
    _check_moments(timestamps.values(), name)
    return AtTimes(timestamps_ms=timestamps)


def _check_moments(moments: Iterable[int], option: str) -> None:
    if any(moment > _TIMESTAMP_MS_MAX for moment in moments):
        raise ConfigError(
            f"option {option} holds {max(moments)}, which is too large: it takes milliseconds since 1970, of 64 bits"
        )
