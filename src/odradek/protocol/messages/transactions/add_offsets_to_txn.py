"""AddOffsetsToTxn (key 25): a consumer group's offsets become part of a transaction.

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  PRODUCER_FENCED (KIP-588)
     3  flexible
     4  TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api=25, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Message, api=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
