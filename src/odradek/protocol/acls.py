"""The permissions that a client needs: operations on resources, with Kafka's numbers.

The table of APIs (`api.py`) lists each API's permissions, such as `WRITE TRANSACTIONAL_ID, WRITE TOPIC`;
`access.py` has the request's field that each is about, and the response when it is refused.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclOperation(IntEnum):
    """The operations that an ACL names, with Kafka's numbers. The bit fields of authorized operations use them, too
    (KIP-430)."""

    UNKNOWN = 0
    ANY = 1
    """Matches every operation; only in filters."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """The types of resources that an ACL names, with Kafka's numbers. There is one CLUSTER, named `kafka-cluster`."""

    UNKNOWN = 0
    ANY = 1
    """Matches every resource type; only in filters."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources (KIP-290). Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    """Matches LITERAL and PREFIXED; only in filters."""
    MATCH = 2
    """Matches every pattern that covers the name; only in filters."""
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """The permission of an ACL, allow or deny, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    """Matches both permissions; only in filters."""
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: Final = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations on each kind of resource."""


class RequiredAcl(NamedTuple):
    """An operation, on each resource of the kind that a request names."""

    operation: AclOperation
    resource: AclResourceType


def parse_acls(text: str) -> tuple[tuple[RequiredAcl, ...], ...]:
    """Parses `A | B, C`. All groups between commas are asked for; of a group one is enough, or the request determines which
    one counts."""
    return tuple(
        tuple(parse_acl(required) for required in group.split("|"))
        for group in text.split(",")
        if group.strip()
    )


def parse_acl(required: str) -> RequiredAcl:
    """Parses `WRITE TOPIC`."""
    operation, resource = required.split()
    return RequiredAcl(AclOperation[operation], AclResourceType[resource])
