"""The authorizer: who may do what. A port, and the one that decides by ACLs (Kafka's StandardAuthorizer).

`authorizer.class.name` names one: Kafka's own name for the ACL authorizer, or the import path of a Python
class that has the methods of `Authorizer`. `broker/access/file_authorizer.py` is an example of the latter.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from odradek.model.errors import ConfigError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, AclPattern, canonical_host
from odradek.security.closed_topics import CLOSED_SUFFIXES, is_closed, is_of_the_system, means

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLDER_NAMES: Final = frozenset(
    {"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}
)
_REMEMBERED_MAX: Final = 100_000
_ANY_NAME: Final = "hardcode"
"""Kafka asks about a topic of this name, too, when it asks whether any topic may be written."""

AclBuckets = Sequence[frozenset[Acl]]
"""All ACLs of a cluster, in parts (`cluster/documents.py`)."""


@runtime_checkable
class Authorizer(Protocol):
    """Decides at once, on the event loop: an implementation fetches remote data in advance, on a thread of
    its own.

    Made without arguments, then given the broker's settings, as text.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Applies the settings; called before the first decision. Raises ConfigError, which names what is wrong with them."""

    def may(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Tells whether a principal (`User:name`) may do this from this address."""

    def may_anywhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Tells whether a principal may do this to any possible resource of the type (KIP-679)."""


class AclAuthorizer:
    """Decides by the ACLs that the cluster keeps (`update`), super users, and what holds where there are no ACLs."""

    def __init__(self) -> None:
        self._index = AclIndex()
        self._buckets: AclBuckets = ()
        self._super_users: frozenset[str] = frozenset()
        self._allows_unlisted = False
        self._closed_suffixes: Sequence[str] = CLOSED_SUFFIXES
        self._remembered: dict[tuple[str, str, int, int, str], bool] = {}
        self.change_count = 0
        """Grows with every change of the ACLs."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self._super_users = parse_super_users(settings.get("super.users", ""))
        self._allows_unlisted = (
            settings.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
        )
        self._closed_suffixes = closed_suffixes(settings)
        self._remembered.clear()

    def update(self, buckets: AclBuckets) -> None:
        """Sets the cluster's ACLs."""
        before = self._buckets or [frozenset[Acl]()] * len(buckets)
        for old, new in zip(before, buckets, strict=True):
            if old is not new:
                for acl in old - new:
                    self._index.remove(acl)
                for acl in new - old:
                    self._index.add(acl)
        self._buckets = buckets
        self._remembered.clear()
        self.change_count += 1

    def may(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        key = principal, host, operation, resource_type, name
        known = self._remembered.get(key)
        if known is None:
            known = self._decide(principal, host, operation, resource_type, name)
            self._remember(key, known)
        return known

    def may_anywhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        key = principal, host, -operation, resource_type, ""
        known = self._remembered.get(key)
        if known is None:
            known = self.may(
                principal, host, operation, resource_type, _ANY_NAME
            ) or self._index.is_allowed_somewhere(principal, canonical_host(host), operation, resource_type)
            self._remember(key, known)
        return known

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        verdict = self._index.verdict(principal, canonical_host(host), operation, resource_type, name)
        if resource_type is AclResourceType.TOPIC and is_closed(name, operation, self._closed_suffixes):
            return self._is_meant(verdict, principal, host, operation, name)
        return verdict is AclVerdict.ALLOWED or (verdict is AclVerdict.NO_ACLS and self._allows_unlisted)

    def _is_meant(
        self, verdict: AclVerdict, principal: str, host: str, operation: AclOperation, topic: str
    ) -> bool:
        """Tells whether a rule opens a closed topic. If no rule is about application state, it is a topic like any other."""
        if verdict is AclVerdict.NO_ACLS:
            return self._allows_unlisted and not is_of_the_system(topic)
        resource = AclPattern(AclResourceType.TOPIC, topic)
        return verdict is AclVerdict.ALLOWED and self._index.is_allowed_by(
            principal, canonical_host(host), operation, resource, means
        )

    def _remember(self, key: tuple[str, str, int, int, str], decision: bool) -> None:
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[key] = decision


def closed_suffixes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the setting `odradek.closed.topic.suffixes`, of settings as text."""
    text = settings.get("odradek.closed.topic.suffixes")
    if text is None:
        return CLOSED_SUFFIXES
    return tuple(suffix for part in text.split(",") if (suffix := part.strip()))


def parse_super_users(text: str) -> frozenset[str]:
    """Parses `User:a;User:b`. Raises ConfigError for a text that is not a principal. Names are compared letter by letter."""
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in sorted(users):
        type_, colon, name = user.partition(":")
        if not colon or not type_ or not name:
            raise ConfigError(
                f"super.users={text}: {user!r} is no principal; write User:NAME, with ; between several"
            )
    return users


def make_authorizer(class_name: str, settings: Mapping[str, str]) -> Authorizer | None:
    """Returns the authorizer that `authorizer.class.name` names, configured; None where there is none. ConfigError."""
    if not class_name:
        return None
    if class_name == STANDARD_AUTHORIZER or class_name in _OLDER_NAMES:
        standard = AclAuthorizer()
        standard.configure(settings)
        return standard
    authorizer = made_of(class_name, "authorizer.class.name")
    missing = [name for name in ("configure", "may", "may_anywhere") if not hasattr(authorizer, name)]
    if missing:
        raise ConfigError(
            f"authorizer.class.name={class_name}: the class has no method {', '.join(missing)}; "
            "see odradek.security.authorizer.Authorizer"
        )
    own: Authorizer = authorizer
    own.configure(settings)
    return own


def made_of(class_name: str, key: str) -> Any:
    """Returns an instance of a class given by its import path, `package.module.Class`. ConfigError names the setting `key`."""
    module, _, name = class_name.rpartition(".")
    try:
        # late-import: a class that the settings name
        cls = getattr(importlib.import_module(module), name)
        return cls()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{key}={class_name}: it cannot be made ({error}); give Kafka's name of its own one, "
            "or the import path of a Python class that is made without arguments"
        ) from error
