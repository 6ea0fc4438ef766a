"""State of pipelines in changelog topics, against a real broker: shown, exported, carried to another version. No Spark."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.pipelines.conftest import document
from tests.unit.pipelines.test_state import kept
from tests.unit.pipelines.test_upgrade import outline, totals

from odradek import Admin, NewTopic, Producer
from odradek.cli.main import cli
from odradek.model.ids import TopicPartition
from odradek.pipelines.carrying import state_topics
from odradek.pipelines.document import Desired
from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.resetting import reset
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.pipelines.status_writer import StatusWriter
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.upgrade import UpgradeMode
from odradek.pipelines.upgrading import NextProgram, UpgradeRefused, preview, upgrade
from odradek.runtime.real_clock import SystemClock
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.exactly_once.driver import SinkDriver, last_decision
from odradek.spark.exactly_once.task import BatchName
from odradek.spark.options.sink_ids import group_of
from odradek.streams.restore.changelog_topics import AbandonedChangelogs
from odradek.testing import LocalBroker

Run = Callable[..., str]
_numbers = itertools.count()
NEVER_S = float("inf")


@pytest.fixture
def name() -> str:
    return f"s{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def store(bootstrap: str) -> Iterator[PipelineStore]:
    with PipelineStore(bootstrap) as store:
        yield store
        for name in store.documents():
            store.change(name, lambda before: None)


@pytest.fixture
def ran(store: PipelineStore, bootstrap: str, name: str) -> Callable[..., ProgramOutline]:
    """A pipeline whose program ran, as its supervisor published that."""

    def make(program: ProgramOutline, desired: Desired = Desired.STOPPED) -> ProgramOutline:
        store.change(name, lambda before: document(name, desired=desired))
        statuses = StatusWriter(bootstrap, SystemClock())
        statuses.publish(
            name,
            PipelineStatus(
                name=name,
                phase=Phase.STOPPED,
                revision=1,
                version=1,
                since_ms=0,
                supervisor="me",
                outline=program,
            ),
        )
        statuses.close()
        return program

    return make


def changelog(store: PipelineStore, program: ProgramOutline, partitions: int = 1) -> str:
    """The topic of a program's only state."""
    [place] = state_topics(program)
    store.admin.create_topics([NewTopic(place.topic, partitions, configs={"cleanup.policy": "compact"})])
    return place.topic


