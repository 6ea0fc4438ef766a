"""A group that has just been written is replayed without its bytes being read: the value is what they would give."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.groups.group_bench import GroupBench

from odradek.groups.classic import group as classic_group
from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.operations import join, sync
from odradek.groups.shard.formats import GroupMetadataValue, read
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.settings import GroupSettings
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.shards import StoredRecord

Assign = Callable[..., None]


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench(GroupSettings(initial_rebalance_delay_ms=0))


def joined(bench: GroupBench, *, instance_id: str | None = None, metadata: bytes = b"m", **ids: str) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="räng", metadata=metadata)],
        **ids,
    )
    caller = Caller(client_id="ü", client_host="/h", api_version=3)
    bench.execute(partial(join, request=request, caller=caller, ticket=bench.ticket("join")))
    bench.advance(0)
    return bench.answers.pop("join")


def assign(bench: GroupBench, joined: Any, assignment: bytes) -> Any:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )
    caller = Caller(client_id="c", client_host="/h", api_version=5)
    bench.execute(partial(sync, request=request, caller=caller, ticket=bench.ticket("sync")))
    return bench.answers.pop("sync")


def stored(bench: GroupBench) -> GroupMetadataValue | None:
    group = bench.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group.stored


def last_value(bench: GroupBench) -> bytes:
    record = bench.written[-1]
    assert isinstance(record, StoredRecord)
    assert record.value is not None
    return record.value


@pytest.mark.parametrize("instance_id", [None, "", "i"])
@pytest.mark.parametrize("data", [b"", b"\0" * 10, bytes(range(256))])
def test_the_value_is_the_one_that_its_bytes_give(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch, instance_id: str | None, data: bytes
) -> None:
    response = joined(bench, instance_id=instance_id, metadata=data)
    with monkeypatch.context() as patch:
        patch.setattr(classic_group, "read", lambda *_: pytest.fail("the bytes were read"))
        assert assign(bench, response, data).assignment == data
    assert stored(bench) == read(GroupMetadataValue, last_value(bench))
    bench.restart()
    assert stored(bench) == read(GroupMetadataValue, last_value(bench))


def test_a_record_of_the_same_bytes_that_others_wrote_is_read(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bytes] = []

    def noted(cls: Any, data: bytes) -> Any:
        reads.append(data)
        return read(cls, data)

    assign(bench, joined(bench), b"all")
    record = bench.written[-1]
    assert isinstance(record, StoredRecord)
    monkeypatch.setattr(classic_group, "read", noted)
    bench.machine.replay(record)
    assert reads == [record.value]
    assert stored(bench) == read(GroupMetadataValue, last_value(bench))
