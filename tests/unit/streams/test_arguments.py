"""Each argument of each method that a program is written with: a wrong one is an error as the program is written.

The methods and their parameters come from the classes, so that a parameter that is added needs a rule here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import check_topic_name
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

ILLEGAL_NAMES: Final = (
    "",
    "  ",
    "a b",
    "a/b",
    "..",
    ".",
    "../a",
    "a\\b",
    "a\n",
    "a\0",
    "é",
    "x" * 250,
    "%2e",
    "a:b",
)
"""They would be parts of topics' names and of paths."""

WRONG: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("name: str", (5, *ILLEGAL_NAMES)),
    ("topic: str", (5, "", "a b", ("a", "b"))),
    ("bad: str", (5, "", "a/b")),
    ("query: str", (5, *ILLEGAL_NAMES)),
    ("of: str", (5, "", price, None)),
    ("prefix: str", (5, None)),
    ("schema: str", NO_DDL),
    ("key: str", NO_DDL),
    ("value: str", NO_DDL),
    ("servers: str", (["a:1"], 5, "")),
    ("Expression", NO_EXPRESSION),
    ("*aggregates: str", NO_EXPRESSION),
    ("gap: Length", (0, "0 seconds", timedelta(0), -1, 2**62)),
    ("idle_timeout: Length", (0, "0 ms", "0 seconds", -1, "5 minuets")),
    ("every: Length", (0, "0 seconds", 6, -1)),
    ("Length", ("999999999999999 weeks", 2**62, 1.5, True, "5 minuets", -1, str, timedelta(microseconds=1))),
    ("TimeLimit", ("5 minutes", timedelta(minutes=5), 5, None)),
    ("Emit", ("all", True)),
    ("OnError", ("ignore", True)),
    ("JoinKind", ("right", "full", 5, None)),
    ("Format", ("avro", Avro, 5, None)),
    ("processor: Processor", (Silent, price, None, 5)),
    ("fold: Fold", (price, Silent, None)),
    ("outputs: Mapping", ("a=b", ["a"], *({name: "INT"} for name in ILLEGAL_NAMES))),
    ("Mapping", ("a=b", ["a"])),
    ("keeps_nulls: bool", ("yes", 1, None)),
    ("null_stays: bool", ("yes", 1, None)),
    ("partitions: int", ("4", 0, 1.5, True, None)),
    ("Callable", (5, "x")),
    ("Initializer", (5, "x")),
    ("Aggregator", (5, "x")),
    ("Reducer", (5, "x")),
    ("Merger", (5, "x")),
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


@pytest.mark.parametrize("size", [0, "0 seconds", timedelta(0)])
def test_only_sliding_windows_have_no_size(size: Any) -> None:
    """As in Kafka Streams: records of one instant lie in one sliding window, and can be joined."""
    made = Made()
    made.grouped.sliding(size).count()
    made.stream.join(made.stream.filter("n > 1"), within=size)
    made.app.table("versions", key="STRING", value="n INT", versioned=size)
    with pytest.raises(ConfigError, match=r"window is .*; it is 1 ms or longer"):
        made.grouped.window(size)


@given(st.text(max_size=300))
@example("a" * 249)
@example("A.b_c-9")
def test_names_are_those_that_a_topic_may_have(name: str) -> None:
    """They become parts of topics' names, of checkpoint paths, and of transactional ids."""
    try:
        check_topic_name(name)
        is_legal = True
    except KafkaError:
        is_legal = False
    uses: tuple[Callable[[], Any], ...] = (
        lambda: Streams(name),
        lambda: Made().stream.filter("n > 1", name=name),
        lambda: Made().stream.to("out", query=name),
        lambda: Made().grouped.process(Silent(), outputs={name: "INT"}, name="p"),
    )
    for use in uses:
        try:
            use()
            is_taken, line = True, ""
        except ConfigError as error:
            is_taken, line = False, str(error)
        assert "\n" not in line
        assert is_taken == is_legal or (len(name) > 240 and is_legal)


@pytest.mark.parametrize("lengths", [(249, 1, 1), (100, 100, 100), (1, 1, 240), (1, 249, 1)])
def test_a_state_whose_topic_would_have_too_long_a_name_is_refused(lengths: tuple[int, int, int]) -> None:
    program, operator, sink = ("x" * length for length in lengths)
    counts = (
        Streams(program).stream("orders", key="STRING", value="n INT").group_by_key().count(name=operator)
    )
    with pytest.raises(ConfigError, match=r"needs a topic whose name has [23][0-9]{2} characters"):
        counts.to("out", name=f"y{sink}"[:249])


def test_the_longest_names_are_taken() -> None:
    stream = Streams("a").stream("orders", key="STRING", value="n INT")
    stream.group_by_key().count(name="b" * (249 - len("a.c--changelog"))).to("out", name="c")
