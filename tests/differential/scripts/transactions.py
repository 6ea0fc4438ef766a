"""Transactions: both flows, markers and what readers see, and every stale epoch, wrong id and wrong state."""

import time
from typing import Any

from tests.differential.asker import Asker
from tests.differential.requests import batch, fetch, list_offsets, make_topic, produce
from tests.differential.scripts.committed_offsets import fetch as fetch_offsets

from odradek.protocol.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

CLASSIC_ADD, CLASSIC_END, CLASSIC_PRODUCE, CLASSIC_COMMIT = 3, 3, 11, 3
UNKNOWN_ID = 987_654


def script(peer: Asker) -> None:
    make_topic(peer, "tx-one", 2)
    for kind, name in ((1, "tx-a"), (0, "tx-group")):
        find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        peer.until(lambda response: response.coordinators[0].error_code == 0, find)
    _wrong_starts(peer)
    _classic(peer)
    _newer(peer)
    _offsets(peer)
    _more_offsets(peer)
    _fencing(peer)
    _showing(peer)


def init(name: str | None, who: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=who, producer_epoch=epoch
    )


def start(peer: Asker, name: str, version: int | None = None) -> tuple[int, int]:
    """A producer id and its epoch, when the coordinator is ready to give them."""
    response = peer.until(lambda reply: reply.error_code not in (14, 15, 16, 51), init(name), version)
    return response.producer_id, response.producer_epoch


def add(
    name: str, who: int, epoch: int, *partitions: int, topic: str = "tx-one"
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


def add_many(
    name: str, who: int, epoch: int, *partitions: int, verify: bool = False
) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name="tx-one", partitions=list(partitions))]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=who, producer_epoch=epoch, verify_only=verify, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def end(name: str, who: int, epoch: int, *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=who, producer_epoch=epoch, committed=commit)


def send(name: str, who: int, epoch: int, value: str, sequence: int, partition: int = 0) -> Any:
    producer = {"producer_id": who, "producer_epoch": epoch, "base_sequence": sequence}
    now_ms = int(time.time() * 1000)  # older records would end their segment when a marker comes
    data = batch(value, timestamp=now_ms, transactional=True, **producer)
    return produce("tx-one", data, partition=partition, transactional_id=name)


def ended(peer: Asker, name: str) -> None:
    """Wait until nothing of the transaction is left to do."""
    done = ("CompleteCommit", "CompleteAbort", "Empty")
    describe = DescribeTransactionsRequest(transactional_ids=[name])
    peer.until(lambda response: response.transaction_states[0].transaction_state in done, describe)


def _wrong_starts(peer: Asker) -> None:
    start(peer, "tx-a")
    peer.ask("a timeout of zero", init("tx-b", timeout_ms=0))
    peer.ask("a timeout too long", init("tx-b", timeout_ms=100_000_000))
    peer.ask("an empty name", init(""))
    peer.ask("an id that no broker gave", init("tx-b", UNKNOWN_ID, 0))
    peer.ask("an id without an epoch", init("tx-b", UNKNOWN_ID, -1))
    peer.ask("ending what never began", end("tx-none", UNKNOWN_ID, 0), CLASSIC_END)
    peer.ask("adding to what never began", add("tx-none", UNKNOWN_ID, 0, 0), CLASSIC_ADD)
    peer.ask("describing what never began", DescribeTransactionsRequest(transactional_ids=["tx-none", ""]))
    peer.ask("producing to what never began", send("tx-none", UNKNOWN_ID, 0, "no", 0), CLASSIC_PRODUCE)
    peer.ask("producing without a name", send(None, UNKNOWN_ID, 0, "no", 0), CLASSIC_PRODUCE)


