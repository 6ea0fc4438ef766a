"""What members of a classic consumer group tell each other, inside JoinGroup metadata and SyncGroup
assignments.

These bytes are opaque to a broker's group code; a client, and a tool that describes groups, reads them. On
the wire an int16 with the version comes first. A reader that meets a newer version than it knows reads it
as the newest one it does know, so fields are only ever added at the end.

Subscription versions: 1 owned partitions, for cooperative rebalancing (KIP-429); 2 generation, to tell stale
owners apart (KIP-792); 3 rack (KIP-881). Assignments have not changed since version 0.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, bytestring, int32, string


class OwnedPartitions(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class AssignedPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = bytestring("0+", nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions, "0+")
    user_data: bytes | None = bytestring("0+", nullable="0+", default=None)
