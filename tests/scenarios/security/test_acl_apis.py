"""CreateAcls, DescribeAcls and DeleteAcls over the wire: what is kept, what is refused, and that it lasts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.security.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.security.describe_acls import DescribeAclsRequest

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, GROUP = 2, 3
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3


def creation(name: str = "orders", **other: Any) -> AclCreation:
    values = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**values, **other})


def every(**other: Any) -> DescribeAclsRequest:
    values = {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DescribeAclsRequest(
        **{"resource_name_filter": None, "principal_filter": None, "host_filter": None, **values, **other}
    )


def selection(**other: Any) -> DeleteAclsFilter:
    asked = every(**other)
    return DeleteAclsFilter(
        **{name: getattr(asked, name) for name in asked.__slots__ if name in DeleteAclsFilter.__slots__}
    )


async def described(wire: Wire, **other: Any) -> set[tuple[Any, ...]]:
    response = await wire.ask(every(**other), 3)
    assert response.error_code == 0, response.error_message
    return {
        (resource.resource_name, resource.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for resource in response.resources
        for acl in resource.acls
    }


@pytest.fixture
async def secured(scene: Scene) -> Wire:
    await scene.start(authorizer_class_name=STANDARD, super_users="User:ANONYMOUS")
    return await scene.connect()


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_made_described_and_deleted(secured: Wire, version: int) -> None:
    creations = [creation(), creation("o", resource_pattern_type=PREFIXED, operation=WRITE), creation()]
    made = await secured.ask(CreateAclsRequest(creations=creations), version)
    assert [created.error_code for created in made.results] == [0, 0, 0]
    orders = ("orders", LITERAL, "User:alice", READ, ALLOW)
    prefixed = ("o", PREFIXED, "User:alice", WRITE, ALLOW)
    assert await described(secured) == {orders, prefixed}
    assert await described(secured, resource_name_filter="orders") == {orders}
    assert await described(secured, resource_name_filter="orders", pattern_type_filter=MATCH) == {
        orders,
        prefixed,
    }
    filters = [selection(operation=WRITE), selection(resource_name_filter="none"), selection(operation=READ)]
    gone = await secured.ask(DeleteAclsRequest(filters=filters), version)
    assert [[acl.resource_name for acl in deleted.matching_acls] for deleted in gone.filter_results] == [
        ["o"],
        [],
        ["orders"],
    ]
    assert await described(secured) == set()


async def test_each_acl_succeeds_or_fails_by_itself(secured: Wire) -> None:
    creations = [
        creation(resource_type=4),
        creation("good"),
        creation(host="db.example.org"),
        creation(principal="alice"),
        creation(resource_pattern_type=MATCH),
        creation(operation=99),
    ]
    made = await secured.ask(CreateAclsRequest(creations=creations), 3)
    codes = [created.error_code for created in made.results]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, *[ErrorCode.INVALID_REQUEST] * 4]
    assert "kafka-cluster" in made.results[0].error_message
    assert {row[0] for row in await described(secured)} == {"good"}


async def test_a_filter_that_means_nothing_is_refused_and_the_others_delete(secured: Wire) -> None:
    await secured.ask(CreateAclsRequest(creations=[creation(), creation("payments")]), 3)
    filters = [
        selection(operation=0),
        selection(resource_name_filter="orders"),
        selection(resource_name_filter="orders"),
    ]
    gone = await secured.ask(DeleteAclsRequest(filters=filters), 3)
    assert gone.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert [len(deleted.matching_acls) for deleted in gone.filter_results[1:]] == [1, 1]
    assert {row[0] for row in await described(secured)} == {"payments"}
    refused = await secured.ask(every(pattern_type_filter=0), 3)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_acls_last_longer_than_the_broker(scene: Scene, secured: Wire) -> None:
    names = [f"topic-{number}" for number in range(40)]
    await secured.ask(CreateAclsRequest(creations=[creation(name) for name in names]), 3)
    await scene.stop()
    broker = await scene.start(authorizer_class_name=STANDARD, super_users="User:ANONYMOUS")
    assert {row[0] for row in await described(await scene.connect())} == set(names)
    authorizer = broker.context.authorizer
    assert authorizer is not None
    assert authorizer.may("User:alice", "10.0.0.1", READ, TOPIC, "topic-7")
    assert not authorizer.may("User:bob", "10.0.0.1", READ, TOPIC, "topic-7")


@pytest.mark.parametrize(
    "settings",
    [{}, {"authorizer_class_name": f"{__name__}.Permissive"}],
)
async def test_where_acls_would_decide_nothing_there_are_none(scene: Scene, settings: dict[str, str]) -> None:
    await scene.start(**settings)
    wire = await scene.connect()
    made = await wire.ask(CreateAclsRequest(creations=[creation()]), 3)
    gone = await wire.ask(DeleteAclsRequest(filters=[selection()]), 3)
    shown = await wire.ask(every(), 3)
    codes = [made.results[0].error_code, gone.filter_results[0].error_code, shown.error_code]
    assert codes == [ErrorCode.SECURITY_DISABLED] * 3


class Permissive:
    """An authorizer that has no ACLs."""

    def configure(self, settings: Any) -> None:
        assert settings["log.dirs"]

    def may(self, *asked: Any) -> bool:
        return True

    def may_anywhere(self, *asked: Any) -> bool:
        return True
