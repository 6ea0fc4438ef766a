"""RemoveRaftVoter (key 81): a voter leaves a KRaft quorum (KIP-853). One version."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, api=81, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")


class RemoveRaftVoterResponse(Message, api=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
