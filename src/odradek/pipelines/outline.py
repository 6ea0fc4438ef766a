"""The parts of a program that decide whether another can continue it: outputs, sources, operators with state. Plain values.

A running program reports its outline, and the supervisor stores it in the status; so it can be compared with a new program
even when its file has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self, TypeVar

T = TypeVar("T")


class ProgramKind(StrEnum):
    """The kind of program that a file defines."""

    STREAMS = "streams"
    """`app`."""
    PYSPARK = "pyspark"
    """`pipeline(spark)`: its queries are not known before it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOutline:
    """A topic that is read. `name` is the source's name in Spark's checkpoint."""

    name: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOutline:
    """An operator with state. Two whose kind and shape are equal understand each other's state."""

    name: str
    kind: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOutline:
    """A query of the program."""

    name: str
    topic: str | None
    """The topic; None: a function is called, or an expression names the topic."""
    is_topic: bool
    sources: tuple[SourceOutline, ...]
    states: tuple[StateOutline, ...]
    """The states, in the order of the plan: Spark identifies state by this order."""
    sources_named: bool
    """Spark's checkpoint knows its sources by their names."""
    other_topics: tuple[str, ...] = ()
    """The topics of other outputs that the same query writes."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that it writes to, as far as the program names them."""
        return (*((self.topic,) if self.topic is not None else ()), *self.other_topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutline:
    """A program."""

    kind: ProgramKind
    app: str = ""
    """Sinks and topics of state are called after it."""
    partitions: int = 1
    outputs: tuple[OutputOutline, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that it reads, ordered by name."""
        return tuple(sorted({source.topic for output in self.outputs for source in output.sources}))

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the outline of parsed JSON. KeyError, TypeError or ValueError for other data."""
        return cls(
            kind=ProgramKind(content["kind"]),
            app=_typed(content["app"], str),
            partitions=_typed(content["partitions"], int),
            outputs=tuple(
                OutputOutline(
                    name=_typed(output["name"], str),
                    topic=None if output["topic"] is None else _typed(output["topic"], str),
                    is_topic=_typed(output["is_topic"], bool),
                    sources=tuple(SourceOutline(**_texts(source)) for source in output["sources"]),
                    states=tuple(StateOutline(**_texts(state)) for state in output["states"]),
                    sources_named=_typed(output["sources_named"], bool),
                    other_topics=tuple(_typed(topic, str) for topic in output.get("other_topics", ())),
                )
                for output in content["outputs"]
            ),
        )


def _typed(content: object, kind: type[T]) -> T:
    if not isinstance(content, kind) or (kind is int and isinstance(content, bool)):
        raise TypeError(f"{content!r:.100} is no {kind.__name__}")
    return content


def _texts(content: Mapping[str, object]) -> dict[str, str]:
    return {name: _typed(text, str) for name, text in content.items()}


def unknown_output(name: str) -> OutputOutline:
    """Returns a query of which nothing is known but its name."""
    return OutputOutline(name=name, topic=None, is_topic=False, sources=(), states=(), sources_named=False)