def write(bootstrap: str, topic: str, *rows: tuple[int, str, Any], committing: bool = True) -> None:
    """Rows of state, (task, key, value), in a transaction."""
    with Producer(bootstrap, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for task, key, value in rows:
            name, data = kept("aggregate", {"key": key}, value or 0)
            producer.send(topic, None if value is None else data, key=name, partition=task)
        producer.send(topic, b"17", key=b"clock", partition=0)
        (producer.commit_transaction if committing else producer.abort_transaction)()


def decide(admin: Admin, sink_id: str, topic: str, batch: int = 0) -> Decision:
    """A batch of a sink that wrote nothing and read a record of a topic."""
    driver = SinkDriver(admin, sink_id, transaction_timeout_s=NEVER_S)
    driver.decide(
        driver.begin(),
        BatchName(query="one", batch=batch),
        [],
        {group_of(sink_id): {TopicPartition(topic, 0): batch + 1}},
    )
    decided = last_decision(admin, sink_id)
    assert decided is not None
    return decided


def test_state_is_shown_and_exported_as_it_is_committed(
    run: Run,
    store: PipelineStore,
    bootstrap: str,
    name: str,
    ran: Callable[..., ProgramOutline],
    tmp_path: Path,
    errors: list[str],
) -> None:
    topic = changelog(store, ran(outline(totals(), name=name)), partitions=2)
    write(bootstrap, topic, (0, "bob", {"n": 1}), (1, "ann", {"n": 2}), (1, "eve", {"n": 9}))
    write(bootstrap, topic, (0, "bob", {"n": 3}), (1, "eve", None))
    write(bootstrap, topic, (0, "bob", {"n": 4}), committing=False)

    assert run("pipeline", "state", "show", name).splitlines() == [
        "part       key  value     task",
        'aggregate  ann  {"n": 2}     1',
        'aggregate  bob  {"n": 3}     0',
    ]
    assert run("pipeline", "state", "show", name, "totals", "--limit", "1").count("aggregate") == 1
    assert errors == [f"and more: --limit, --json, or `odradek pipeline state export {name} totals`"]
    lines = run("pipeline", "state", "show", name, "--json").splitlines()
    assert [(row["key"], row["value"]) for row in map(json.loads, lines)] == [
        ("ann", {"n": 2}),
        ("bob", {"n": 3}),
    ]
    for file in (tmp_path / "state.jsonl", tmp_path / "state.parquet"):
        run("pipeline", "state", "export", name, "totals", "--to", str(file))
        assert errors == [f"totals (output out): 2 rows to {file}"]
    assert (tmp_path / "state.jsonl").read_text().splitlines() == lines
    assert pq.read_table(tmp_path / "state.parquet").num_rows == 2
    run("pipeline", "state", "show", name, "sums", code=1)
    assert errors == [
        f"odradek: pipeline {name} has no operator 'sums' with state: there is totals (output out)"
    ]


@pytest.fixture
def carry(store: PipelineStore, name: str) -> Callable[[ProgramOutline], NextProgram]:
    return lambda program: NextProgram(file="/p.py", args=(), outline=program, continued=program)


def reasons(store: PipelineStore, name: str, program: NextProgram) -> tuple[str, ...]:
    verdicts = preview(store, store.document(name), program)
    return next(verdict.reasons for verdict in verdicts if verdict.mode is UpgradeMode.CARRY)


def test_state_is_carried_when_its_topic_is_there(
    store: PipelineStore,
    name: str,
    topic: Callable[..., str],
    ran: Callable[..., ProgramOutline],
    carry: Callable[[ProgramOutline], NextProgram],
) -> None:
    before = ran(outline(totals(), name=name))
    decide(store.admin, f"{name}.out", topic())
    [why] = reasons(store, name, carry(before))
    assert why.endswith("the state of 'totals' is in its checkpoint only")
    with pytest.raises(UpgradeRefused, match="cannot be upgraded by carry"):
        upgrade(store, name, carry(before), UpgradeMode.CARRY, by="ann", now_ms=1)
    changelog(store, before)
    changed = upgrade(store, name, carry(before), UpgradeMode.CARRY, by="ann", now_ms=1)
    assert (changed.current.way, changed.current.checkpoint) == ("carry", f"{name}/v2")


def test_an_operator_that_is_new_gets_an_empty_changelog_and_must_not_find_an_old_one(
    store: PipelineStore,
    bootstrap: str,
    name: str,
    topic: Callable[..., str],
    ran: Callable[..., ProgramOutline],
    carry: Callable[[ProgramOutline], NextProgram],
) -> None:
    changelog(store, ran(outline(totals(), name=name)))
    decide(store.admin, f"{name}.out", topic())
    other, another = (outline(totals(name=operator), name=name) for operator in ("old", "new"))
    write(bootstrap, changelog(store, other), (0, "ann", {"n": 1}))
    [why] = reasons(store, name, carry(other))
    assert "has state of an earlier version, which was not kept up to date since: delete it, or" in why
    upgrade(store, name, carry(another), UpgradeMode.CARRY, by="ann", now_ms=1)
    assert state_topics(another)[0].topic in store.admin.list_topics()


def test_a_changelog_that_was_left_is_current_until_the_next_decision(
    store: PipelineStore, name: str, topic: Callable[..., str]
) -> None:
    left = AbandonedChangelogs(store.admin, name)
    inputs, changelog = topic(), topic(**{"cleanup.policy": "compact"})
    first = decide(store.admin, name, inputs)
    left.note({changelog: "1"}, first)
    assert left.are_current(changelog, "1", first)
    second = decide(store.admin, name, inputs, batch=1)
    left.note({changelog: "1"}, second)
    assert not left.are_current(changelog, "1", second), "the first note counts"
    assert left.are_current(changelog, "2", second), "another topic of that name"
    left.resume(changelog)
    assert left.are_current(changelog, "1", second)


def test_a_pipeline_that_begins_again_has_no_state(
    store: PipelineStore, name: str, topic: Callable[..., str], ran: Callable[..., ProgramOutline]
) -> None:
    place = changelog(store, ran(outline(totals(), name=name)))
    decide(store.admin, f"{name}.out", topic())
    reset(store, name, emptying_outputs=False, by="ann", now_ms=1)
    assert place not in store.admin.list_topics()
    assert last_decision(store.admin, f"{name}.out") is None


def test_commands_log_in_to_a_broker_that_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "copy.py"
    file.touch()
    with LocalBroker(data=tmp_path / "data", secure=True) as broker:
        settings = str(tmp_path / "data" / "secure" / "client.properties")
        reach = ["-b", broker.address, "--command-config", settings]
        made = CliRunner().invoke(cli, ["pipeline", "run", str(file), *reach])
        assert made.exit_code == 0, made.exception
        assert "copy" in CliRunner().invoke(cli, ["pipeline", "list", *reach]).output
        shown = CliRunner().invoke(cli, ["pipeline", "state", "show", "copy", *reach])
        assert "start it once" in str(shown.exception)
