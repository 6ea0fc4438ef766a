"""What a broker writes down: changes, refusals, data access by rule; into files that are put aside, and into a topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene
from tests.scenarios.security.test_matrix import SETTINGS

from odradek.broker.app import Broker
from odradek.broker.audit import trail as trail_module
from odradek.broker.audit.sinks import AuditTopicSink
from odradek.broker.audit.trail import AuditTrail
from odradek.cli.main import main
from odradek.cluster.image import NO_ACLS, BrokerImage, PartitionImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.net.peer_connection import PeerUnreachable
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.data.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.records import decode_batch, split_batches
from odradek.security.acls import Acl, AclPattern
from odradek.security.audit import AUDIT_TOPIC, EVENT_BYTES_MAX, AuditEvent

pytestmark = pytest.mark.check(47)
ME = "User:ANONYMOUS"


async def events_of(broker: Broker, path: Path) -> list[dict[str, Any]]:
    trail = broker.context.audit.trail  # type: ignore[union-attr]
    await trail.flush()
    return lines_of(path)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def start(scene: Scene, **settings: str) -> tuple[Broker, Wire, Path]:
    path = scene.directory / "audit.log"
    audit = {"odradek_audit_sinks": "file", "odradek_audit_file": str(path)}
    broker = await scene.start(**{**SETTINGS, "super_users": ME, **audit, **settings})
    return broker, await scene.connect(), path


async def test_a_change_is_noted_with_who_asked_and_what_came_of_it(scene: Scene) -> None:
    broker, wire, path = await start(scene)
    await wire.create("orders")
    await wire.create("orders")
    first, second = await events_of(broker, path)
    assert {
        key: first[key] for key in ("kind", "outcome", "principal", "client", "host", "api", "version")
    } == {
        "kind": "change",
        "outcome": "done",
        "principal": ME,
        "client": "test",
        "host": "127.0.0.1",
        "api": "CreateTopics",
        "version": 7,
    }
    assert first["resources"] == ["TOPIC:orders"]
    assert first["correlation_id"] == 1
    assert (second["outcome"], second["errors"]) == ("failed", ["TOPIC_ALREADY_EXISTS"])


async def test_a_change_of_settings_names_them_and_not_their_values(scene: Scene) -> None:
    broker, wire, path = await start(scene)
    configs = [AlterableConfig(name="sasl.jaas.config", config_operation=0, value="password='hunter2'")]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert (await events_of(broker, path))[-1]["detail"] == "1: sasl.jaas.config"
    assert "hunter2" not in str(lines_of(path))


async def test_a_refusal_is_noted_with_operation_and_resource(scene: Scene) -> None:
    broker, wire, path = await start(scene)
    await wire.create("orders")
    broker.context.authorizer.configure({})  # type: ignore[union-attr]
    assert (await wire.produce("orders", [b"v"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    *_, refusal = await events_of(broker, path)
    assert (refusal["kind"], refusal["operation"], refusal["resources"]) == (
        "refusal",
        "WRITE",
        ["TOPIC:orders"],
    )
    assert refusal["principal"] == ME


async def test_data_access_is_noted_where_a_rule_asks_for_it(scene: Scene) -> None:
    broker, wire, path = await start(scene, odradek_audit_rules="keep api=Produce resource=TOPIC:orders")
    for topic in ("orders", "payments"):
        await wire.create(topic)
        await wire.produce(topic, [b"v"])
    accesses = [event for event in await events_of(broker, path) if event["kind"] == "access"]
    assert [(event["api"], event["resources"]) for event in accesses] == [("Produce", ["TOPIC:orders"])]


async def test_a_full_file_is_put_aside_and_the_oldest_one_goes(scene: Scene) -> None:
    settings = {"odradek_audit_file_max_bytes": "1024", "odradek_audit_file_max_files": "2"}
    broker, wire, path = await start(scene, **settings)
    for number in range(30):
        await wire.create(f"topic-{number}", partitions=0)  # refused, and noted
        await events_of(broker, path)
    files = sorted(scene.directory.glob("audit.log*"))
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1024 for file in files)


async def test_events_that_could_not_be_kept_are_counted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_module, "PATIENCE_SECONDS", 0.0)
    broker, _, _ = await start(scene, odradek_audit_queue_max="1", odradek_audit_file="/nowhere/audit.log")
    trail = broker.context.audit.trail  # type: ignore[union-attr]
    for number in range(3):
        trail.login("failed", principal="", host="10.0.0.1", listener="L", detail=f"attempt {number}")
    assert trail.lost_count >= 2
    await trail.flush()
    assert trail.lost_count >= 3
    assert trail.written_count == 0


class NoLeaderYet:
    """A sink that refuses some writes first."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals
        self.taken: list[str] = []

    async def write(self, written: Sequence[AuditEvent]) -> None:
        if self._refusals:
            self._refusals -= 1
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader yet")
        self.taken += [event.detail or event.kind for event in written]

    async def close(self) -> None:
        pass


