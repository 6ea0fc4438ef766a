"""How much fits into a document of the registry, which a ZooKeeper limits."""

from __future__ import annotations

import json

from odradek.cluster.controller.settings import DOCUMENT_BYTES_MAX
from odradek.cluster.documents import ACL_DOCUMENTS, CLIENT_QUOTAS, part_of
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclPattern


def test_quotas_of_ten_thousand_users_fit_with_one_limit_each() -> None:
    quotas = {(("user", f"user-{number:05d}"),): {"producer_byte_rate": 1e6} for number in range(11_500)}
    data = CLIENT_QUOTAS.data(quotas)
    assert len(data) < DOCUMENT_BYTES_MAX
    assert CLIENT_QUOTAS.decode(json.loads(data)) == quotas


def test_a_hundred_thousand_acls_fit_into_their_parts() -> None:
    acls = [
        Acl(
            AclPattern(AclResourceType.TOPIC, f"topic-{number:06d}", PatternType.LITERAL),
            f"User:user-{number:05d}",
            "*",
            AclOperation.READ,
            AclPermission.ALLOW,
        )
        for number in range(100_000)
    ]
    for number, document in enumerate(ACL_DOCUMENTS):
        part = frozenset(acl for acl in acls if part_of(acl.pattern) == number)
        data = document.data(part)
        assert len(data) < DOCUMENT_BYTES_MAX
        assert document.decode(json.loads(data)) == part
