"""The rights of one request's client, as the authorizer decides them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from odradek.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    AclResourceType,
    RequiredAcl,
)
from odradek.security.authorizer import Authorizer
from odradek.security.principals import Requester

ReportRefusal = Callable[[RequiredAcl, str], None]
_REPORTED_MAX: Final = 20


class Access:
    """The rights of one request's client. It reports each of the first `_REPORTED_MAX` refusals, and counts the others."""

    __slots__ = ("_authorizer", "_host", "_principal", "_report", "check_rules", "refused_count")

    def __init__(self, authorizer: Authorizer, asker: Requester, report: ReportRefusal) -> None:
        self._authorizer = authorizer
        self._principal = asker.principal
        self._host = asker.host
        self._report = report
        self.refused_count = 0
        self.check_rules: Callable[[], None] | None = None
        """Raises when the rules may be out of date: before each decision, because a request can wait for long."""

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Tells whether the client may do this; reports a refusal."""
        if self.may_quietly(operation, resource_type, name):
            return True
        self._refused(RequiredAcl(operation, resource_type), name)
        return False

    def may_quietly(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Decides as `may`, without a report: such a refusal is no mistake of the client, whose answer only shows less."""
        if self.check_rules is not None:
            self.check_rules()
        return self._authorizer.may(self._principal, self._host, operation, resource_type, name)

    def may_any(
        self, alternatives: Iterable[RequiredAcl], name: str | None, *, quietly: bool = False
    ) -> bool:
        """Tells whether one of the alternatives is allowed; None as the name: for any possible resource."""
        for required in alternatives:
            if required.resource is AclResourceType.CLUSTER:
                allowed = self.may_quietly(required.operation, required.resource, CLUSTER_NAME)
            elif name is None:
                allowed = self._authorizer.may_anywhere(
                    self._principal, self._host, required.operation, required.resource
                )
            else:
                allowed = self.may_quietly(required.operation, required.resource, name)
            if allowed:
                return True
        if not quietly:
            self._refused(
                required, CLUSTER_NAME if required.resource is AclResourceType.CLUSTER else name or "*"
            )
        return False

    def operations(self, resource_type: AclResourceType, name: str) -> int:
        """Returns the operations that the client may do to it, as the bit field of KIP-430."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.may_quietly(operation, resource_type, name)
        )

    def _refused(self, required: RequiredAcl, name: str) -> None:
        self.refused_count += 1
        if self.refused_count <= _REPORTED_MAX:
            self._report(required, name)
