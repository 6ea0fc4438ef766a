"""The registry's JSON documents other than topics: settings, quotas, levels of features, ACLs.

A `Document` defines the path, the format, and the image's field of one of them. The controller changes any of
them by the same steps.

What grows with users is in parts, each one document: so no node grows too large for a ZooKeeper, and a change writes and sends
only the parts in which something changes. A `PartedDocument` is changed as a whole; the part of an entry follows from its key.
ACLs are changed part by part; all ACLs of one pattern are in one part.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from odradek.cluster.image import (
    ACL_PARTS,
    NO_QUOTAS,
    NO_RESOURCE_CONFIGS,
    ClientQuotas,
    ClusterImage,
    FeatureLevels,
    ResourceConfigs,
    differ,
)
from odradek.model.lazy import lazy
from odradek.model.parted import PARTS, Parted
from odradek.registry import Node
from odradek.security.quotas import Limits
from odradek.security.sasl import delegation_tokens
from odradek.security.sasl import users as sasl_users
from odradek.security.sasl.delegation_tokens import NO_TOKENS, DelegationTokens
from odradek.security.sasl.users import NO_USERS, ScramUsers

if TYPE_CHECKING:
    from odradek.protocol import acls as protocol_acls
    from odradek.security import acls
else:
    acls = lazy("odradek.security.acls")
    protocol_acls = lazy("odradek.protocol.acls")

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

BROKER: Final = 4
"""The type of a broker's settings among `resource_configs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """One document; without a node in the registry the image keeps its default."""

    path: str
    of: Callable[[ClusterImage], T]
    into: Callable[[ClusterImage, T], ClusterImage]
    encode: Callable[[T], Any]
    decode: Callable[[Any], T]

    def data(self, value: T) -> bytes:
        return json.dumps(self.encode(value), sort_keys=True, separators=(",", ":")).encode()

    def load(self, image: ClusterImage, node: Node) -> ClusterImage:
        return self.into(image, self.decode(json.loads(node.data)))

    def changed_parts(self, before: ClusterImage, after: ClusterImage) -> Iterator[AnyDocument]:
        """Yields the document if the images differ in it."""
        if differ(self.of(before), self.of(after)):
            yield self


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedDocument(Generic[T]):
    """A value of the image that is stored in several documents, its `parts`. `path` is their parent.

    Earlier commits stored one document at `path`. It counts until all parts are stored, and is empty then.
    """

    path: str
    of: Callable[[ClusterImage], T]
    into: Callable[[ClusterImage, T], ClusterImage]
    parts: tuple[AnyDocument, ...]
    former: Callable[[Any], T]
    """Reads the one document of earlier commits."""

    def load_former(self, image: ClusterImage, node: Node) -> ClusterImage:
        return self.into(image, self.former(json.loads(node.data)))

    def changed_parts(self, before: ClusterImage, after: ClusterImage) -> Iterator[AnyDocument]:
        """Yields the documents in which the images differ."""
        for part in self.parts:
            yield from part.changed_parts(before, after)


Stored = Document[T] | PartedDocument[T]
"""What the controller changes in one step."""
AnyDocument: TypeAlias = Document[Any]
AnyPartedDocument: TypeAlias = PartedDocument[Any]


def _in_parts(
    path: str,
    of: Callable[[ClusterImage], Parted[K, V]],
    into: Callable[[ClusterImage, Parted[K, V]], ClusterImage],
    encode: Callable[[Mapping[K, V]], object],
    decode: Callable[[Any], Mapping[K, V]],
) -> tuple[Document[Mapping[K, V]], ...]:
    """Returns a document for each part of a mapping."""

    def part_document(number: int) -> Document[Mapping[K, V]]:
        return Document(
            path=f"{path}/{number}",
            of=lambda image: of(image).parts[number],
            into=lambda image, part: into(image, of(image).with_parts({number: part})),
            encode=encode,
            decode=decode,
        )

    return tuple(map(part_document, range(PARTS)))


def _parted(
    path: str,
    empty: Parted[K, V],
    of: Callable[[ClusterImage], Parted[K, V]],
    into: Callable[[ClusterImage, Parted[K, V]], ClusterImage],
    encode: Callable[[Mapping[K, V]], Any],
    decode: Callable[[Any], Mapping[K, V]],
) -> PartedDocument[Parted[K, V]]:
    return PartedDocument(
        path=path,
        of=of,
        into=into,
        parts=_in_parts(path, of, into, encode, decode),
        former=lambda stored: empty.with_changes(decode(stored)),
    )


