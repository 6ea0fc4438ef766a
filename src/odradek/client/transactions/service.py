"""Runs a transactional producer's core: asks the coordinators, again where that helps, and lets the sender go on.

What a method raises is an error of `error_actions.py`, or TimedOutError; after that one, the same call may be made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from odradek.client.groups.coordinator import GROUP, TRANSACTION, Build, Coordinator
from odradek.client.groups.member_bytes import by_topic
from odradek.client.groups.values import GroupMetadata, OffsetAndMetadata, OffsetsToCommit, as_committable
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import TimedOutError
from odradek.client.settings.settings import ProducerSettings
from odradek.client.transactions.core import ProducerId, TransactionalState, TransactionCore
from odradek.client.transactions.error_actions import (
    TransactionAbortedError,
    TransactionError,
    TransactionErrorAction,
    action_for_response,
)
from odradek.client.transactions.offset_requests import newest_version, topics_of
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.client.transactions.present_topics import offsets_of_present_topics
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import Message, api_by_name
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
)
from odradek.telemetry import events

_log = events.get("client")

FEATURE: Final = "transaction.version"
EPOCH_PER_TRANSACTION: Final = 2
_CLASSIC_PARTITIONS_MAX: Final = 3
_CLASSIC_END_MAX: Final = 4
_FIRST_OFFSETS_WITH_MEMBERS: Final = 3
_FIRST_INIT_WITH_EPOCH: Final = 3
_FIRST_INIT_WITH_TWO_PHASES: Final = 6
_END: Final = api_by_name("EndTxn")
_NO_TIMEOUT_S: Final = 3_600.0
_CONCURRENT_PAUSE_S: Final = 0.02
"""The end of the transaction before is being written: that takes milliseconds."""


class UnsettledBatch(Protocol):
    """Records whose fate is not known. `attempt_count`: how often they were sent."""

    attempt_count: int

    def settle(self, *, error: Exception | None = None) -> None: ...

    async def wait_async(self) -> None: ...


class UnsettledBatches(Protocol):
    """The batches of the producer, as the end of a transaction needs them. `lock` guards the transaction's core, too."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    def hurry(self) -> Sequence[UnsettledBatch]:
        """Lets nothing linger; returns all batches that are not settled."""

    def drop_unsent(self) -> Sequence[UnsettledBatch]:
        """Takes out what is not in flight, for the caller to settle."""


