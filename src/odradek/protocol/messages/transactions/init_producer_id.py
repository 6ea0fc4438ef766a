"""InitProducerId (key 22): a producer id and epoch, for idempotence and for transactions (KIP-98).

Without a transactional id the answer is a fresh id. With one, earlier producers of that name are fenced and
their open transaction is aborted, or with `keep_prepared_txn` kept.

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
     3  the id and epoch to go on from, so that a fenced producer may recover (KIP-360)
     4  PRODUCER_FENCED (KIP-588)
     5  TRANSACTION_ABORTABLE (KIP-890)
     6  two-phase commit (KIP-939); unstable in Kafka 4.3: not offered
"""

from __future__ import annotations

from odradek.protocol.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, api=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