def _classic(peer: Asker) -> None:
    for version in (0, 1, 2, 3):
        peer.ask(f"a producer, version {version}", init(f"tx-v{version}"), version)
    who, epoch = start(peer, "tx-c", 4)
    peer.ask("ending what is empty", end("tx-c", who, epoch), CLASSIC_END)
    peer.ask("producing before adding", send("tx-c", who, epoch, "no", 0), CLASSIC_PRODUCE)
    peer.ask("adding an unknown partition", add("tx-c", who, epoch, 0, 7), CLASSIC_ADD)
    peer.ask("adding an unknown topic", add("tx-c", who, epoch, 0, topic="tx-no"), CLASSIC_ADD)
    peer.ask("adding with an epoch too high", add("tx-c", who, epoch + 1, 0), CLASSIC_ADD)
    peer.ask("adding with another id", add("tx-c", who + 1, epoch, 0), CLASSIC_ADD)
    for version in (0, 1, 2, 3):
        peer.ask(f"adding, version {version}", add("tx-c", who, epoch, 0), version)
    peer.ask("a record", send("tx-c", who, epoch, "committed", 0), CLASSIC_PRODUCE)
    peer.ask("where it ends, committed only", list_offsets("tx-one", (0, -1), isolation=1))
    peer.ask("where it ends", list_offsets("tx-one", (0, -1)))
    peer.ask("read committed while it is open", fetch("tx-one", 0, isolation_level=1, max_wait_ms=0), 12)
    peer.ask("read all while it is open", fetch("tx-one", 0, max_wait_ms=0), 12)
    peer.ask("ending with an epoch too high", end("tx-c", who, epoch + 1), CLASSIC_END)
    peer.ask("ending with another id", end("tx-c", who + 1, epoch), CLASSIC_END)
    peer.ask("committing", end("tx-c", who, epoch), CLASSIC_END)
    ended(peer, "tx-c")
    peer.ask("committing again", end("tx-c", who, epoch), CLASSIC_END)
    peer.ask("aborting what was committed", end("tx-c", who, epoch, commit=False), CLASSIC_END)
    peer.quietly(add("tx-c", who, epoch, 0), CLASSIC_ADD)
    peer.ask("a record to be aborted", send("tx-c", who, epoch, "aborted", 1), CLASSIC_PRODUCE)
    peer.ask("aborting", end("tx-c", who, epoch, commit=False), CLASSIC_END)
    ended(peer, "tx-c")
    peer.ask("aborting again", end("tx-c", who, epoch, commit=False), CLASSIC_END)
    peer.until(
        lambda reply: reply.topics[0].partitions[0].offset == 4, list_offsets("tx-one", (0, -1), isolation=1)
    )
    peer.ask("read committed", fetch("tx-one", 0, isolation_level=1), 12)
    peer.ask("read all", fetch("tx-one", 0), 12)


def _newer(peer: Asker) -> None:
    who, epoch = start(peer, "tx-n")
    peer.ask("verifying before", add_many("tx-n", who, epoch, 1, verify=True), 4)
    peer.ask("producing without adding", send("tx-n", who, epoch, "new", 0, 1), 12)
    peer.ask("verifying after", add_many("tx-n", who, epoch, 1, 0, verify=True), 4)
    peer.ask("adding many", add_many("tx-n", who, epoch, 0), 5)
    peer.ask("adding an unknown partition to many", add_many("tx-n", who, epoch, 9), 5)
    bumped = peer.ask("committing with a new epoch", end("tx-n", who, epoch))
    ended(peer, "tx-n")
    peer.ask("committing again with the old epoch", end("tx-n", who, epoch))
    peer.ask("producing with the old epoch", send("tx-n", who, epoch, "old", 1, 1), 12)
    peer.ask("ending what is empty with the new epoch", end("tx-n", who, bumped.producer_epoch, commit=False))
    peer.ask("what the new flow stored", fetch("tx-one", 0, partition=1), 12)


def _offsets(peer: Asker) -> None:
    who, epoch = start(peer, "tx-o", 4)

    def commit(**more: Any) -> TxnOffsetCommitRequest:
        partition = more.pop("partition", 0)
        offsets = [
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=7, committed_metadata="in"
            )
        ]
        values = {
            "transactional_id": "tx-o",
            "group_id": "tx-group",
            "producer_id": who,
            "producer_epoch": epoch,
        } | more
        topics = [TxnOffsetCommitRequestTopic(name=values.pop("topic", "tx-one"), partitions=offsets)]
        return TxnOffsetCommitRequest(topics=topics, **values)

    def add_group(**more: Any) -> AddOffsetsToTxnRequest:
        values = {
            "transactional_id": "tx-o",
            "group_id": "tx-group",
            "producer_id": who,
            "producer_epoch": epoch,
        } | more
        return AddOffsetsToTxnRequest(**values)

    peer.until(
        lambda reply: reply.groups[0].error_code not in (14, 16),
        fetch_offsets("tx-group", 0, name="tx-one"),
        9,
    )
    peer.ask("offsets before their group was added", commit(), CLASSIC_COMMIT)
    peer.ask("adding a group with an epoch too high", add_group(producer_epoch=epoch + 1), 3)
    peer.ask("adding a group with another id", add_group(producer_id=UNKNOWN_ID), 3)
    peer.ask("adding a group without a name", add_group(group_id=""), 3)
    peer.ask("adding a group", add_group(), 3)
    for version in (0, 1, 2, 3):
        peer.ask(f"offsets, version {version}", commit(), version)
    peer.ask("offsets for an unknown partition", commit(partition=9), CLASSIC_COMMIT)
    peer.ask("offsets for an unknown topic", commit(topic="tx-no"), CLASSIC_COMMIT)
    peer.ask(
        "offsets in a generation that is not",
        commit(generation_id_or_member_epoch=3, member_id="m"),
        CLASSIC_COMMIT,
    )
    peer.ask("offsets of a stranger", commit(member_id="m"), CLASSIC_COMMIT)
    peer.ask("offsets for a group without a name", commit(group_id=""), CLASSIC_COMMIT)
    peer.ask("offsets with an epoch too low", commit(producer_epoch=-1), CLASSIC_COMMIT)
    peer.ask("offsets before the end", fetch_offsets("tx-group", 0, name="tx-one"), 9)
    stable = fetch_offsets("tx-group", 0, name="tx-one", require_stable=True)
    peer.ask("stable offsets before the end", stable, 9)
    peer.ask("committing offsets", end("tx-o", who, epoch), CLASSIC_END)
    ended(peer, "tx-o")
    peer.until(lambda described: described.groups[0].topics[0].partitions[0].committed_offset == 7, stable, 9)
    peer.ask("offsets after the end", stable, 9)
    peer.quietly(DeleteGroupsRequest(groups_names=[""]))  # other scripts expect that there is none


