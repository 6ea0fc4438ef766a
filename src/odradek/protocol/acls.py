"""What a client must be allowed to do: operations on resources, with Kafka's numbers.

The table of APIs (`api.py`) says for each API which of them are asked for, such as `WRITE TRANSACTIONAL_ID, WRITE TOPIC`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """Kafka's numbers, in ACLs and in the bit fields of authorized operations (KIP-430)."""

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
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """Kafka's numbers. There is one CLUSTER, named `kafka-cluster`."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class RequiredAcl(NamedTuple):
    """An operation, on each resource of the kind that a request names."""

    operation: AclOperation
    resource: AclResourceType


def parse_acls(text: str) -> tuple[tuple[RequiredAcl, ...], ...]:
    """`A | B, C`: all groups between commas are asked for; of a group one is enough, or the request says which one counts."""
    return tuple(
        tuple(_parse(required) for required in group.split("|")) for group in text.split(",") if group.strip()
    )


def _parse(required: str) -> RequiredAcl:
    operation, resource = required.split()
    return RequiredAcl(AclOperation[operation], AclResourceType[resource])