async def test_what_no_sink_takes_yet_waits_in_its_order(scene: Scene) -> None:
    broker, _, _ = await start(scene, odradek_audit_queue_max="4")
    sink = NoLeaderYet(refusals=3)
    trail = AuditTrail(lambda: broker.context.config.audit, broker.context.runtime, [sink], 1)
    for number in range(5):
        trail.login("failed", principal="", host="10.0.0.1", listener="L", detail=f"attempt {number}")
        await trail.flush()
    assert sink.taken == ["attempt 0", "attempt 1", "attempt 2", "attempt 3", "attempt 4"]
    assert (trail.written_count, trail.lost_count) == (5, 0)


async def test_what_waits_when_the_broker_stops_or_patience_ends_is_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _, _ = await start(scene)
    sink = NoLeaderYet(refusals=3)
    trail = AuditTrail(lambda: broker.context.config.audit, broker.context.runtime, [sink], 1)
    trail.login("failed", principal="", host="10.0.0.1", listener="L", detail="first")
    await trail.flush()
    assert trail.lost_count == 0
    monkeypatch.setattr(trail_module, "PATIENCE_SECONDS", 0.0)
    await trail.flush()
    assert trail.lost_count == 1
    monkeypatch.undo()
    trail.login("failed", principal="", host="10.0.0.1", listener="L", detail="second")
    await trail.close()
    assert (trail.lost_count, sink.taken) == (2, [])


class Particular:
    """A sink that refuses batches in which an event is wrong."""

    def __init__(self, is_wrong: Callable[[Sequence[AuditEvent]], bool]) -> None:
        self._is_wrong = is_wrong
        self.taken: list[str] = []

    async def write(self, written: Sequence[AuditEvent]) -> None:
        if self._is_wrong(written):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        self.taken += [event.detail or event.kind for event in written]

    async def close(self) -> None:
        pass