def _resource_configs(
    stored: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[tuple[int, str], Mapping[str, str]]:
    return {(int(kind), name): configs for kind, named in stored.items() for name, configs in named.items()}


def _by_kind(configs: Mapping[tuple[int, str], Mapping[str, str]]) -> dict[str, dict[str, dict[str, str]]]:
    stored: dict[str, dict[str, dict[str, str]]] = {}
    for (kind, name), values in configs.items():
        stored.setdefault(str(kind), {})[name] = dict(values)
    return stored


def _quotas(stored: list[list[Any]]) -> Limits:
    return {tuple((kind, name) for kind, name in entity): limits for entity, limits in stored}


BROKER_CONFIGS: Final[Document[Mapping[str, str]]] = Document(
    path="/configs/brokers",
    of=lambda image: image.broker_configs,
    into=lambda image, configs: image.with_broker_configs(configs),
    encode=dict,
    decode=dict,
)
"""Dynamic settings of all brokers."""

RESOURCE_CONFIGS: Final[PartedDocument[ResourceConfigs]] = _parted(
    path="/configs/resources",
    empty=NO_RESOURCE_CONFIGS,
    of=lambda image: image.resource_configs,
    into=lambda image, configs: replace(image, resource_configs=configs),
    encode=_by_kind,
    decode=_resource_configs,
)
"""Dynamic settings of single brokers, of groups, and of subscriptions to clients' metrics."""

CLIENT_QUOTAS: Final[PartedDocument[ClientQuotas]] = _parted(
    path="/quotas",
    empty=NO_QUOTAS,
    of=lambda image: image.client_quotas,
    into=lambda image, quotas: replace(image, client_quotas=quotas),
    encode=lambda quotas: [[entity, dict(limits)] for entity, limits in quotas.items()],
    decode=_quotas,
)

FEATURES: Final[Document[FeatureLevels]] = Document(
    path="/features",
    of=lambda image: image.features,
    into=lambda image, features: replace(image, features=features),
    encode=lambda features: {"epoch": features.epoch, "levels": dict(features.levels)},
    decode=lambda stored: FeatureLevels(epoch=stored["epoch"], levels=stored["levels"]),
)


AclPart = frozenset["acls.Acl"]


def part_of(pattern: acls.AclPattern) -> int:
    """Returns the number of the part that contains the ACLs of a pattern."""
    return zlib.crc32(f"{pattern.resource_type:d}:{pattern.name}".encode()) % ACL_PARTS


def _encode_acls(part: AclPart) -> list[list[object]]:
    return sorted(
        [
            int(acl.pattern.resource_type),
            int(acl.pattern.pattern_type),
            acl.pattern.name,
            acl.principal,
            acl.host,
            int(acl.operation),
            int(acl.permission),
        ]
        for acl in part
    )


def _decode_acls(stored: list[list[Any]]) -> AclPart:
    return frozenset(
        acls.Acl(
            acls.AclPattern(
                protocol_acls.AclResourceType(kind), name, protocol_acls.PatternType(pattern_type)
            ),
            principal,
            host,
            protocol_acls.AclOperation(operation),
            protocol_acls.AclPermission(permission),
        )
        for kind, pattern_type, name, principal, host, operation, permission in stored
    )


def _acl_document(number: int) -> Document[AclPart]:
    def of(image: ClusterImage) -> AclPart:
        return image.acls[number]

    def into(image: ClusterImage, part: AclPart) -> ClusterImage:
        return replace(image, acls=(*image.acls[:number], part, *image.acls[number + 1 :]))

    return Document(path=f"/acls/{number}", of=of, into=into, encode=_encode_acls, decode=_decode_acls)


ACL_DOCUMENTS: Final = tuple(_acl_document(number) for number in range(ACL_PARTS))

_SCRAM_SEED: Final[Document[str]] = Document(
    path="/scram/seed",
    of=lambda image: image.scram_users.seed,
    into=lambda image, seed: replace(image, scram_users=replace(image.scram_users, seed=seed)),
    encode=str,
    decode=str,
)

SCRAM_USERS: Final[PartedDocument[ScramUsers]] = PartedDocument(
    path="/scram",
    of=lambda image: image.scram_users,
    into=lambda image, users: replace(image, scram_users=users),
    parts=(
        _SCRAM_SEED,
        *_in_parts(
            path="/scram/users",
            of=lambda image: image.scram_users.users,
            into=lambda image, users: replace(image, scram_users=replace(image.scram_users, users=users)),
            encode=sasl_users.as_json,
            decode=sasl_users.from_json,
        ),
    ),
    former=lambda stored: ScramUsers(
        seed=stored["seed"], users=NO_USERS.with_changes(sasl_users.from_json(stored["users"]))
    ),
)
"""Credentials of users (KIP-554), and the seed of those that do not exist."""

DELEGATION_TOKENS: Final[PartedDocument[DelegationTokens]] = _parted(
    path="/delegation_tokens",
    empty=NO_TOKENS,
    of=lambda image: image.delegation_tokens,
    into=lambda image, tokens: replace(image, delegation_tokens=tokens),
    encode=delegation_tokens.tokens_as_json,
    decode=delegation_tokens.tokens_from_json,
)

PARTED_DOCUMENTS: Final[tuple[AnyPartedDocument, ...]] = (
    RESOURCE_CONFIGS,
    CLIENT_QUOTAS,
    SCRAM_USERS,
    DELEGATION_TOKENS,
)

DOCUMENTS: Final[tuple[AnyDocument, ...]] = (
    BROKER_CONFIGS,
    *RESOURCE_CONFIGS.parts,
    *CLIENT_QUOTAS.parts,
    FEATURES,
    *ACL_DOCUMENTS,
    *SCRAM_USERS.parts,
    *DELEGATION_TOKENS.parts,
)
"""Each document of the registry except topics, once."""
