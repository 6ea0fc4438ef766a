"""What members say of themselves may be anything: it is refused, or bounded, and harms no one else."""

from functools import partial
from typing import Any

import pytest
from tests.unit.groups.group_bench import GroupBench

from odradek.groups.classic.operations import join, sync
from odradek.groups.offsets.committing import Commit, CommitRequest, commit
from odradek.groups.shard.kinds import Caller, Committer
from odradek.groups.shard.settings import GroupSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

LONG = "x" * 40_000


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench(GroupSettings(initial_rebalance_delay_ms=0), batch_bytes_max=100_000)


def ask_to_join(
    bench: GroupBench, *, client_id: str = "c", version: int = 3, metadata: bytes = b"", **changes: Any
) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    ).replace(**changes)
    caller = Caller(client_id=client_id, client_host="/h", api_version=version)
    bench.execute(partial(join, request=request, caller=caller, ticket=bench.ticket("join")))
    bench.advance(0)
    return bench.answers.pop("join", None)


def assign(bench: GroupBench, member_id: str, generation: int, assignment: bytes) -> Any:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
    )
    caller = Caller(client_id="c", client_host="/h", api_version=5)
    bench.execute(partial(sync, request=request, caller=caller, ticket=bench.ticket("sync")))
    return bench.answers.pop("sync")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"protocol_type": LONG}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"protocols": [JoinGroupRequestProtocol(name=LONG)]}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"metadata": bytes(100_001)}, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_fits_no_record_is_refused(bench: GroupBench, changes: Any, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        ask_to_join(bench, **changes)
    assert refused.value.code is code
    assert bench.machine.groups == {}


def test_a_long_client_id_makes_a_member_id_that_records_can_hold(bench: GroupBench) -> None:
    joined = ask_to_join(bench, client_id="ü" * 16_000)
    assert assign(bench, joined.member_id, 1, b"all").assignment == b"all"
    bench.restart()
    assert list(bench.machine.groups) == ["g"]


def test_offsets_of_a_group_whose_name_no_record_can_hold_are_refused(bench: GroupBench) -> None:
    commits = [Commit(topic="t", partition=0, offset=1)]
    request = CommitRequest(group_id=LONG, committer=Committer(), commits=commits)
    with pytest.raises(KafkaError) as refused:
        bench.execute(partial(commit, request=request))
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


def test_an_assignment_larger_than_a_batch_is_refused_and_the_group_joins_again(bench: GroupBench) -> None:
    member_id = ask_to_join(bench).member_id
    refused = assign(bench, member_id, 1, bytes(100_001))
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.written == []
    assert ask_to_join(bench, member_id=member_id).generation_id == 2
    assert assign(bench, member_id, 2, b"less").assignment == b"less"


def test_member_ids_that_no_one_uses_are_bounded(bench: GroupBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.groups.classic.joining._ISSUED_IDS_MAX", 100)
    kept = ask_to_join(bench, version=4, group_id="kept").member_id
    assert ask_to_join(bench, version=4, group_id="kept", member_id=kept).error_code == ErrorCode.NONE
    for number in range(1_000):
        given = ask_to_join(bench, version=4, group_id=f"g{number}", session_timeout_ms=1_800_000)
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(bench.machine.groups) <= 102
    assert len(bench.machine.issued_ids) <= 101
    assert "kept" in bench.machine.groups
    assert (
        ask_to_join(bench, version=4, group_id="g999", member_id=given.member_id).error_code == ErrorCode.NONE
    )


def test_a_member_id_that_no_one_uses_is_short_and_kept_for_minutes(bench: GroupBench) -> None:
    given = ask_to_join(bench, version=4, client_id="x" * 4096, session_timeout_ms=1_800_000)
    assert len(given.member_id) < 300
    bench.advance(301_000)
    assert not bench.machine.issued_ids


def test_protocol_names_of_members_that_left_are_forgotten(bench: GroupBench) -> None:
    for number in range(100):
        protocols = [JoinGroupRequestProtocol(name=f"p{number}")]
        member_id = ask_to_join(bench, protocols=protocols).member_id
        group: Any = bench.machine.groups["g"]
        group.remove(member_id)
        assert not group.support
        bench.restart()
        bench.machine.groups.clear()


def test_members_that_could_never_form_a_group_do_not_fill_the_memory(bench: GroupBench) -> None:
    answers = [ask_to_join(bench, metadata=bytes(90_000), client_id=f"c{number}") for number in range(40)]
    refused = [answered for answered in answers if answered is not None]
    assert {response.error_code for response in refused if response.error_code} == {
        ErrorCode.GROUP_MAX_SIZE_REACHED
    }
    group: Any = bench.machine.groups["g"]
    held = sum(len(metadata) for member in group.members.values() for _, metadata in member.protocols)
    assert held == group.metadata_bytes <= 16 * 100_000


def test_what_a_group_holds_is_known_as_members_come_change_and_go(bench: GroupBench) -> None:
    first = ask_to_join(bench, metadata=bytes(10))
    ask_to_join(bench, member_id=first.member_id, metadata=bytes(25))
    group: Any = bench.machine.groups["g"]
    assert group.metadata_bytes == 25
    group.remove(first.member_id)
    assert group.metadata_bytes == 0
