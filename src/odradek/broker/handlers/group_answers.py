"""Answers to JoinGroup and SyncGroup, which the members of a group get all at once, and which differ in their ends only.

The general codec writes what comes before the end, once for all members, and every answer that is not read here: refusals, the
leader's list of members, long texts. The test compares both.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Layout
from typing import Final

from odradek.protocol import encode_response
from odradek.protocol.messages.groups.join_group import JoinGroupResponse
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.protocol.wire import uvarint

_JOIN_GROUP: Final = 11
_SYNC_GROUP: Final = 14
_JOIN_FLEXIBLE_SINCE: Final = 6
_SYNC_FLEXIBLE_SINCE: Final = 4
_SIZE_AND_CORRELATION: Final = Layout(">ii")
_SHORT: Final = Layout(">h")
_INT: Final = Layout(">i")
_TEXT_BYTES_MAX: Final = 126
"""The longest text whose compact length takes one byte."""
_NO_MEMBERS: Final = bytes(4)
_NO_MEMBERS_COMPACT: Final = b"\1\0"
"""No members, and no tagged fields."""
_REMEMBERED: Final = 256


def encode_joined(version: int, correlation_id: int, response: JoinGroupResponse) -> bytes | None:
    """Returns the answer of a member that gets no list of the others, with its size in front; None for any other."""
    member_id = response.member_id.encode()
    leader, name, kind = response.leader, response.protocol_name, response.protocol_type
    if (
        response.error_code
        or response.members
        or response.throttle_time_ms
        or name is None
        or len(member_id) > _TEXT_BYTES_MAX
        or len(leader) + len(name) + len(kind or "") > _TEXT_BYTES_MAX
    ):
        return None
    front = _joined_front(version, response.generation_id, kind, name, leader, response.skip_assignment)
    if version < _JOIN_FLEXIBLE_SINCE:
        end = _SHORT.pack(len(member_id)) + member_id + _NO_MEMBERS
    else:
        end = bytes((len(member_id) + 1,)) + member_id + _NO_MEMBERS_COMPACT
    return _SIZE_AND_CORRELATION.pack(4 + len(front) + len(end), correlation_id) + front + end


def encode_assigned(version: int, correlation_id: int, response: SyncGroupResponse) -> bytes | None:
    """Returns the answer with a member's assignment, with its size in front; None for any other."""
    kind, name = response.protocol_type, response.protocol_name
    if (
        response.error_code
        or response.throttle_time_ms
        or len(kind or "") + len(name or "") > _TEXT_BYTES_MAX
    ):
        return None
    front, assignment = _assigned_front(version, kind, name), response.assignment
    if version < _SYNC_FLEXIBLE_SINCE:
        end = _INT.pack(len(assignment)) + assignment
    else:
        end = uvarint(len(assignment) + 1) + assignment + b"\0"
    return _SIZE_AND_CORRELATION.pack(4 + len(front) + len(end), correlation_id) + front + end


@lru_cache(_REMEMBERED)
def _joined_front(
    version: int, generation: int, kind: str | None, name: str, leader: str, skip_assignment: bool
) -> bytes:
    """Returns the bytes between the correlation id and the member's id."""
    response = JoinGroupResponse(
        generation_id=generation,
        protocol_type=kind,
        protocol_name=name,
        leader=leader,
        skip_assignment=skip_assignment,
    )
    # The id is empty here, so only its length comes before the members.
    ends_bytes = 2 + 4 if version < _JOIN_FLEXIBLE_SINCE else 1 + 1 + 1
    return _front(_JOIN_GROUP, version, response, ends_bytes)


@lru_cache(_REMEMBERED)
def _assigned_front(version: int, kind: str | None, name: str | None) -> bytes:
    """Returns the bytes between the correlation id and the assignment."""
    ends_bytes = 4 if version < _SYNC_FLEXIBLE_SINCE else 1 + 1
    response = SyncGroupResponse(protocol_type=kind, protocol_name=name)
    return _front(_SYNC_GROUP, version, response, ends_bytes)


def _front(key: int, version: int, response: JoinGroupResponse | SyncGroupResponse, ends_bytes: int) -> bytes:
    encoded = b"".join(encode_response(key, version, 0, response))
    return encoded[_SIZE_AND_CORRELATION.size : -ends_bytes]
