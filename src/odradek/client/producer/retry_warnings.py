"""Logs one warning for each cause of retries, so that a waiting producer shows what it waits for.

A cause is an error code in a topic. It is warned of again only after a batch of every partition that met it was acknowledged.
"""

from __future__ import annotations

from typing import Final

from odradek.client.network.errors import explain
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.telemetry import events

_log = events.get("client")

_TOO_FEW: Final = "start the brokers of the other replicas, or lower min.insync.replicas of the topic"
_WARNED_AT_ONCE: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "free space on the leader's disk, or repair it: `odradek cluster status` names the disk",
    ErrorCode.NOT_ENOUGH_REPLICAS: _TOO_FEW,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _TOO_FEW,
}
"""The remedies for errors that do not end by themselves."""
_ATTEMPTS_BEFORE_WARNING: Final = 3
"""Other errors often come from a leader that moves: a warning is due when they stay."""
_ADVICE: Final = "look at the brokers with `odradek cluster status`"


class RetryWarnings:
    """The causes that were warned of, and the partitions that have not recovered. On the loop."""

    __slots__ = ("_causes",)

    def __init__(self) -> None:
        self._causes: dict[tuple[ErrorCode, str], set[TopicPartition]] = {}

    def retried(
        self, tp: TopicPartition, code: ErrorCode, error: Exception | None, *, attempts: int, timeout_ms: int
    ) -> None:
        """Warns if a batch is tried again for a cause that was not warned of before."""
        cause = (code, tp.topic)
        waiting = self._causes.get(cause)
        if waiting is not None:
            waiting.add(tp)
            return
        if code not in _WARNED_AT_ONCE and attempts < _ATTEMPTS_BEFORE_WARNING:
            return
        self._causes[cause] = {tp}
        _log.warning(
            "produce_is_retried",
            partition=tp,
            code=code.name,
            reason=explain(error or KafkaError(code)),
            advice=_WARNED_AT_ONCE.get(code, _ADVICE),
            delivery_timeout_ms=timeout_ms,
        )

    def delivered(self, tp: TopicPartition) -> None:
        """Notes that the partition takes records again; logs it when it was the last one of a cause."""
        if not self._causes:
            return
        for cause, waiting in list(self._causes.items()):
            waiting.discard(tp)
            if not waiting:
                del self._causes[cause]
                _log.info("produce_goes_on", partition=tp, code=cause[0].name)
