"""How much fits into a document of the registry, which a ZooKeeper limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.broker.handlers.quotas.alter_client_quotas import ENTITIES_MAX
from odradek.broker.handlers.security.alter_user_scram_credentials import USERS_MAX
from odradek.cluster.controller.settings import DOCUMENT_BYTES_MAX
from odradek.cluster.documents import ACL_DOCUMENTS, CLIENT_QUOTAS, SCRAM_USERS, part_of
from odradek.cluster.image import NO_QUOTAS
from odradek.cluster.sync import apply_update, delta
from odradek.cluster.sync_pieces import at_once
from odradek.model.errors import KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.registry import Create, Put
from odradek.security.acls import Acl, AclPattern
from odradek.security.quota_entities import QuotaKind
from odradek.security.sasl.users import NO_USERS, ScramCredential


def test_quotas_of_all_entities_that_a_cluster_may_have_fit_with_two_limits_each() -> None:
    limits = {kind.value: 1_234_567.125 for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
    quotas = NO_QUOTAS.with_changes(
        {
            (("user", f"user-{number:030d}"), ("client-id", f"client-{number:030d}")): limits
            for number in range(ENTITIES_MAX)
        }
    )
    for document, part in zip(CLIENT_QUOTAS.parts, quotas.parts, strict=True):
        data = document.data(part)
        assert len(data) < DOCUMENT_BYTES_MAX
        assert document.decode(json.loads(data)) == part


def test_credentials_of_all_users_that_a_cluster_may_have_fit_with_both_mechanisms() -> None:
    credentials = {
        mechanism: ScramCredential(
            salt=b"s" * 16, stored_key=b"k" * size, server_key=b"v" * size, iterations=8192
        )
        for mechanism, size in (("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64))
    }
    users = NO_USERS.with_changes({f"user-{number:020d}": credentials for number in range(USERS_MAX)})
    for document, part in zip(SCRAM_USERS.parts[1:], users.parts, strict=True):
        data = document.data(part)
        assert len(data) < DOCUMENT_BYTES_MAX
        assert document.decode(json.loads(data)) == part


async def test_a_change_writes_and_sends_only_its_parts(cluster: Any) -> None:
    await cluster.start(2)
    users = {(("user", f"user-{number}"),): {"producer_byte_rate": 1e6} for number in range(10_000)}
    await cluster.controller.alter(CLIENT_QUOTAS, lambda quotas: quotas.with_changes(users))
    before = cluster.controller.latest
    assert dict(before.client_quotas) == users
    new = {(("user", "user-7"),): {"producer_byte_rate": 2e6}}
    await cluster.controller.alter(CLIENT_QUOTAS, lambda quotas: quotas.with_changes(new))
    after = cluster.controller.latest
    writes = [
        operation
        for operation in cluster.brokers[1].session.commits[-1]
        if isinstance(operation, Put | Create)
    ]
    assert [operation.path.rpartition("/")[0] for operation in writes] == ["/quotas"]
    update = at_once(delta(before, after))
    assert len(update) < 2 * len(writes[0].data)
    assert dict(at_once(apply_update(before, update)).client_quotas) == users | new
    await cluster.elect(cluster.brokers[1])
    assert dict(cluster.controller.latest.client_quotas) == users | new


FORMER: dict[str, Any] = {
    "/quotas": [[[["user", f"{number:0100d}"]], {"producer_byte_rate": 1e6}] for number in range(8_000)],
    "/scram": {
        "seed": "s",
        "users": {"ann": {"SCRAM-SHA-256": "salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096"}},
    },
    "/configs/resources": {"32": {"g": {"consumer.session.timeout.ms": "50000"}}},
}


@pytest.mark.parametrize(
    "fails", [[], ["before"], ["after"], ["", "before"], ["", "after"], ["", "", "after"]]
)
async def test_what_an_earlier_commit_stored_whole_is_read_and_changed(
    cluster: Any, fails: list[str]
) -> None:
    """Also when the first change ends half-way, and another controller goes on."""
    broker = cluster.session()
    for path, stored in FORMER.items():
        await broker.commit([Create(path=path, data=json.dumps(stored).encode())])
    await cluster.start(2)
    before = cluster.controller.latest
    assert len(before.client_quotas) == 8_000
    assert before.scram_users.seed == "s"
    assert before.scram_users.credential("ann", "SCRAM-SHA-256") is not None
    assert before.resource_configs[32, "g"] == {"consumer.session.timeout.ms": "50000"}
    assert b"ann" in cluster.tree.nodes["/scram"].data
    gone = (("user", f"{7:0100d}"),)
    cluster.brokers[1].session.fails[:] = fails
    for _ in range(len(fails) + 1):
        try:
            await cluster.controller.alter(CLIENT_QUOTAS, lambda quotas: quotas.with_changes({gone: None}))
            break
        except KafkaError:
            await cluster.elect(cluster.brokers[2])
            assert len(cluster.controller.latest.client_quotas) in (7_999, 8_000)
    for _ in range(2):
        after = cluster.controller.latest
        assert set(before.client_quotas) - set(after.client_quotas) == {gone}
        assert after.scram_users == before.scram_users
        assert cluster.tree.nodes["/quotas"].data == b""
        await cluster.elect(cluster.brokers[2])


async def test_a_whole_document_counts_until_all_of_its_parts_are_stored(cluster: Any) -> None:
    """A controller ended half-way, and one of an earlier commit changed the whole document."""
    (document,) = (known for known in CLIENT_QUOTAS.parts if known.path.endswith("/0"))
    broker = cluster.session()
    await broker.commit([Create(path="/quotas", data=json.dumps(FORMER["/quotas"]).encode())])
    await broker.commit(
        [Create(path=document.path, data=b'[[[["user","half-way"]],{"producer_byte_rate":1.0}]]')]
    )
    await cluster.start(1)
    assert (("user", "half-way"),) not in cluster.controller.latest.client_quotas
    await cluster.controller.alter(
        CLIENT_QUOTAS, lambda quotas: quotas.with_changes({(("user", "new"),): {}})
    )
    await cluster.elect(cluster.brokers[1])
    assert len(cluster.controller.latest.client_quotas) == 8_001


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_a_change_of_many_parts_that_is_not_answered_can_be_made_again(
    cluster: Any, failure: str
) -> None:
    """Its parts are more than one commit takes: the first is written, and the second is not, or is without an answer."""
    await cluster.start(1)
    users = {(("user", f"{number:0100d}"),): {"producer_byte_rate": 1e6} for number in range(12_000)}
    cluster.brokers[1].session.fails[:] = ["", failure]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await cluster.controller.alter(CLIENT_QUOTAS, lambda quotas: quotas.with_changes(users))
    assert 0 < len(cluster.controller.latest.client_quotas) < len(users)
    await cluster.controller.alter(CLIENT_QUOTAS, lambda quotas: quotas.with_changes(users))
    assert dict(cluster.controller.latest.client_quotas) == users


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
