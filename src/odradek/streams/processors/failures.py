"""Exception handlers: a record that an operator cannot handle is an error, a line in the log, or a dead letter (KIP-1033)."""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.dead_letters.headers import RecordFailure
from odradek.model.errors import OdradekError
from odradek.model.exception_text import text_of
from odradek.model.lazy import lazy
from odradek.streams.plan.operators import TopicSource
from odradek.streams.plan.program import Program
from odradek.streams.processors.ports import Fields, InputRow

if TYPE_CHECKING:
    from odradek.spark.dead_letters import passing
else:
    passing = lazy("odradek.spark.dead_letters.passing")

log: Final = logging.getLogger("odradek.streams")
_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {"<frozen "}
)
_NOWHERE: Final = -1
"""Partition and offset of a letter that has no record: a redrive leaves such a letter in its topic."""


class RecordFailedError(OdradekError):
    """The program's own code raised for a record. The message names operator, topic, partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """The handling of failing records. `topic`: their dead letters go there; None: they are left out, and logged.
    `is_quiet`: another query of the program does that.
    """

    topic: str | None
    is_quiet: bool = False

    @property
    def passing_topic(self) -> str:
        """The topic of rows that pass through to the sink."""
        return passing.LOGGED if self.topic is None else self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRules:
    """The exception handlers (deserialization, processing) of one query of a program.

    `elsewhere`: operators whose letters another query writes.
    """

    program: Program
    elsewhere: frozenset[str] = frozenset()

    def of(self, operator: str) -> Letters | None:
        """Returns how an operator writes letters for records that it cannot handle; None: they end the query."""
        if self.program.on_error == "fail":
            return None
        topic = self.program.bad if self.program.on_error == "dead-letter" else None
        return Letters(topic=topic, is_quiet=operator in self.elsewhere)

    def of_source(self, source: TopicSource) -> Letters | None:
        """Returns how a source writes letters for bytes that it cannot decode; None: they end the query."""
        if source.bad is not None:
            return Letters(topic=source.bad, is_quiet=source.name in self.elsewhere)
        return self.of(source.name)


class RecordOrigins(Protocol):
    """Records as they were read, by source, partition and offset."""

    def get(self, coordinates: tuple[int, ...], /) -> Any:
        """Returns a dict with the fields of `translation.letters.ORIGIN_TYPE`; None where it is not known."""


@dataclass(slots=True, kw_only=True)
class FailedRows:
    """The failed rows of one operator, batch and task. `letters` None: the first ends the query. `topics`: by source number."""

    operator: str
    letters: Letters | None
    topics: Mapping[int, str]
    origins: RecordOrigins = field(default_factory=dict[tuple[int, ...], Any])
    packed: list[bytes] = field(default_factory=list)
    """Dead letters, as `odradek.spark.dead_letters.passing` has them."""

    def error_of(self, row: InputRow, error: Exception) -> RecordFailedError:
        """Returns the error that ends the query."""
        source, partition, offset = row.order[1:4]
        coordinates = f"{self.topics.get(source, f'source {source}')}-{partition} offset {offset}"
        return RecordFailedError(f"{self.operator} failed at {coordinates}: {_described(error)}")

    def error_of_timer(self, key: Fields, time: int, error: Exception) -> RecordFailedError:
        """Returns the error that ends the query for a timer that failed."""
        failed = f"{self.operator} failed at {_time_of(key, time)}"
        return RecordFailedError(f"{failed}: {_described(error)}")

    def add(self, row: InputRow, error: Exception) -> None:
        """Adds a failed row; raises RecordFailedError where failures end the query."""
        if not self._is_written(self.error_of(row, error), error):
            return
        source, partition, offset = row.order[1:4]
        origin = self.origins.get((source, partition, offset))
        if origin is None:  # of a row that does not carry it
            topic = self.topics.get(source, self.operator)
            origin = _origin(topic, partition, offset, row.timestamp)
        self.packed.append(passing.failure_json(origin, RecordFailure.of(error, self.operator)))

    def add_timer(self, key: Fields, time: int, error: Exception) -> None:
        """Adds a timer that failed. Its letter has no record that could be sent back."""
        if not self._is_written(self.error_of_timer(key, time, error), error):
            return
        failure = RecordFailure.of(error, self.operator)
        failure = replace(failure, message=f"{_time_of(key, time)}: {failure.message}")
        origin = _origin(self.operator, _NOWHERE, _NOWHERE, time)
        self.packed.append(passing.failure_json(origin, failure))

    def _is_written(self, failed: RecordFailedError, error: Exception) -> bool:
        if self.letters is None:
            raise failed from None
        if self.letters.is_quiet:
            return False
        if self.letters.topic is None:
            log.warning("left out: %s", failed)
        return self.letters.topic is not None


def _described(error: Exception) -> str:
    """Describes what was raised, with the line of the program that raised it."""
    line = _line_of_program(error)
    return f"{type(error).__name__}: {text_of(error)}" + (f" ({line})" if line else "")


def _line_of_program(error: Exception) -> str | None:
    """Returns the innermost line that is the program's own: neither ours nor a library's, unless there are only such."""
    others = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_in(frame, _OURS)]
    own = [frame for frame in others if not any(_is_in(frame, library) for library in _LIBRARIES)]
    if not others:
        return None
    frame = own[-1] if own else others[0]
    code = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}{code}"


def _is_in(frame: traceback.FrameSummary, directory: str) -> bool:
    return frame.filename.startswith(directory)


def _time_of(key: Fields, time: int) -> str:
    values = list(key.values())
    return f"time {time} of key {values[0] if len(values) == 1 else key!r:.200}"


def _origin(topic: str, partition: int, offset: int, timestamp: int) -> dict[str, object]:
    coordinates = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
    return {**coordinates, "key": None, "value": None, "headers": None}
