"""Kafka's error codes, in one table, and the exceptions that carry them.

Source: the protocol guide's table of error codes (Apache Kafka 4.4). A code is retriable when the same request may
succeed later without the caller changing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, Self, TypeVar

from odradek.model.exception_text import text_of
from odradek.model.public import public


@public("odradek")
class ErrorCode(IntEnum):
    """A number on the wire; `retriable` and `meaning` tell what a client may do about it."""

    retriable: bool
    meaning: str

    def __new__(cls, code: int, retriable: bool, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "the server met an unexpected error")
    NONE = (0, False, "no error")
    OFFSET_OUT_OF_RANGE = (1, False, "the offset is outside the range that the partition holds")
    CORRUPT_MESSAGE = (2, True, "a batch failed its CRC, exceeds the valid size or is otherwise corrupt")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "this broker does not host the topic-partition")
    INVALID_FETCH_SIZE = (4, False, "the fetch size is invalid")
    LEADER_NOT_AVAILABLE = (5, True, "the partition has no leader at present")
    NOT_LEADER_OR_FOLLOWER = (6, True, "the broker is not the leader, or not a replica, of the partition")
    REQUEST_TIMED_OUT = (7, True, "the request timed out")
    BROKER_NOT_AVAILABLE = (8, False, "the broker is not available")
    REPLICA_NOT_AVAILABLE = (9, True, "the replica is not available for the partition")
    MESSAGE_TOO_LARGE = (10, False, "the batch is larger than the topic or broker accepts")
    STALE_CONTROLLER_EPOCH = (11, False, "the controller moved to another broker")
    OFFSET_METADATA_TOO_LARGE = (12, False, "the metadata field of the offset commit is too large")
    NETWORK_EXCEPTION = (13, True, "the server disconnected before a response was received")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "the coordinator is loading and cannot process requests yet")
    COORDINATOR_NOT_AVAILABLE = (15, True, "the coordinator is not available")
    NOT_COORDINATOR = (16, True, "this broker is not the right coordinator")
    INVALID_TOPIC_EXCEPTION = (17, False, "the topic name is invalid")
    RECORD_LIST_TOO_LARGE = (18, False, "the batch is larger than a segment may be")
    NOT_ENOUGH_REPLICAS = (19, True, "fewer replicas are in sync than min.insync.replicas asks for")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True, "written, but to fewer in-sync replicas than required")
    INVALID_REQUIRED_ACKS = (21, False, "acks must be 0, 1 or -1 (all)")
    ILLEGAL_GENERATION = (22, False, "the group's generation is not the one given")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "the member's protocols do not match the group's")
    INVALID_GROUP_ID = (24, False, "the group id is invalid")
    UNKNOWN_MEMBER_ID = (25, False, "the coordinator does not know this member")
    INVALID_SESSION_TIMEOUT = (26, False, "the session timeout is outside the range the broker allows")
    REBALANCE_IN_PROGRESS = (27, False, "the group is rebalancing: rejoin")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "the committed offset data size is invalid")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "not authorised for the topic")
    GROUP_AUTHORIZATION_FAILED = (30, False, "not authorised for the group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "not authorised for the cluster")
    INVALID_TIMESTAMP = (32, False, "the record's timestamp is out of the acceptable range")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "the broker does not support this SASL mechanism")
    ILLEGAL_SASL_STATE = (34, False, "the request is not valid in this SASL state")
    UNSUPPORTED_VERSION = (35, False, "this version of the API is not supported")
    TOPIC_ALREADY_EXISTS = (36, False, "a topic of this name already exists")
    INVALID_PARTITIONS = (37, False, "the number of partitions is invalid")
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, False, "the replica assignment is invalid")
    INVALID_CONFIG = (40, False, "the configuration is invalid")
    NOT_CONTROLLER = (41, True, "this broker is not the controller")
    INVALID_REQUEST = (42, False, "the request is malformed or contradicts itself")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "the broker's message format does not support the request")
    POLICY_VIOLATION = (44, False, "the request violates the broker's policy")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "the producer's sequence number leaves a gap")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "the producer's sequence number was already used")
    INVALID_PRODUCER_EPOCH = (47, False, "the producer's epoch is older than the current one")
    INVALID_TXN_STATE = (48, False, "the operation is not valid in the transaction's state")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "the producer id is not the one of this transactional id")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "the transaction timeout is above transaction.max.timeout.ms")
    CONCURRENT_TRANSACTIONS = (51, True, "another operation on the transaction is still under way")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "the transaction coordinator was replaced by a newer one")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "not authorised for the transactional id")
    SECURITY_DISABLED = (54, False, "security features are disabled")
    OPERATION_NOT_ATTEMPTED = (55, False, "the broker did not attempt this operation")
    KAFKA_STORAGE_ERROR = (56, True, "a disk error: the log directory is offline")
    LOG_DIR_NOT_FOUND = (57, False, "the log directory is not among the broker's")
    SASL_AUTHENTICATION_FAILED = (58, False, "SASL authentication failed")
    UNKNOWN_PRODUCER_ID = (59, False, "the broker holds no state for this producer id")
    REASSIGNMENT_IN_PROGRESS = (60, False, "a partition reassignment is under way")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "delegation tokens are disabled")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "no such delegation token")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "the principal is not the token's owner or renewer")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64, False, "delegation token requests are not allowed here")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "not authorised for the delegation token")
    DELEGATION_TOKEN_EXPIRED = (66, False, "the delegation token has expired")
    INVALID_PRINCIPAL_TYPE = (67, False, "the principal type is not supported")
    NON_EMPTY_GROUP = (68, False, "the group is not empty")
    GROUP_ID_NOT_FOUND = (69, False, "no such group")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "no such fetch session")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "the fetch session's epoch is not the expected one")
    LISTENER_NOT_FOUND = (72, True, "the leader has no listener that matches this one")
    TOPIC_DELETION_DISABLED = (73, False, "topic deletion is disabled (delete.topic.enable)")
    FENCED_LEADER_EPOCH = (74, True, "the leader epoch is older than the broker's")
    UNKNOWN_LEADER_EPOCH = (75, True, "the leader epoch is newer than the broker's")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "the compression type is not supported in this version")
    STALE_BROKER_EPOCH = (77, False, "the broker's epoch changed")
    OFFSET_NOT_AVAILABLE = (78, True, "the leader's high watermark has not caught up since its election")
    MEMBER_ID_REQUIRED = (79, False, "join again with the member id given in this response")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "the preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = (81, False, "the group already has its largest number of members")
    FENCED_INSTANCE_ID = (82, False, "another member took over this group.instance.id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "no replica that may lead is available")
    ELECTION_NOT_NEEDED = (84, True, "no election is needed")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "no partition reassignment is under way")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "the group is subscribed to the topic")
    INVALID_RECORD = (87, False, "the broker refused a record's content")
    UNSTABLE_OFFSET_COMMIT = (88, True, "offsets of an open transaction have yet to be decided")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "the quota was exceeded")
    PRODUCER_FENCED = (90, False, "a newer producer uses this transactional id")
    RESOURCE_NOT_FOUND = (91, False, "no such resource")
    DUPLICATE_RESOURCE = (92, False, "the resource exists or is named twice")
    UNACCEPTABLE_CREDENTIAL = (93, False, "the credential does not meet the requirements")
    INCONSISTENT_VOTER_SET = (94, False, "the voter sets differ")
    INVALID_UPDATE_VERSION = (95, False, "the update version is invalid")
    FEATURE_UPDATE_FAILED = (96, False, "features could not be updated")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "the forwarded principal could not be read")
    SNAPSHOT_NOT_FOUND = (98, False, "no such snapshot")
    POSITION_OUT_OF_RANGE = (99, False, "the position is outside the snapshot")
    UNKNOWN_TOPIC_ID = (100, True, "no topic has this id")
    DUPLICATE_BROKER_REGISTRATION = (101, False, "the broker id is in use")
    BROKER_ID_NOT_REGISTERED = (102, False, "the broker id is not registered")
    INCONSISTENT_TOPIC_ID = (103, True, "the topic id is not the one in the log")
    INCONSISTENT_CLUSTER_ID = (104, False, "the cluster id is not this cluster's")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "no such transactional id")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "the fetch session mixes topic names and ids")
    INELIGIBLE_REPLICA = (107, False, "the replica may not join the in-sync set")
    NEW_LEADER_ELECTED = (108, False, "a new leader was elected")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, False, "the offset moved to tiered storage")
    FENCED_MEMBER_EPOCH = (110, False, "the member's epoch was fenced: rejoin")
    UNRELEASED_INSTANCE_ID = (111, False, "the instance id is still held by another member")
    UNSUPPORTED_ASSIGNOR = (112, False, "the assignor is not supported")
    STALE_MEMBER_EPOCH = (113, False, "the member's epoch is stale")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "the request went to an endpoint of the wrong type")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "the endpoint type is not supported")
    UNKNOWN_CONTROLLER_ID = (116, False, "the controller id is unknown")
    UNKNOWN_SUBSCRIPTION_ID = (117, False, "the telemetry subscription id is unknown or stale")
    TELEMETRY_TOO_LARGE = (118, False, "the telemetry payload is too large")
    INVALID_REGISTRATION = (119, False, "the broker registration is invalid")
    TRANSACTION_ABORTABLE = (120, False, "abort the transaction and retry it")
    INVALID_RECORD_STATE = (121, False, "the record's state does not allow this acknowledgement")
    SHARE_SESSION_NOT_FOUND = (122, True, "no such share session")
    INVALID_SHARE_SESSION_EPOCH = (123, True, "the share session's epoch is not the expected one")
    FENCED_STATE_EPOCH = (124, False, "the share coordinator's state epoch is older than the current one")
    INVALID_VOTER_KEY = (125, False, "the voter key is not the receiver's")
    DUPLICATE_VOTER = (126, False, "the voter is already in the set")
    VOTER_NOT_FOUND = (127, False, "the voter is not in the set")
    INVALID_REGULAR_EXPRESSION = (128, False, "the regular expression is invalid")
    REBOOTSTRAP_REQUIRED = (129, False, "the client must bootstrap again")
    STREAMS_INVALID_TOPOLOGY = (130, False, "the streams topology is invalid")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, False, "the streams topology epoch is invalid")
    STREAMS_TOPOLOGY_FENCED = (132, False, "the streams topology epoch is outdated")
    SHARE_SESSION_LIMIT_REACHED = (133, True, "the broker holds as many share sessions as it may")
    GROUP_DELETION_FAILED = (134, False, "the group could not be deleted")
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (135, False, "the topology's description was not stored")
    CONTROLLER_ID_NOT_REGISTERED = (136, False, "no controller has this id")

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Returns the member for a number read from the wire; UNKNOWN_SERVER_ERROR for numbers this table does not hold."""
        try:
            return cls(code)  # type: ignore[call-arg]
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


