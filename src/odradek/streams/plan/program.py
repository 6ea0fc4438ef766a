"""A program (a topology) while it is written: its name, the names of its operators, and its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from odradek.dead_letters.processing_log import ProcessingLog
from odradek.model.errors import ConfigError
from odradek.streams.plan.arguments import checked_name
from odradek.streams.plan.describing import description
from odradek.streams.plan.operators import Emit, Operator
from odradek.streams.plan.queries import check_changelogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OnError: TypeAlias = Literal["fail", "skip", "dead-letter"]
"""The handling of a record that cannot be decoded, or for which code of the program raises."""


@dataclass(slots=True, kw_only=True)
class Program:
    """A program: its operators, outputs and settings.

    `partitions`: into how many tasks keys are divided. `options`: of `format("odradek")`, for reading and writing.
    """

    name: str
    servers: str | None
    partitions: int
    emit: Emit
    options: Mapping[str, str] = field(repr=False)
    spark: SparkSession | None
    on_error: OnError = "fail"
    bad: str | None = None
    """The topic of dead letters."""
    left_out_log: ProcessingLog | None = None
    """The processing log of records that on_error="skip" leaves out."""
    ends: list[Operator] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _numbers: Counter[str] = field(default_factory=Counter)

    def operator_name(self, kind: str, name: str | None) -> str:
        """Returns the user's name, or one of the kind and a number. ConfigError when it is taken."""
        if name is not None:
            checked_name(name, "name", "the name of an operator")
        else:
            self._numbers[kind] += 1
            name = f"{kind}-{self._numbers[kind]}"
        if name in self._names:
            raise ConfigError(f"two operators are called {name!r}: names must be unique")
        self._names.add(name)
        return name

    def emit_or_default(self, asked: Emit | None) -> Emit:
        """Returns an operator's own `emit`, or the program's default."""
        emit = self.emit if asked is None else asked
        if emit not in ("every", "latest"):
            raise ConfigError(f"emit is 'every' or 'latest', not {emit!r}")
        return emit

    def check_errors(self) -> None:
        """Raises ConfigError for an invalid `on_error` or `emit`, and where dead letters have no topic (`bad`)."""
        self.emit_or_default(None)
        if self.on_error not in get_args(OnError):
            raise ConfigError(f"on_error is one of {', '.join(get_args(OnError))}, not {self.on_error!r}")
        if self.on_error == "dead-letter" and self.bad is None:
            raise ConfigError("on_error='dead-letter' needs bad=, the topic of dead letters")

    def end(self, operator: Operator) -> None:
        """Adds a sink. ConfigError where states of operators cannot have a topic each."""
        check_changelogs(self.name, [*self.ends, operator])
        self.ends.append(operator)

    def describe(self) -> str:
        """Returns the text of `describing.description`."""
        return description(self.name, self.partitions, self.ends)
