"""PushTelemetry (key 72): client metrics in OpenTelemetry's format, as subscribed (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, boolean, bytestring, int8, int16, int32, uuid


class PushTelemetryRequest(Message, api=72, versions="0", flexible="0+"):
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = bytestring("0+")


class PushTelemetryResponse(Message, api=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