async def test_an_event_that_a_sink_never_takes_is_lost_alone(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    sink = Particular(lambda written: any(event.detail == "attempt 7" for event in written))
    trail = AuditTrail(lambda: broker.context.config.audit, broker.context.runtime, [sink], 1)
    for number in range(20):
        trail.login("failed", principal="", host="10.0.0.1", listener="L", detail=f"attempt {number}")
    await trail.flush()
    others = [f"attempt {number}" for number in range(20) if number != 7]
    assert sink.taken == [*others, "the queue was full, or no sink took them"]
    assert trail.lost_count == 1


async def test_a_sink_that_takes_nothing_whatever_is_not_asked_without_end(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    trail = AuditTrail(
        lambda: broker.context.config.audit, broker.context.runtime, [Particular(lambda written: True)], 1
    )
    trail.login("failed", principal="", host="10.0.0.1", listener="L")
    await trail.flush()
    await trail.flush()
    assert (trail.lost_count, trail.written_count) == (1, 0)


async def test_batches_are_as_small_as_the_topic_asks(scene: Scene) -> None:
    broker, wire, _ = await start(
        scene, odradek_audit_sinks="topic", message_max_bytes=str(EVENT_BYTES_MAX + 1024)
    )
    trail = broker.context.audit.trail  # type: ignore[union-attr]
    for number in range(50):
        trail.login("failed", principal="\x01" * 400_000, host="h", listener="L", detail=str(number) * 2000)
    await trail.flush()
    values = [json.loads(value or b"") for value in await wire.values(AUDIT_TOPIC)]
    assert [value["detail"][:2] for value in values] == [(str(number) * 2)[:2] for number in range(50)]
    assert trail.lost_count == 0


async def test_a_refused_request_with_long_names_is_a_short_event(scene: Scene) -> None:
    broker, wire, path = await start(scene, super_users="User:admin")
    names = [f"{number:02}" + "n" * 4000 for number in range(30)]
    configs = [AlterableConfig(name=name, config_operation=0, value="") for name in names]
    resources = [
        AlterConfigsResource(resource_type=2, resource_name=f"t{number}", configs=configs)
        for number in range(30)
    ]
    await wire.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    await events_of(broker, path)
    lines = path.read_bytes().splitlines()
    assert max(map(len, lines)) <= EVENT_BYTES_MAX
    change = next(event for event in map(json.loads, lines) if event["kind"] == "change")
    assert (change["cut"], len(change["resources"])) == (True, 20)
    assert change["detail"].startswith("t0: 00nnn")


async def test_the_queue_is_bounded_in_bytes_too(scene: Scene) -> None:
    broker, _, _ = await start(scene, odradek_audit_queue_max_bytes="65536")
    sink = NoLeaderYet(refusals=1)
    trail = AuditTrail(lambda: broker.context.config.audit, broker.context.runtime, [sink], 1)
    for _ in range(100):
        trail.login("failed", principal="p" * 1000, host="10.0.0.1", listener="L", detail="d" * 5000)
    lost_count = trail.lost_count
    assert 60 < lost_count < 100
    await trail.flush()
    await trail.flush()
    assert (trail.lost_count, len(sink.taken)) == (lost_count, 101 - lost_count)  # and one that says so
    trail.login("failed", principal="p", host="10.0.0.1", listener="L")
    assert trail.lost_count == lost_count


async def test_what_is_being_written_when_the_write_is_cancelled_is_written_later(scene: Scene) -> None:
    broker, _, _ = await start(scene)

    class Slow(NoLeaderYet):
        is_slow = True

        async def write(self, written: Sequence[AuditEvent]) -> None:
            if self.is_slow:
                await asyncio.Event().wait()
            await super().write(written)

    sink = Slow(refusals=0)
    trail = AuditTrail(lambda: broker.context.config.audit, broker.context.runtime, [sink], 1)
    trail.login("failed", principal="", host="10.0.0.1", listener="L", detail="first")
    writing = asyncio.ensure_future(trail.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    sink.is_slow = False
    await trail.close()
    assert (sink.taken, trail.written_count, trail.lost_count) == (["first"], 1, 0)


async def test_the_topic_has_the_events_and_only_super_users_may_write_it(scene: Scene) -> None:
    broker, wire, _ = await start(scene, odradek_audit_sinks="topic")
    await wire.create("orders")
    await broker.context.audit.trail.flush()  # type: ignore[union-attr]
    values = [json.loads(value or b"") for value in await wire.values(AUDIT_TOPIC)]
    assert [value["api"] for value in values] == ["CreateTopics"]
    authorizer: Any = broker.context.authorizer
    everything = frozenset(
        Acl(AclPattern(AclResourceType.TOPIC, name), ME, "*", AclOperation.ALL, AclPermission.ALLOW)
        for name in ("*", AUDIT_TOPIC)
    )
    authorizer.configure({})
    authorizer.update((everything, *NO_ACLS[1:]))
    assert (await wire.produce(AUDIT_TOPIC, [b"forged"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await wire.produce("orders", [b"v"])).error_code == 0
    assert (await wire.fetch(AUDIT_TOPIC, 0)).error_code == 0


class Leaders:
    """Other brokers, which lead the partitions of the topic, and answer as the test says."""

    def __init__(self, broker: Broker, *leaders: int, brokers: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        """(broker, partition) of each request."""
        self.events: list[str] = []
        self.refusals: list[Exception | ErrorCode] = []
        self.created: list[TopicSpec] = []
        states = tuple(
            PartitionImage(leader=BrokerId(leader), leader_epoch=LeaderEpoch(0), replicas=(), isr=())
            for leader in leaders
        )
        topic = TopicImage(name=AUDIT_TOPIC, topic_id=uuid4(), partitions=states)
        self._image = replace(
            broker.context.image,
            topics={AUDIT_TOPIC: topic} if leaders else {},
            brokers=tuple(
                BrokerImage(broker_id=BrokerId(number), host="", port=0, epoch=1) for number in range(brokers)
            ),
        )
        context = broker.context
        self.sink = AuditTopicSink(
            lambda: self._image,
            context.replicas,
            context.runtime,
            self.create,
            lambda: self.send,
            me=BrokerId(1),
            partitions_min=2,
            retention_ms=1000,
        )
        self.trail = AuditTrail(lambda: context.config.audit, context.runtime, [self.sink], 1)

    async def send(
        self, broker: int, api_key: int, request: Any, *, timeout_s: float | None = None, lane: str = ""
    ) -> ProduceResponse:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        self.asked.append((broker, data.index))
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if isinstance(code, Exception):
            raise code
        if code is ErrorCode.NONE:
            ((header, batch),) = split_batches(memoryview(data.records))
            self.events += [
                json.loads(record.value or b"")["detail"] for record in decode_batch(batch, header)
            ]
        outcome = PartitionProduceResponse(index=data.index, error_code=code, base_offset=0)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, partition_responses=[outcome])]
        )

    async def create(self, wanted: Sequence[TopicSpec]) -> list[KafkaError]:
        self.created += wanted
        return [KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "but no image has it yet")]

    async def note(self, detail: str) -> None:
        self.trail.login("failed", principal="", host="10.0.0.1", listener="L", detail=detail)
        await self.trail.flush()


async def test_a_broker_that_leads_no_partition_sends_its_events_to_a_leader(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    leaders = Leaders(broker, -1, 2)
    await leaders.note("first")
    await leaders.note("second")
    assert leaders.events == ["first", "second"]
    assert leaders.asked == [(2, 1)] * 2
    assert (leaders.trail.written_count, leaders.trail.lost_count) == (2, 0)


@pytest.mark.parametrize(
    "refusal", [PeerUnreachable("it is away"), ErrorCode.NOT_LEADER_OR_FOLLOWER], ids=["away", "deposed"]
)
async def test_another_leader_is_asked_after_one_that_does_not_take_them(
    scene: Scene, refusal: Exception | ErrorCode
) -> None:
    broker, _, _ = await start(scene)
    leaders = Leaders(broker, 2, 3)
    leaders.refusals = [refusal]
    await leaders.note("first")
    assert leaders.events == []
    await leaders.note("second")
    assert leaders.events == ["first", "second"]
    assert leaders.asked == [(3, 1), (2, 0)]


async def test_an_event_that_a_leader_finds_too_large_is_lost_alone(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    leaders = Leaders(broker, 2)
    leaders.refusals = [ErrorCode.MESSAGE_TOO_LARGE]
    await leaders.note("too large")
    assert leaders.trail.lost_count == 1


async def test_events_wait_while_no_partition_has_a_leader(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    leaders = Leaders(broker, -1, -1)
    await leaders.note("first")
    assert leaders.asked == []
    assert leaders.trail.lost_count == 0


async def test_the_topic_is_made_with_a_partition_for_each_broker(scene: Scene) -> None:
    broker, _, _ = await start(scene)
    for count, partitions in ((1, 2), (5, 5)):
        leaders = Leaders(broker, brokers=count)
        await leaders.note("first")
        assert [spec.partition_count for spec in leaders.created] == [partitions]


async def test_the_command_reads_files_and_topic(
    scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, wire, path = await start(scene, odradek_audit_sinks="file,topic")
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", broker.address)
    for topic in ("orders", "payments"):
        await wire.create(topic)
    await events_of(broker, path)

    async def command(*words: str, code: int = 0) -> str:
        left = await asyncio.to_thread(main, ("audit", *words))
        out, error = capfd.readouterr()
        assert left == code, error
        return out if code == 0 else error

    for source in (("--file", str(path)), ()):
        newest = await command("tail", "-n", "1", *source)
        assert "change done User:ANONYMOUS 127.0.0.1 CreateTopics TOPIC:payments" in newest
        fitting = await command("search", "--resource", "TOPIC:ord*", "--json", *source)
        assert [json.loads(line)["resources"] for line in fitting.splitlines()] == [["TOPIC:orders"]]
        assert "No event fits." in await command("search", "--principal", "User:bob", *source)
        assert "No event fits." in await command("search", "--since", "2999-01-01", *source)
    assert "odradek.audit.file" in await command("tail", "--file", "/nowhere/audit.log", code=1)


async def test_rules_that_cannot_be_read_keep_a_broker_from_starting(scene: Scene) -> None:
    with pytest.raises(Exception, match=r"odradek\.audit\.rules"):
        await start(scene, odradek_audit_rules="hold everything")
