"""Each argument of each method that a program is written with: a wrong one is an error as the program is written.

The methods and their parameters come from the classes, so that a parameter that is added needs a rule here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from odradek.model.errors import ConfigError
from odradek.streams import Avro, Processor, Streams, time_limit
from odradek.streams.grouped import CogroupedStream, GroupedStream
from odradek.streams.language import Stream, Table
from odradek.streams.plan.arguments import unread_topics
from odradek.streams.processors.aggregate import SqlFold


class Silent(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> None: ...


def price(*values: Any) -> Any:
    return values


ANYTHING: Final = (5, "x", None, Silent())
NO_EXPRESSION: Final = (price, str, 5, {"a": 1}, "", "  ")
NO_DDL: Final = (str, {"n": "INT"}, 5, "STRNG", "n INT m INT")

WRONG: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("name: str", (5, "", "  ")),
    ("topic: str", (5, "", "a b", ("a", "b"))),
    ("bad: str", (5, "", "a/b")),
    ("query: str", (5, "")),
    ("of: str", (5, "", price, None)),
    ("prefix: str", (5, None)),
    ("schema: str", NO_DDL),
    ("key: str", NO_DDL),
    ("value: str", NO_DDL),
    ("servers: str", (["a:1"], 5, "")),
    ("Expression", NO_EXPRESSION),
    ("*aggregates: str", NO_EXPRESSION),
    ("Length", (1.5, True, "5 minuets", -1, str, timedelta(microseconds=1))),
    ("TimeLimit", ("5 minutes", timedelta(minutes=5), 5, None)),
    ("Emit", ("all", True)),
    ("OnError", ("ignore", True)),
    ("JoinKind", ("right", "full", 5, None)),
    ("Format", ("avro", Avro, 5, None)),
    ("processor: Processor", (Silent, price, None, 5)),
    ("fold: Fold", (price, Silent, None)),
    ("Mapping", ("a=b", ["a"])),
    ("partitions: int", ("4", 0, 1.5, True, None)),
    ("Callable", (5, "x")),
    ("Stream", ANYTHING),
    ("Table", ANYTHING),
)
"""What a parameter and its annotation begin with or hold, and what is wrong there. The first one counts."""

FREE: Final = {"label", "otherwise", "svg", "spark", "frame"}
"""Parameters that take anything, or what only Spark knows."""

GIVEN: Final[dict[str, Any]] = {
    "condition": "n > 1",
    "value": "n",
    "key": "n",
    "milliseconds": "n",
    "elements": "array(n)",
    "look": print,
    "call": print,
    "topic": "orders",
    "size": 5,
    "gap": 5,
    "of": "n",
    "add": price,
    "start": dict,
    "schema": "INT",
    "processor": Silent(),
    "like": lambda grouped: grouped.window(5),
    "until": time_limit(5),
    "by": "n",
    "name": "made",
    "frame": None,
    "fold": SqlFold(()),
}
"""What a parameter that must be given gets, where another one is wrong."""

SKIPPED: Final = {(Stream, "through"), (Streams, "test"), (Streams, "start"), (Streams, "describe")}
"""These need Spark, or say nothing that a plan holds."""


class Made:
    """A program with one object of each kind."""

    def __init__(self) -> None:
        self.app = Streams("arguments")
        self.stream = self.app.stream("orders", key="STRING", value="n INT")
        self.table = self.app.table("users", key="STRING", value="n INT")
        self.grouped = self.stream.group_by_key()
        self.objects: dict[type, Any] = {
            Streams: self.app,
            Stream: self.stream,
            Table: self.table,
            GroupedStream: self.grouped,
            CogroupedStream: self.grouped.cogroup(price),
        }

    def given(self, name: str, *, of_streams: bool) -> Any:
        """What a parameter gets where another one is wrong."""
        if name == "other":
            return self.stream.filter("n > 1") if of_streams else self.table.filter("n > 1")
        return GIVEN[name]


def public_methods(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if (not name.startswith("_") or name == "__init__") and (kind, name) not in SKIPPED:
            yield name, inspect.signature(method)


def wrong_values(parameter: inspect.Parameter) -> tuple[Any, ...]:
    text = f"{'*' * (parameter.kind is parameter.VAR_POSITIONAL)}{parameter.name}: {parameter.annotation}"
    for pattern, values in WRONG:
        begins = text.startswith(pattern) if ":" in pattern else pattern in text
        if begins:
            return values if "None" not in text else tuple(value for value in values if value is not None)
    raise AssertionError(f"no rule says what is wrong for {text}")


def cases() -> Iterator[Any]:
    for kind in (Stream, Table, GroupedStream, CogroupedStream, Streams):
        for method, signature in public_methods(kind):
            if kind is not Streams and method in ("__init__", "cogrouped", "check_cogroup"):
                continue
            for parameter in list(signature.parameters.values())[1:]:
                if parameter.name not in FREE:
                    yield pytest.param(
                        kind, method, parameter.name, id=f"{kind.__name__}.{method}-{parameter.name}"
                    )


def call(kind: type, method: str, argument: str, value: Any) -> None:
    """Calls the method with one wrong argument; whatever else it needs is right."""
    made = Made()
    several: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    of_streams = argument in ("before", "after", "grace", "within")
    for parameter in list(inspect.signature(getattr(kind, method)).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            right = made.stream.filter("n > 1") if parameter.name == "others" else "count(n) AS n"
            several = (value if parameter.name == argument else right,)
        elif parameter.name == argument:
            named[argument] = value
        elif parameter.default is parameter.empty:
            named[parameter.name] = made.given(parameter.name, of_streams=of_streams)
    if method == "to" and argument != "by":
        named.setdefault("topic", "out")
    if method == "process" and argument != "outputs":
        named.setdefault("schema", "INT")
    if method == "join" and of_streams:
        named.setdefault("within", 5)
    if kind is CogroupedStream and method == "cogroup" and argument == "add":
        named["other"] = made.grouped
    function: Callable[..., Any] = Streams if method == "__init__" else getattr(made.objects[kind], method)
    function(*several, **named)


@pytest.mark.parametrize(("kind", "method", "argument"), list(cases()))
def test_a_wrong_argument_is_an_error_as_the_program_is_written(
    kind: type, method: str, argument: str
) -> None:
    parameter = inspect.signature(getattr(kind, method)).parameters[argument]
    for value in wrong_values(parameter):
        with pytest.raises(ConfigError) as refused:
            call(kind, method, argument, value)
        said = str(refused.value)
        assert "\n" not in said
        assert len(said) < 400, said


@pytest.mark.parametrize(
    "mixed",
    [
        lambda first, other: first.stream.merge(other.stream),
        lambda first, other: first.stream.join(other.table),
        lambda first, other: first.stream.join(other.stream, within=5),
        lambda first, other: first.stream.join(other.app.global_table("all", key="STRING", value="INT")),
        lambda first, other: first.table.join(other.table),
        lambda first, other: first.table.join(other.table, on="n"),
        lambda first, other: first.grouped.window(5).count().join_windows(other.table, "key"),
        lambda first, other: first.grouped.cogroup(price).cogroup(other.grouped, price),
    ],
)
def test_streams_of_two_programs_do_not_meet(mixed: Callable[[Made, Made], Any]) -> None:
    """Their operators may have the same names, and their state would be one."""
    with pytest.raises(ConfigError, match="belongs to another program, 'arguments'"):
        mixed(Made(), Made())


def test_a_topic_that_starts_somewhere_and_is_not_read_is_said() -> None:
    assert unread_topics({"orders": "latest"}, ["orders", "users"]) == []
    assert unread_topics({"odrers": "latest"}, ["orders", "users"]) == [
        "starting= names the topic 'odrers', which the program does not read; it reads orders, users; did you mean orders?"
    ]