def _more_offsets(peer: Asker) -> None:
    """Offsets in the newer flow, where the group is added by the commit itself."""
    who, epoch = start(peer, "tx-p")

    def commit(**more: Any) -> TxnOffsetCommitRequest:
        offset = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=9, committed_metadata=None
        )
        values = {
            "transactional_id": "tx-p",
            "group_id": "tx-group",
            "producer_id": who,
            "producer_epoch": epoch,
        }
        topics = [TxnOffsetCommitRequestTopic(name="tx-one", partitions=[offset])]
        return TxnOffsetCommitRequest(topics=topics, **values | more)

    peer.ask("offsets before their group was added, version 4", commit(), 4)
    peer.ask("offsets that add their group", commit())
    peer.ask("offsets with an epoch too high", commit(producer_epoch=epoch + 1))
    peer.ask("offsets with another id", commit(producer_id=UNKNOWN_ID))
    peer.ask("offsets of another transaction", commit(transactional_id="tx-none"))
    peer.ask("aborting offsets", end("tx-p", who, epoch, commit=False))
    ended(peer, "tx-p")
    stable = fetch_offsets("tx-group", 0, name="tx-one", require_stable=True)
    peer.until(lambda reply: reply.groups[0].topics[0].partitions[0].error_code == 0, stable, 9)
    peer.ask("offsets after they were aborted", stable, 9)
    peer.ask("offsets with the old epoch", commit())


def _fencing(peer: Asker) -> None:
    who, epoch = start(peer, "tx-f", 4)
    peer.quietly(add("tx-f", who, epoch, 0), CLASSIC_ADD)
    peer.quietly(send("tx-f", who, epoch, "zombie", 0), CLASSIC_PRODUCE)
    newer = start(peer, "tx-f", 4)
    peer.ask("adding after being fenced", add("tx-f", who, epoch, 0), CLASSIC_ADD)
    peer.ask("adding after being fenced, version 0", add("tx-f", who, epoch, 0), 0)
    peer.ask("producing after being fenced", send("tx-f", who, epoch, "no", 1), CLASSIC_PRODUCE)
    peer.ask("ending after being fenced", end("tx-f", who, epoch), CLASSIC_END)
    peer.ask("ending after being fenced, version 0", end("tx-f", who, epoch), 0)
    peer.ask("beginning again after being fenced", init("tx-f", who, epoch), 4)
    peer.ask("beginning again after being fenced, version 3", init("tx-f", who, epoch), 3)
    peer.ask("beginning again with the newest epoch", init("tx-f", *newer), 4)


def _showing(peer: Asker) -> None:
    who, epoch = start(peer, "tx-s", 4)
    peer.quietly(add("tx-s", who, epoch, 0, 1), CLASSIC_ADD)
    peer.quietly(send("tx-s", who, epoch, "open", 0), CLASSIC_PRODUCE)
    peer.ask("describing", DescribeTransactionsRequest(transactional_ids=["tx-s", "tx-c"]))

    def mine(response: Any) -> Any:
        own_states = [
            state for state in response.transaction_states if state.transactional_id.startswith("tx-")
        ]
        return response.replace(transaction_states=own_states)

    for version in (0, 1, 2):
        peer.ask(
            f"listing those that are open, version {version}",
            ListTransactionsRequest(state_filters=["Ongoing"]),
            version,
            only=mine,
        )
    peer.ask("listing a state that is none", ListTransactionsRequest(state_filters=["Nonsense"]), only=mine)
    peer.ask("listing one producer's", ListTransactionsRequest(producer_id_filters=[who]), only=mine)
    peer.ask("listing by pattern", ListTransactionsRequest(transactional_id_pattern="tx-[sc]"), only=mine)
    peer.ask("listing by a bad pattern", ListTransactionsRequest(transactional_id_pattern="("), only=mine)
    peer.ask(
        "listing those open for an hour",
        ListTransactionsRequest(duration_filter=3_600_000, state_filters=["Ongoing"]),
        only=mine,
    )
    wanted = DescribeProducersRequest(topics=[TopicRequest(name="tx-one", partition_indexes=[1])])
    peer.ask("producers", wanted)
    unknown = [
        TopicRequest(name="tx-one", partition_indexes=[9]),
        TopicRequest(name="tx-no", partition_indexes=[0]),
    ]
    peer.ask("producers of what is not there", DescribeProducersRequest(topics=unknown))
    peer.ask("aborting what was open", end("tx-s", who, epoch, commit=False), CLASSIC_END)
