"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730).

Between brokers. The answer's ids begin at `producer_id_start`; there are `producer_id_len` of them.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, int64


class AllocateProducerIdsRequest(Message, api=67, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, api=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