class ProducerTransactions:
    """The transactions of one producer. Coroutines and callbacks run on the loop; `core` is for the user's thread, too."""

    def __init__(
        self,
        settings: ProducerSettings,
        cluster: ClusterClient,
        accumulator: UnsettledBatches,
        *,
        identify: Callable[[ProducerId], None],
        go_on: Callable[[], None],
    ) -> None:
        self.core: Final = TransactionCore(settings.transactional_id)
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._identify = identify
        self._go_on = go_on
        self._coordinator = Coordinator(cluster, settings.transactional_id, TRANSACTION)
        self._groups: dict[str, Coordinator] = {}
        self._adding: asyncio.Task[None] | None = None
        self._api_timeout_s = settings.max_block_ms / 1000
        self._request_timeout_s = settings.request_timeout_ms / 1000

    # -- what users do

    async def init(self, timeout_s: float | None) -> None:
        """Get an id and an epoch; older producers of this name are fenced, and their open transaction is aborted."""
        self.core.begin_init()
        await self._initialize(timeout_s)

    def change_id(self, transactional_id: str) -> None:
        """Takes another transactional id, where no transaction is open. The next call is `init` or `resume`."""
        self.core.change_id(transactional_id)
        self._coordinator = Coordinator(self._cluster, transactional_id, TRANSACTION)

    async def commit(self, timeout_s: float | None) -> None:
        """Commits the transaction: everything sent is acknowledged and visible at once, or nothing of it ever is."""
        core = self.core
        core.begin_commit()
        await self._settle_batches("commit_transaction", timeout_s)
        core.begin_commit()
        core.state = TransactionalState.COMMITTING
        await self._end(committed=True, timeout_s=timeout_s)

    async def prepare(self, timeout_s: float | None) -> TransactionIdentity:
        """Prepares the transaction: everything sent is acknowledged, and the transaction stays open, for another process to
        end."""
        core = self.core
        core.check_preparable()
        await self._settle_batches("prepare_transaction", timeout_s)
        identity = core.prepare()
        return TransactionIdentity(
            transactional_id=core.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    async def resume(self, committed: TransactionIdentity) -> bool:
        """Resumes after `committed`. Returns False if it is not the last prepared transaction, or if brokers must be asked."""
        if committed.transactional_id != self.core.transactional_id:
            return False
        identity = self.core.resume(
            ProducerId(producer_id=committed.producer_id, producer_epoch=committed.producer_epoch)
        )
        if identity is not None:
            self._identify(identity)
        return identity is not None

    async def abort(self, timeout_s: float | None) -> None:
        """Aborts the transaction: readers of committed records never see any of it."""
        core = self.core
        core.begin_abort()
        aborted = TransactionAbortedError()
        for batch in self._accumulator.drop_unsent():
            if batch.attempt_count:
                core.bump_wanted = True
            batch.settle(error=aborted)
        await self._settle_batches("abort_transaction", timeout_s)
        await self._wait_for_adding("abort_transaction", timeout_s)
        await self._end(committed=False, timeout_s=timeout_s)

    async def send_offsets(
        self, offsets: OffsetsToCommit, group: GroupMetadata, timeout_s: float | None
    ) -> None:
        """Commit a group's offsets if and when the transaction is committed."""
        core = self.core
        core.check_sendable()
        wanted = await offsets_of_present_topics(
            self._cluster,
            as_committable(offsets, group.topic_ids),
            self._api_timeout_s if timeout_s is None else timeout_s,
            transactional_id=core.transactional_id,
        )
        if not wanted:
            return
        if not core.epoch_per_transaction:
            await self._add_group(group.group_id, timeout_s)
        core.offsets_added(group.group_id)
        await self._commit_offsets(wanted, group, timeout_s)

    # -- what the sender needs

    def add_partitions_soon(self) -> None:
        """Batches wait for partitions to be part of the transaction."""
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(
                self._add_partitions(), name="odradek-transaction-partitions"
            )
            self._adding.add_done_callback(self._done_adding)

    def batch_failed(self, error: Exception) -> None:
        """Notes that a batch was given up, and the transaction with it; so is what waits to be sent."""
        self.core.batch_failed(error)
        self._drop_if_broken()

    async def stop(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)

    # -- inside

    async def _settle_batches(self, what: str, timeout_s: float | None) -> None:
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                for batch in self._accumulator.hurry():
                    await batch.wait_async()
        except TimeoutError:
            problem = self._cluster.metadata.problem
            raise TimedOutError(f"{what} did not succeed within {limit_s:g} s", problem) from None

    async def _wait_for_adding(self, what: str, timeout_s: float | None) -> None:
        """Waits until partitions have been added: they must not begin the transaction again after its end."""
        if self._adding is None:
            return
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.gather(asyncio.shield(self._adding), return_exceptions=True)
        except TimeoutError:
            problem = self._cluster.metadata.problem
            raise TimedOutError(f"{what} did not succeed within {limit_s:g} s", problem) from None

    async def _initialize(self, timeout_s: float | None) -> None:
        core = self.core
        old = core.identity
        two_phase = self._settings.transaction_two_phase_commit_enable

        def build(version: int) -> Message:
            request = InitProducerIdRequest(
                transactional_id=core.transactional_id,
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
            )
            if two_phase:
                if version < _FIRST_INIT_WITH_TWO_PHASES:
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_VERSION,
                        "the broker offers no two-phase commit (KIP-939): set transaction.two.phase.commit.enable=true there",
                    )
                request = request.replace(enable_2pc=True)
            if old is None:
                return request
            if version < _FIRST_INIT_WITH_EPOCH:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, "the broker cannot bump a producer's epoch (KIP-360)"
                )
            return request.replace(producer_id=old.producer_id, producer_epoch=old.producer_epoch)

        at_most = _FIRST_INIT_WITH_TWO_PHASES if two_phase else None
        response = await self._call(
            "init_transactions", self._coordinator, "InitProducerId", build, timeout_s, at_most=at_most
        )
        identity = ProducerId(producer_id=response.producer_id, producer_epoch=response.producer_epoch)
        connection = await self._coordinator.connection()
        bumps = connection.feature(FEATURE) >= EPOCH_PER_TRANSACTION
        core.initialized(
            identity, epoch_per_transaction=bumps and connection.version_of(_END) > _CLASSIC_END_MAX
        )
        self._identify(identity)
        _log.debug(
            "producer_initialized", transactional_id=core.transactional_id, epoch=identity.producer_epoch
        )

    async def _end(self, *, committed: bool, timeout_s: float | None) -> None:
        core = self.core
        identity = core.identity
        assert identity is not None
        following: ProducerId | None = None
        if core.started:
            request = EndTxnRequest(
                transactional_id=core.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                committed=committed,
            )
            at_most = None if core.epoch_per_transaction else _CLASSIC_END_MAX
            what = "commit_transaction" if committed else "abort_transaction"
            try:
                response = await self._call(
                    what, self._coordinator, "EndTxn", request, timeout_s, at_most=at_most
                )
            except TransactionError:
                if committed:
                    raise
                core.bump_wanted = True  # a new epoch aborts what is left of it
            else:
                if response.producer_id >= 0:
                    following = ProducerId(
                        producer_id=response.producer_id, producer_epoch=response.producer_epoch
                    )
        core.ended(following)
        if following is not None:
            self._identify(following)
        if core.bump_wanted:
            await self._initialize(timeout_s)

    async def _add_partitions(self) -> None:
        core = self.core
        while core.to_add and core.state in (TransactionalState.OPEN, TransactionalState.COMMITTING):
            wanted = list(core.to_add)
            identity = core.identity
            assert identity is not None
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=core.transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in by_topic(wanted).items()
                ],
            )
            try:
                await self._call(
                    "adding partitions to the transaction",
                    self._coordinator,
                    "AddPartitionsToTxn",
                    request,
                    _NO_TIMEOUT_S,
                    at_most=_CLASSIC_PARTITIONS_MAX,
                )
            except KafkaError:
                return  # the core has noted it: batches are failed
            with self._accumulator.lock:
                core.added(wanted)

    def _done_adding(self, task: asyncio.Task[None]) -> None:
        self._adding = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("adding_partitions_broke_down", reason=repr(task.exception()))
        self._drop_if_broken()
        self._go_on()

    def _drop_if_broken(self) -> None:
        if self.core.state in (TransactionalState.BROKEN, TransactionalState.FATAL):
            for batch in self._accumulator.drop_unsent():
                if batch.attempt_count:
                    self.core.bump_wanted = True
                batch.settle(error=self.core.error or TransactionAbortedError())

    async def _add_group(self, group_id: str, timeout_s: float | None) -> None:
        core, identity = self.core, self.core.identity
        assert identity is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=core.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )
        what = "send_offsets_to_transaction"
        await self._call(what, self._coordinator, "AddOffsetsToTxn", request, timeout_s)

    async def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        timeout_s: float | None,
    ) -> None:
        core, identity = self.core, self.core.identity
        assert identity is not None
        request = TxnOffsetCommitRequest(
            transactional_id=core.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=topics_of(offsets),
        )

        def build(version: int) -> Message:
            if version < _FIRST_OFFSETS_WITH_MEMBERS:
                return request
            return request.replace(
                generation_id_or_member_epoch=group.generation,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
            )

        coordinator = self._groups.setdefault(
            group.group_id, Coordinator(self._cluster, group.group_id, GROUP)
        )
        at_most = newest_version(offsets, epoch_per_transaction=core.epoch_per_transaction)
        what = "send_offsets_to_transaction"
        await self._call(what, coordinator, "TxnOffsetCommit", build, timeout_s, at_most=at_most)

    async def _call(
        self,
        what: str,
        coordinator: Coordinator,
        api: str,
        build: Build | Message,
        timeout_s: float | None,
        *,
        at_most: int | None = None,
    ) -> Any:
        """Returns the answer, once there is a good one; what it costs otherwise is noted in the core and raised."""
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s

        async def attempt(left_s: float) -> object:
            while True:
                response = await coordinator.send(
                    api, build, timeout_s=min(left_s, self._request_timeout_s), at_most=at_most
                )
                verdict, code = _worst(api, response)
                coordinator.note(code)
                if verdict is TransactionErrorAction.FINE:
                    return response
                if verdict is not TransactionErrorAction.RETRY:
                    raise self._refused(verdict, code, what)
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise KafkaError(code, f"{what}: {code.meaning}")
                await asyncio.sleep(_CONCURRENT_PAUSE_S)

        try:
            return await self._cluster.retrying(what, limit_s, attempt)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise self._refused(TransactionErrorAction.FATAL, error.code, what, error.message) from error
            raise

    def _refused(
        self, verdict: TransactionErrorAction, code: ErrorCode, what: str, message: str | None = None
    ) -> KafkaError:
        """Returns the error to raise. Batches that wait to be sent fail at once: nothing else would ever end them."""
        error = self.core.refuse(verdict, code, what, message)
        self._drop_if_broken()
        return error


