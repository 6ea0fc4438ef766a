"""EndTxn (key 26): commit or abort a transaction.

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  PRODUCER_FENCED (KIP-588)
     3  flexible
     4  TRANSACTION_ABORTABLE (KIP-890)
     5  each transaction ends its epoch: response: the producer id and epoch to go on with (KIP-890)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api=26, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Message, api=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
