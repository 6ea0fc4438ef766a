"""Snapshots of the command topic: what a server begins with, what is deleted, and what a kill or damage leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.sql.service_of_commands import CommandService

from odradek.client import Admin, Consumer, ConsumerRecord, NewTopic, Producer
from odradek.client.admin.ensured_topics import ensure_topic
from odradek.client.consumer.aio import AsyncConsumer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.sql.server.command_log import command_topic, snapshot_records
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.snapshot_records import KEY
from odradek.sql.server.command_log.state import ServiceState
from odradek.sql.server.command_log.state_format import state_content
from odradek.testing import LocalBroker

ROOT = Path(__file__).resolve().parents[3]
STEPS = (
    "init_transactions:1:before",
    "init_transactions:1:after",
    "send:1:before",
    "send:1:after",
    "send:2:after",
    "commit:1:before",
    "commit:1:after",
    "delete_records:1:before",
    "delete_records:1:after",
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


def stream(name: str) -> str:
    return f"CREATE STREAM {name} (k STRING KEY, a INT) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON')"


def partition_of(service_id: str) -> TopicPartition:
    return TopicPartition(f"_odradek-sql-{service_id}-commands", 0)


def begin_of(servers: str, service_id: str) -> int:
    with Admin(servers) as admin:
        return admin.list_offsets({partition_of(service_id): -2})[partition_of(service_id)].offset


def records_of(servers: str, service_id: str) -> list[ConsumerRecord[bytes, bytes]]:
    partition = partition_of(service_id)
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        records: list[ConsumerRecord[bytes, bytes]] = []
        while consumer.position(partition) < end:
            records += consumer.poll(1.0)
    return records


def snapshots_of(servers: str, service_id: str) -> list[int]:
    return [record.offset for record in records_of(servers, service_id) if record.key == KEY]


class Written:
    """Writes commands to a topic without a server, and keeps the state that the whole history makes."""

    def __init__(self, servers: str, service_id: str) -> None:
        self._servers = servers
        self._topic = partition_of(service_id).topic
        self.state = ServiceState()
        with Admin(servers) as admin:
            ensure_topic(admin, NewTopic(self._topic, 1))

    def write(self, *texts: str) -> None:
        with Producer(self._servers) as producer:
            for text in texts:
                command = SqlCommand(command_id=f"id/{text}", statement=text)
                sent = producer.send_and_wait(
                    self._topic, command.to_bytes(), key=command.command_id.encode(), partition=0
                )
                assert self.state.replay(sent.offset, command) is not None

    @property
    def content(self) -> bytes:
        return state_content(self.state)


CHURN = ("CREATE TYPE churn AS INT", "DROP TYPE churn") * 4


async def with_snapshots(servers: str, service_id: str, count: int = 2) -> bytes:
    """Writes a history with commands before each snapshot, and after the last. Returns the content of its state."""
    written = Written(servers, service_id)
    for number in range(count):
        written.write(stream(f"s{number}"), f"CREATE STREAM c{number} AS SELECT * FROM s{number}", *CHURN)
        if number:
            written.write(f"DROP STREAM c{number - 1}")
        await snapshot_of(servers, service_id)
    written.write("TERMINATE ALL", stream("last"), "CREATE STREAM after AS SELECT * FROM last")
    return written.content


async def snapshot_of(servers: str, service_id: str) -> None:
    async with CommandService(servers, service_id, commands_between=1) as service:
        assert service.topic.is_snapshot_due()
        await service.topic.write_snapshot()  # unless the start has written it
        assert not service.topic.is_snapshot_due()


async def state_of_a_new_server(servers: str, service_id: str) -> tuple[bytes, list[int]]:
    """Returns the content of its state, and the offsets of the commands that it applied one by one."""
    async with CommandService(servers, service_id) as service:
        return state_content(service.state), service.applied


async def test_a_server_begins_with_the_last_snapshot_and_what_is_older_than_the_one_before_is_deleted(
    servers: str,
) -> None:
    content = await with_snapshots(servers, "compacted")
    first, second = snapshots_of(servers, "compacted")
    assert begin_of(servers, "compacted") == first
    again, applied = await state_of_a_new_server(servers, "compacted")
    assert again == content
    assert len(applied) == 3
    assert min(applied) > second


async def test_nothing_is_deleted_while_there_is_one_snapshot(servers: str) -> None:
    content = await with_snapshots(servers, "single", 1)
    assert begin_of(servers, "single") == 0
    again, applied = await state_of_a_new_server(servers, "single")
    assert (again, len(applied)) == (content, 3)


async def test_ids_of_queries_count_on_after_the_commands_before_are_deleted(servers: str) -> None:
    await with_snapshots(servers, "counting")
    async with CommandService(servers, "counting") as service:
        offset = await service.write("CREATE STREAM newest AS SELECT * FROM last")
        assert offset is not None
        assert offset > max(snapshots_of(servers, "counting"))
        assert f"CSAS_NEWEST_{offset}" in service.state.catalog.queries
        content = state_content(service.state)
    assert (await state_of_a_new_server(servers, "counting"))[0] == content


async def test_an_id_that_an_older_command_has_given_is_not_generated(servers: str) -> None:
    """An older server took QUERY_ID='INSERTQUERY_2', and the command at offset 2 generated the same id, and was refused."""
    written = Written(servers, "given-ids")
    insert = "INSERT INTO s SELECT * FROM s"
    written.write(stream("s"), "INSERT INTO s WITH (QUERY_ID='INSERTQUERY_2') SELECT * FROM s")
    written.write(insert, "INSERT INTO s WITH (QUERY_ID='csas_c_4') SELECT * FROM s")
    written.write("CREATE STREAM c AS SELECT * FROM s")
    ids = ["INSERTQUERY_2", "INSERTQUERY_2_2", "CSAS_C_4", "CSAS_C_4_2"]
    assert list(written.state.catalog.queries) == list(written.state.runs) == ids
    assert written.state.refused is None
    await snapshot_of(servers, "given-ids")
    written.write(insert)
    content, applied = await state_of_a_new_server(servers, "given-ids")
    assert content == written.content
    assert len(applied) == 1  # the others are in the snapshot


async def test_a_snapshot_is_written_when_there_are_enough_commands_and_as_many_as_objects(
    servers: str,
) -> None:
    async with CommandService(servers, "due", commands_between=2) as service:
        for number in range(12):
            await service.write(stream(f"s{number}"))
        await service.topic.write_snapshot()
    after = [_header(record)["after"] for record in records_of(servers, "due") if record.key == KEY]
    assert len(after) in (
        2,
        3,
        4,
    )  # after 2, 4 and 8 commands, or a little later: they are written beside the commands


async def test_servers_that_write_at_once_lose_no_command_and_have_equal_states(servers: str) -> None:
    async with (
        CommandService(servers, "several", commands_between=2) as first,
        CommandService(servers, "several", commands_between=2) as second,
    ):
        await asyncio.gather(
            *(
                service.write(stream(f"{name}{number}"))
                for number in range(5)
                for name, service in (("a", first), ("b", second))
            )
        )
        last = max(record.offset for record in records_of(servers, "several"))
        await first.topic.wait_for(last)
        await second.topic.wait_for(last)
        assert len(first.state.catalog.sources) == 10
        assert state_content(first.state) == state_content(second.state)
        content = state_content(first.state)
    assert (await state_of_a_new_server(servers, "several"))[0] == content


async def test_a_server_whose_next_commands_are_deleted_goes_on_with_a_snapshot(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers: list[AsyncConsumer[bytes, bytes]] = []

    def consumer(*arguments: object, **keywords: object) -> AsyncConsumer[bytes, bytes]:
        consumers.append(AsyncConsumer(*arguments, **keywords))  # type: ignore[arg-type]
        return consumers[-1]

    with monkeypatch.context() as patched:
        patched.setattr(command_topic, "AsyncConsumer", consumer)
        slow = CommandService(servers, "slow")
        await slow.__aenter__()
    try:
        consumers[0].pause([partition_of("slow")])
        content = await with_snapshots(servers, "slow", 3)
        last = max(record.offset for record in records_of(servers, "slow"))
        consumers[0].resume([partition_of("slow")])
        await slow.topic.wait_for(last)
        assert state_content(slow.state) == content
        assert min(slow.applied[-3:]) > max(snapshots_of(servers, "slow"))
        assert len(slow.applied) < 3 * len(CHURN)  # a fetch may have been under way when it was paused
        assert await slow.write("CREATE TYPE next AS INT") is not None
    finally:
        await slow.topic.close()


def _header(record: ConsumerRecord[bytes, bytes]) -> dict[str, object]:
    header: dict[str, object] = json.loads(record.value.partition(b"\n")[0])
    return header


def _with_header(value: bytes, **members: object) -> bytes:
    line, _, chunk = value.partition(b"\n")
    return json.dumps({**json.loads(line), **members}).encode() + b"\n" + chunk


BROKEN: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a part is missing": (lambda values: values[:-1], "is not whole"),
    "the first part is missing": (lambda values: values[1:], "is not whole"),
    "a byte differs": (
        lambda values: [*values[:-1], values[-1][:-1] + bytes([values[-1][-1] ^ 1])],
        "its checksum differs",
    ),
    "no header": (lambda values: [b"\x00 of another program"], "its header cannot be read"),
    "empty": (lambda values: [b""], "its header cannot be read"),
    "of a newer version": (
        lambda values: [_with_header(value, version=2) for value in values],
        "has version 2; this server reads up to 1: upgrade it",
    ),
    "it lacks a command": (
        lambda values: [_with_header(value, after=1) for value in values],
        "up to offset 1,",
    ),
    "its content is of another form": (
        lambda values: snapshot_records.snapshot_records("other", b'{"catalog": {}}', -2),
        "has a form that this server does not read",
    ),
}


async def test_a_snapshot_that_cannot_be_used_is_named_and_the_one_before_counts(
    servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(snapshot_records, "PART_BYTES", 150)
    content = await with_snapshots(servers, "broken")
    records = records_of(servers, "broken")
    after = max(record.offset for record in records if record.key != KEY)
    newest = _header([record for record in records if record.key == KEY][-1])["id"]
    parts = [record.value for record in records if record.key == KEY and _header(record)["id"] == newest]
    assert len(parts) > 2
    for case, (breaks, reason) in BROKEN.items():
        with Producer(servers) as producer:
            for value in breaks([_with_header(value, id=case, after=after) for value in parts]):
                fixed = _with_header(value, after=after) if _after(value) == -2 else value
                producer.send(partition_of("broken").topic, fixed, key=KEY, partition=0)
        caplog.clear()
        again, applied = await state_of_a_new_server(servers, "broken")
        assert (again, len(applied)) == (content, 3), case
        refused = [record for record in caplog.records if record.message.startswith("sql_snapshot_refused")]
        assert reason in refused[0].odradek_values["reason"], case
        assert f"{partition_of('broken').topic}-0, offset " in refused[0].odradek_values["reason"]
        assert "\n" not in refused[0].odradek_values["reason"]


def _after(value: bytes) -> object:
    try:
        return json.loads(value.partition(b"\n")[0])["after"]
    except ValueError:
        return None


async def test_a_server_does_not_begin_without_what_was_deleted(servers: str) -> None:
    await with_snapshots(servers, "lost")
    with Admin(servers) as admin:
        admin.delete_records({partition_of("lost"): max(snapshots_of(servers, "lost")) + 1})
    with pytest.raises(
        KafkaError, match=r"begins at offset .* nothing holds the commands before: it has no snapshot"
    ) as lost:
        await state_of_a_new_server(servers, "lost")
    assert lost.value.code is ErrorCode.CORRUPT_MESSAGE
    assert "\n" not in str(lost.value)


async def test_a_server_that_refuses_a_command_writes_no_snapshot(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with CommandService(servers, "refusing", allows_python=True) as service:
        await service.write("CREATE FUNCTION f(a INT) RETURNS INT AS $$ a $$")
        await service.write(stream("s"))
        content = state_content(service.state)
    with caplog.at_level(logging.WARNING):
        async with CommandService(servers, "refusing", commands_between=1) as service:
            assert service.topic.is_snapshot_due()
            assert await service.topic.write_snapshot() is None
    assert any(record.message.startswith("sql_snapshot_left_out") for record in caplog.records)
    assert snapshots_of(servers, "refusing") == []
    async with CommandService(servers, "refusing", commands_between=1, allows_python=True) as service:
        await service.topic.write_snapshot()
        assert state_content(service.state) == content
    async with CommandService(servers, "refusing", allows_python=True) as service:
        assert (service.applied, state_content(service.state)) == ([], content)


async def test_a_kill_at_any_step_loses_nothing(servers: str) -> None:
    services = {step: f"killed-{number}" for number, step in enumerate(STEPS)}
    contents = {
        step: await with_snapshots(servers, service_id, 1 if step.startswith("delete") else 0)
        for step, service_id in services.items()
    }
    lines = "".join(f"{servers} {service_id} {step}\n" for step, service_id in services.items())
    command = [sys.executable, "-m", "tests.unit.sql.snapshot_killed"]
    ended = await asyncio.to_thread(
        subprocess.run, command, input=lines, capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ended.stdout.split("\n")[:-1] == [f"{service_id} -9" for service_id in services.values()]
    for step, service_id in services.items():
        is_written = step.startswith(("commit:1:after", "delete"))
        async with CommandService(servers, service_id) as service:
            assert state_content(service.state) == contents[step], step
            assert (service.applied == []) is is_written, step
            assert await service.write("CREATE TYPE next AS INT") is not None, step