def _worst(api: str, response: Any) -> tuple[TransactionErrorAction, ErrorCode]:
    """Returns the worst of an answer's errors, and its action."""
    if api == "AddPartitionsToTxn":
        codes = [
            ErrorCode.of(partition.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]
    elif api == "TxnOffsetCommit":
        codes = [
            ErrorCode.of(partition.error_code) for topic in response.topics for partition in topic.partitions
        ]
    else:
        codes = [ErrorCode.of(response.error_code)]
    results = [(action_for_response(code), code) for code in codes if code is not ErrorCode.NONE]
    if not results:
        return TransactionErrorAction.FINE, ErrorCode.NONE
    # one refused partition makes the others "not attempted": what was wrong with that one counts
    first = max(
        results,
        key=lambda outcome: (_SEVERITY[outcome[0]], outcome[1] is not ErrorCode.OPERATION_NOT_ATTEMPTED),
    )
    if api == "InitProducerId" and first[0] not in (
        TransactionErrorAction.RETRY,
        TransactionErrorAction.FENCED,
    ):
        return TransactionErrorAction.FATAL, first[1]
    return first


_SEVERITY: Final = {
    TransactionErrorAction.FINE: 0,
    TransactionErrorAction.RETRY: 1,
    TransactionErrorAction.ABORTABLE: 2,
    TransactionErrorAction.ABORTABLE_AND_BUMP: 3,
    TransactionErrorAction.FATAL: 4,
    TransactionErrorAction.FENCED: 5,
}
