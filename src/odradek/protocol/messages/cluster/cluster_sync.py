"""ClusterSync (key 10000): a broker pulls the cluster's image from the controller. Odradek's own, between its brokers.

The broker sends the version of the image that it has applied (-1: none, or one of another controller epoch)
and a report about itself (JSON in `payload`); the response, a long poll, brings later changes. `kind` is 0
without changes, 1 for a delta to the version that the broker named, 2 for a whole image; `cluster/sync.py`
defines the payloads.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, bytestring, int8, int16, int32, int64


class ClusterSyncRequest(Message, api=10000, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    controller_epoch: int = int32("0+", default=-1)
    version: int = int64("0+", default=-1)
    max_wait_ms: int = int32("0+")
    payload: bytes = bytestring("0+")


class ClusterSyncResponse(Message, api=10000, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    controller_epoch: int = int32("0+", default=-1)
    version: int = int64("0+", default=-1)
    kind: int = int8("0+")
    payload: bytes = bytestring("0+")
