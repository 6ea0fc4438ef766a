"""The settings of the transaction coordinator: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.definition import Importance, Setting, SettingType, Update, at_least, declare
from odradek.config.internal_topics import InternalTopicConfig

_INT, _BOOLEAN = SettingType.INT, SettingType.BOOLEAN


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionConfig(InternalTopicConfig):
    """What governs transactions on one broker."""

    transaction_max_timeout_ms: int = declare(
        Setting(
            key="transaction.max.timeout.ms",
            type=_INT,
            default=900_000,
            meaning="The longest transaction.timeout.ms that a producer may ask for.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    transactional_id_expiration_ms: int = declare(
        Setting(
            key="transactional.id.expiration.ms",
            type=_INT,
            default=604_800_000,
            meaning="How long a transactional id is remembered that nobody uses.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    transaction_state_log_num_partitions: int = declare(
        Setting(
            key="transaction.state.log.num.partitions",
            type=_INT,
            default=50,
            meaning="Partitions of the topic __transaction_state when it is made; later changes have no effect.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    transaction_state_log_segment_bytes: int = declare(
        Setting(
            key="transaction.state.log.segment.bytes",
            type=_INT,
            default=104_857_600,
            meaning="Size of a segment of __transaction_state, when that is made: compaction works on whole segments.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = declare(
        Setting(
            key="transaction.abort.timed.out.transaction.cleanup.interval.ms",
            type=_INT,
            default=10_000,
            meaning="How often transactions are looked for that have timed out: they are aborted.",
            valid=at_least(1),
            importance=Importance.LOW,
        )
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = declare(
        Setting(
            key="transaction.remove.expired.transaction.cleanup.interval.ms",
            type=_INT,
            default=3_600_000,
            meaning="How often transactional ids are looked for that have expired: they are forgotten.",
            valid=at_least(1),
            importance=Importance.LOW,
        )
    )
    transaction_partition_verification_enable: bool = declare(
        Setting(
            key="transaction.partition.verification.enable",
            type=_BOOLEAN,
            default=True,
            meaning="Whether a partition asks the coordinator if a transaction that begins there is under way (KIP-890).",
            dynamic=Update.CLUSTER_WIDE,
            importance=Importance.LOW,
        )
    )
    transaction_two_phase_commit_enable: bool = declare(
        Setting(
            key="transaction.two.phase.commit.enable",
            type=_BOOLEAN,
            default=False,
            meaning="Whether producers may have transactions that never time out, decided from outside (KIP-939).",
            importance=Importance.LOW,
        )
    )
    add_partitions_to_txn_retry_backoff_ms: int = declare(
        Setting(
            key="add.partitions.to.txn.retry.backoff.ms",
            type=_INT,
            default=20,
            meaning="Pause before a partition is added again to a transaction whose predecessor is being completed.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = declare(
        Setting(
            key="add.partitions.to.txn.retry.backoff.max.ms",
            type=_INT,
            default=100,
            meaning="How long that is tried before the producer is told to try again itself.",
            valid=at_least(0),
            importance=Importance.HIGH,
        )
    )
