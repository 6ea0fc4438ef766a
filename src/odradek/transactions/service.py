"""The transaction coordinator: decisions of the machines made durable, and carried out.

Requests become operations on the shard that holds the transactional id. What happens without a request, the end of what was
decided or took too long, is the workers' (`workers.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeVar

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.turns import Turn, slices
from odradek.shards import Shards
from odradek.transactions.finisher import Finisher
from odradek.transactions.formats import ID_BYTES_MAX
from odradek.transactions.machine import TransactionMachine, TransactionTerms
from odradek.transactions.markers import Markers
from odradek.transactions.state import TIMEOUT_NEVER, ProducerIdentity, Transaction, TransactionVersion
from odradek.transactions.verification import VerificationQuestion
from odradek.transactions.workers import Decision, Workers, decided

T = TypeVar("T")
_ATTEMPTS_MAX: Final = 4
"""A producer that begins again meets the transaction before, which is aborted, and perhaps another request of its own."""

_SELECTED_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The service's settings, read again for each request."""

    terms: TransactionTerms
    timeout_ms_max: int
    two_phase_commit: bool
    retry_seconds: float
    """A request that meets a transaction not yet complete looks again after this pause, if it cannot know when,"""
    retry_seconds_max: float
    """and waits at most so long."""


class TransactionCoordinator:
    """The transaction coordinator's operations, which a broker's handlers call. The shards are made with `new_machine`;
    `close` before they are closed. Used on the event loop only."""

    def __init__(
        self,
        settings: Callable[[], TransactionSettings],
        next_producer_id: Callable[[], Awaitable[int]],
        offsets_partition: Callable[[str], TopicPartition],
    ) -> None:
        self._settings = settings
        self._next_producer_id = next_producer_id
        self._offsets_partition = offsets_partition
        self._shards: Shards[TransactionMachine] | None = None
        self._workers: Workers | None = None

    def begin(self, shards: Shards[TransactionMachine], markers: Markers) -> None:
        """Sets the shards and markers; called before the first shard is made."""
        self._shards = shards
        self._workers = Workers(shards, Finisher(shards, markers), self._next_producer_id)

    def new_machine(self, index: int) -> TransactionMachine:
        """Returns the machine of a shard that is made, or loaded again; its worker starts with the first."""
        assert self._workers is not None, "begin() comes first"
        self._workers.start_worker(index)
        return TransactionMachine(lambda: self._settings().terms)

    async def close(self) -> None:
        """Stops working; unfinished work continues after the next start."""
        if self._workers is not None:
            await self._workers.close()

    # -- requests

    async def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> ProducerIdentity:
        """Handles InitProducerId with a transactional id; returns the producer's identity from now on.

        INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is off), UNSUPPORTED_VERSION (a prepared
        transaction cannot be kept), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, and the shard's.
        """
        self._check_id(transactional_id)
        self._check_terms(timeout_ms, enable_2pc=enable_2pc, keep_prepared=keep_prepared)

        async def attempt() -> ProducerIdentity:
            identity = await self._decided(
                transactional_id,
                lambda machine, now, fresh: machine.init_producer(
                    transactional_id,
                    timeout_ms=TIMEOUT_NEVER if enable_2pc else timeout_ms,
                    expected=expected,
                    fresh_producer_id=fresh,
                    now=now,
                ),
            )
            if identity is None:
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"the transaction under way of {transactional_id!r} is being aborted: try again soon",
                )
            return identity

        return await self._until_timeout(transactional_id, attempt)

    async def add_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: TransactionVersion = TransactionVersion.CLASSIC,
        until_timeout: bool = True,
    ) -> None:
        """Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (at once, unless `until_timeout`),
        INVALID_REQUEST, and the shard's."""
        self._check_id(transactional_id)
        await self._decide(
            transactional_id,
            lambda machine, now, _: machine.add_partitions(
                transactional_id, who, partitions, client_version=client_version, now=now
            ),
            until_timeout=until_timeout,
        )

    async def verify_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        until_timeout: bool = True,
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE or TRANSACTION_ABORTABLE for each partition. Raises as `add_partitions`."""
        self._check_id(transactional_id)
        return await self._decide(
            transactional_id,
            lambda machine, _now, _fresh: machine.verify_partitions(transactional_id, who, partitions),
            until_timeout=until_timeout,
        )

    async def add_offsets(self, transactional_id: str, who: ProducerIdentity, group_id: str) -> None:
        """Adds a group's offsets to the transaction: the partition of `__consumer_offsets` that contains them."""
        await self.add_partitions(transactional_id, who, {self._offsets_partition(group_id)})

    async def end(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        *,
        commit: bool,
        client_version: TransactionVersion,
    ) -> ProducerIdentity:
        """Decides the transaction; returns as soon as the decision is durable, with the producer's identity from then on.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, and the shard's.
        """
        self._check_id(transactional_id)
        return await self._decide(
            transactional_id,
            lambda machine, now, fresh: machine.end(
                transactional_id,
                who,
                commit=commit,
                client_version=client_version,
                fresh_producer_id=fresh,
                now=now,
            ),
        )

    async def verify(self, question: VerificationQuestion) -> dict[TopicPartition, ErrorCode]:
        """Answers a `TransactionVerifier`, for the brokers that lead the partitions. With `adds` the partitions join the
        transaction (Produce 12, TxnOffsetCommit 5), else they must be part of it."""
        wanted = question.partitions
        who = ProducerIdentity(producer_id=question.producer_id, producer_epoch=question.producer_epoch)
        try:
            if not question.adds:
                return await self.verify_partitions(question.transactional_id, who, wanted)
            await self.add_partitions(
                question.transactional_id, who, wanted, client_version=TransactionVersion.EPOCH_FOR_EACH
            )
        except KafkaError as error:
            fenced = error.code is ErrorCode.PRODUCER_FENCED
            return dict.fromkeys(wanted, ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error.code)
        return dict.fromkeys(wanted, ErrorCode.NONE)

    # -- looking

    async def find(self, transactional_id: str) -> Transaction:
        """Raises TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST, and the shard's errors."""
        self._check_id(transactional_id)
        shard = self._all_shards().for_key(transactional_id)
        transaction = await shard.execute(lambda machine, _now: machine.find(transactional_id))
        if transaction is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {transactional_id!r} is known"
            )
        return transaction

    async def select(
        self, turn: Turn, wanted: Callable[[str, Transaction], bool]
    ) -> list[tuple[str, Transaction]]:
        """Returns all that this broker coordinates and that are wanted, shard by shard, by id.

        COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded.
        """
        transactions: list[tuple[str, Transaction]] = []
        for _, shard in self._all_shards():
            entries = await shard.execute(lambda machine, _now: machine.entries())
            selected: dict[str, Transaction] = {}
            for some in slices(entries, _SELECTED_AT_ONCE):
                await turn.step()
                selected.update(entry for entry in some if wanted(*entry))
            names = await turn.sort(list(selected))
            for named in slices(names, _SELECTED_AT_ONCE):
                await turn.step()
                transactions += ((name, selected[name]) for name in named)
        return transactions

    # -- what requests have in common

    def _all_shards(self) -> Shards[TransactionMachine]:
        assert self._shards is not None, "begin() comes first"
        return self._shards

    async def _decide(self, transactional_id: str, decision: Decision[T], *, until_timeout: bool = True) -> T:
        if not until_timeout:
            return await self._decided(transactional_id, decision)
        return await self._until_timeout(transactional_id, lambda: self._decided(transactional_id, decision))

    async def _decided(self, transactional_id: str, decision: Decision[T]) -> T:
        return await decided(
            lambda: self._all_shards().for_key(transactional_id), decision, self._next_producer_id
        )

    async def _until_timeout(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempts, and attempts again when the transaction in progress is complete, if that is soon.

        A client continues at once, while its last transaction gets its markers. After a refusal it would wait
        far longer than that.
        """
        settings = self._settings()
        assert self._workers is not None, "begin() comes first"
        for _ in range(_ATTEMPTS_MAX - 1):
            try:
                return await attempt()
            except KafkaError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise
            index = self._all_shards().index_for(transactional_id)
            if not await self._workers.completed(
                index, transactional_id, settings.retry_seconds, settings.retry_seconds_max
            ):
                break
        return await attempt()

    def _check_id(self, transactional_id: str) -> None:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
        if len(transactional_id.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a transactional id has at most {ID_BYTES_MAX} bytes"
            )

    def _check_terms(self, timeout_ms: int, *, enable_2pc: bool, keep_prepared: bool) -> None:
        settings = self._settings()
        if enable_2pc and not settings.two_phase_commit:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "two-phase commit is not allowed here: see transaction.two.phase.commit.enable",
            )
        if keep_prepared:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "a prepared transaction cannot be kept")
        if not enable_2pc and not 0 < timeout_ms <= settings.timeout_ms_max:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction's timeout is 1 to transaction.max.timeout.ms={settings.timeout_ms_max}, not {timeout_ms}",
            )