@public("odradek")
class OdradekError(Exception):
    """Root of every error that this package raises on purpose."""

    def as_outcome(self) -> Self:
        """Returns this error without its traceback, to be returned or put into a container.

        A traceback refers to the frames that the error passed, and one of them to the container, or to the future that held
        the error. That is a cycle, which only Python's collector frees, and late (`broker/process.py`)."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


MESSAGE_LENGTH_MAX: Final = 1000


@public("odradek")
class KafkaError(OdradekError):
    """An error with a Kafka code: what a broker answers, and what a client raises when it reads that answer."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code: Final = code
        self.message: Final = _bounded(message or code.meaning)
        super().__init__(f"{code.name}: {self.message}")

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.code.retriable


class RecordsRefusedError(KafkaError):
    """A produced batch is refused for some of its records. `records`: their positions in the batch, and why; bounded."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records: Final = tuple(records)


def _bounded(message: str) -> str:
    """Returns a message as one line that fits into the wire's strings (32,767 bytes): messages quote what clients sent.

    Line ends, control characters and lone surrogates are escaped, so that a name forges no line of a log.
    """
    if len(message) > MESSAGE_LENGTH_MAX:
        half = MESSAGE_LENGTH_MAX // 2
        message = f"{message[:half]} [...] {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in message
    )


@public("odradek")
class ConfigError(OdradekError):
    """A setting that cannot be used; the message names the key, the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContent:
    """The code and text of a `KafkaError`, to be kept: see `ErrorValue`."""

    code: ErrorCode
    message: str

    @classmethod
    def of(cls, error: KafkaError) -> ErrorContent:
        return cls(code=error.code, message=error.message)

    def error(self) -> KafkaError:
        """Returns a new exception each time."""
        return KafkaError(self.code, self.message)


E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorValue(Generic[E]):
    """The contents of an error, without the error: its class, its arguments and its attributes.

    An exception that is kept and raised again gains a traceback entry each time, and every entry keeps a frame with all
    that it names. So code that must raise an error later keeps this, and raises a new exception each time.
    """

    kind: type[E]
    arguments: tuple[object, ...]
    attributes: Mapping[str, object]
    reason: str
    """The message that the error had."""

    @classmethod
    def of(cls, error: E) -> ErrorValue[E]:
        return cls(
            kind=type(error), arguments=error.args, attributes=dict(vars(error)), reason=text_of(error)
        )

    def exception(self) -> E:
        """Returns a new exception with the same contents."""
        made = self.kind.__new__(self.kind, *self.arguments)
        made.args = self.arguments
        vars(made).update(self.attributes)
        return made


def refuse(code: ErrorCode, message: str | None = None) -> KafkaError:
    """Returns a `KafkaError` to raise: `raise refuse(ErrorCode.INVALID_REQUEST, "...")`."""
    return KafkaError(code, message)
