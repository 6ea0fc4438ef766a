"""Which outputs one query writes, and which it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.model.errors import ConfigError
from odradek.pipelines.outlining import outline_of_streams
from odradek.streams import Stream, Streams
from odradek.streams.plan.queries import PlannedQuery, planned_queries


def orders_of(app: Streams) -> Stream:
    return app.stream("orders", key="STRING", value="item STRING, amount DOUBLE")


def shape(query: PlannedQuery) -> tuple[str, str, dict[str, list[str]]]:
    tails = {operator.name: [sink.name for sink in sinks] for operator, sinks in query.tails.items()}
    return query.name, query.main.name, tails


def test_outputs_that_name_one_query_turn_off_on_the_way_to_the_one_that_needs_all_state() -> None:
    app = Streams("shop")
    users = app.table("users", key="STRING", value="name STRING", name="users")
    totals = orders_of(app).group_by("item").count(name="by-item")
    totals.to("totals", query="main", name="totals")
    totals.filter("value > 9").to("many", query="main", name="many")
    totals.join(users, name="named").to("named", query="main", name="to-named")
    orders_of(app).to("copies", name="copies")
    assert [shape(query) for query in planned_queries(app.program.ends)] == [
        ("main", "to-named", {"by-item": ["totals", "many"]}),
        ("copies", "copies", {}),
    ]
    main, _ = outline_of_streams(app.program).outputs
    assert (main.name, main.topics) == ("main", ("named", "totals", "many"))
    assert [state.name for state in main.states] == ["by-item", "named"]


def test_an_output_joins_the_query_of_another_by_its_name() -> None:
    app = Streams("shop")
    orders = orders_of(app)
    orders.filter("amount < 5").to("small", query="large")
    orders.filter("amount >= 5").to("large", name="large")
    (query,) = planned_queries(app.program.ends)
    assert query.name == "large"
    assert [end.name for end in query.ends] == ["to-1", "large"]


def state_aside(app: Streams) -> None:
    orders = orders_of(app)
    orders.group_by("item").count().to("items", query="q")
    orders.group_by("amount").count().to("amounts", query="q", name="amounts")


def other_sources(app: Streams) -> None:
    orders_of(app).to("a", query="q")
    orders_of(app).to("b", query="q", name="b")


def merged_aside(app: Streams) -> None:
    orders = orders_of(app)
    orders.group_by("item").count().to("items", query="q")
    orders.filter("amount < 5").merge(orders.filter("amount > 9")).to("ends", query="q", name="ends")


def shared_twice(app: Streams) -> None:
    totals = orders_of(app).group_by("item").count(name="totals")
    totals.join(totals.filter("value > 3"), prefix="r_").to("joined", query="q", name="joined")
    totals.to("totals", query="q", name="aside")


def called(app: Streams) -> None:
    orders = orders_of(app)
    orders.foreach(lambda record: None, name="q")
    orders.to("copies", query="q", name="copies")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (state_aside, "cannot write amounts: group-2|cannot write amounts: aggregate-2"),
        (other_sources, "cannot write b: stream-2 is not on the way"),
        (merged_aside, "cannot write ends: merge-1 is not on the way"),
        (shared_twice, "joined needs totals twice"),
        (called, "called like it"),
    ],
)
def test_outputs_that_one_query_cannot_write_are_refused(write: Callable[[Streams], None], said: str) -> None:
    app = Streams("refused")
    write(app)
    with pytest.raises(ConfigError, match=said) as refused:
        planned_queries(app.program.ends)
    assert "\n" not in str(refused.value)


def test_two_states_in_one_topic_are_refused_when_the_program_is_written() -> None:
    app = Streams("names")
    orders = orders_of(app)
    orders.group_by("item").count(name="x-op").to("first", name="out")
    table = orders.group_by("amount").count(name="op")
    table.to("third", name="out-y")
    with pytest.raises(ConfigError, match="'x-op' in 'out' and 'op' in 'out-x' would keep their state"):
        table.to("second", name="out-x")
