"""What is a valid ACL, which ACLs a filter selects, and who may do what by them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclFilter, AclPattern, canonical_host, new_acl, new_filter
from odradek.security.authorizer import (
    STANDARD_AUTHORIZER,
    AclAuthorizer,
    make_authorizer,
    parse_super_users,
)

pytestmark = pytest.mark.check(35, 36, 37, 38)
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE, HOST = "User:alice", "10.0.0.1"
VALID = {
    "resource_type": 2,
    "resource_name": "orders",
    "pattern_type": 3,
    "principal": ALICE,
    "host": "*",
    "operation": 3,
    "permission": 3,
}


def acl(
    name: str = "orders",
    operation: AclOperation = READ,
    *,
    pattern: PatternType = LITERAL,
    kind: AclResourceType = TOPIC,
    who: str = ALICE,
    host: str = "*",
    deny: bool = False,
) -> Acl:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return Acl(AclPattern(kind, name, pattern), who, host, operation, permission)


def authorizer(*acls: Acl, **settings: str) -> AclAuthorizer:
    made = AclAuthorizer()
    made.configure({key.replace("_", "."): value for key, value in settings.items()})
    made.update((frozenset(acls),))
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource_type": 0}, "resource type 0"),
        ({"resource_type": 99}, "resource type 99"),
        ({"resource_type": 1}, "for filters"),
        ({"pattern_type": 2}, "LITERAL or PREFIXED"),
        ({"pattern_type": 1}, "LITERAL or PREFIXED"),
        ({"operation": 1}, "ANY is for filters"),
        ({"operation": -1}, "operation -1"),
        ({"permission": 1}, "ALLOW or a DENY"),
        ({"permission": 0}, "permission type 0"),
        ({"resource_name": ""}, "no name"),
        ({"resource_type": 4, "resource_name": "my-cluster"}, "kafka-cluster"),
        ({"principal": "alice"}, "User:alice"),
        ({"principal": "User:"}, "no principal"),
        ({"host": "db.example.org"}, "no address"),
        ({"host": "10.0.0.0/8"}, "no address"),
    ],
)
def test_what_is_no_acl_is_refused_with_what_is_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        new_acl(**{**VALID, **change})
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("*", "*"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_has_one_form(given: str, kept: str) -> None:
    assert canonical_host(given) == kept
    assert new_acl(**{**VALID, "host": given}).host == kept


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (AclFilter(), {"a", "ab", "*", "g"}),
        (AclFilter(resource_type=GROUP), {"g"}),
        (AclFilter(name="ab"), {"ab"}),
        (AclFilter(name="ab", pattern_type=PatternType.MATCH), {"ab", "a", "*"}),
        (AclFilter(name="ab", pattern_type=LITERAL), {"ab"}),
        (AclFilter(pattern_type=PREFIXED), {"a"}),
        (AclFilter(principal="User:bob"), {"g"}),
        (AclFilter(operation=WRITE), {"ab"}),
        (AclFilter(host="10.0.0.9"), set()),
        (AclFilter(permission=AclPermission.DENY), {"*"}),
    ],
)
def test_a_filter_selects(wanted: AclFilter, selected: set[str]) -> None:
    acls = [
        acl("a", pattern=PREFIXED),
        acl("ab", WRITE),
        acl("*", deny=True),
        acl("g", kind=GROUP, who="User:bob"),
    ]
    assert {binding.pattern.name for binding in acls if wanted.selects(binding)} == selected


def test_a_filter_with_an_unknown_number_is_refused_and_one_with_a_host_name_selects_nothing() -> None:
    filter_of: dict[str, Any] = {
        "resource_type": 1, "name": None, "pattern_type": 1, "principal": None, "operation": 1, "permission": 1
    }  # fmt: skip
    with pytest.raises(KafkaError):
        new_filter(**{**filter_of, "host": None, "operation": 0})
    assert not new_filter(**filter_of, host="db.example.org").selects(acl())


@pytest.mark.parametrize(
    ("acls", "operation", "name", "allowed"),
    [
        ([], READ, "orders", False),
        ([acl()], READ, "orders", True),
        ([acl()], READ, "orders2", False),
        ([acl()], WRITE, "orders", False),
        ([acl("ord", pattern=PREFIXED)], READ, "orders", True),
        ([acl("orders-", pattern=PREFIXED)], READ, "orders", False),
        ([acl("*")], READ, "orders", True),
        ([acl("ord*")], READ, "orders", False),
        ([acl("*", pattern=PREFIXED)], READ, "orders", False),
        ([acl("*", pattern=PREFIXED)], READ, "*orders", True),
        ([acl(who="User:*")], READ, "orders", True),
        ([acl(who="User:Alice")], READ, "orders", False),
        ([acl(who="Group:alice")], READ, "orders", False),
        ([acl(host=HOST)], READ, "orders", True),
        ([acl(host="10.0.0.2")], READ, "orders", False),
        ([acl(kind=GROUP)], READ, "orders", False),
        ([acl(operation=ALL)], WRITE, "orders", True),
        ([acl(operation=READ)], DESCRIBE, "orders", True),
        ([acl(operation=WRITE)], DESCRIBE, "orders", True),
        ([acl(operation=AclOperation.DELETE)], DESCRIBE, "orders", True),
        ([acl(operation=AclOperation.ALTER)], DESCRIBE, "orders", True),
        ([acl(operation=AclOperation.CREATE)], DESCRIBE, "orders", False),
        ([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, "orders", True),
        ([acl(operation=AclOperation.ALTER_CONFIGS)], DESCRIBE, "orders", False),
        ([acl(operation=DESCRIBE)], READ, "orders", False),
        ([acl(), acl(deny=True)], READ, "orders", False),
        ([acl(), acl("*", deny=True)], READ, "orders", False),
        ([acl(), acl("o", pattern=PREFIXED, deny=True)], READ, "orders", False),
        ([acl(), acl(deny=True, host="10.0.0.2")], READ, "orders", True),
        ([acl(), acl(operation=ALL, deny=True)], READ, "orders", False),
        ([acl(operation=ALL), acl(operation=READ, deny=True)], DESCRIBE, "orders", True),
        ([acl(operation=DESCRIBE, deny=True), acl(operation=READ)], READ, "orders", True),
        ([acl(operation=DESCRIBE, deny=True), acl(operation=READ)], DESCRIBE, "orders", False),
    ],
)
def test_acls_decide_as_kafkas_do(acls: list[Acl], operation: AclOperation, name: str, allowed: bool) -> None:
    assert authorizer(*acls).may(ALICE, HOST, operation, TOPIC, name) is allowed
    assert authorizer(*acls).may(ALICE, f"::ffff:{HOST}", operation, TOPIC, name) is allowed


def test_super_users_may_do_everything_and_are_compared_letter_by_letter() -> None:
    made = authorizer(acl("*", ALL, deny=True, who="User:*"), super_users=" User:alice ; User:ops")
    assert made.may(ALICE, HOST, READ, TOPIC, "orders")
    assert made.may_anywhere(ALICE, HOST, WRITE, TOPIC)
    assert not made.may("User:Alice", HOST, READ, TOPIC, "orders")
    with pytest.raises(ConfigError, match="User:NAME"):
        parse_super_users("alice")


def test_what_no_acl_is_about_is_free_where_the_settings_say_so() -> None:
    made = authorizer(acl("orders", who="User:bob"), allow_everyone_if_no_acl_found="true")
    assert made.may(ALICE, HOST, READ, TOPIC, "payments")
    assert not made.may(ALICE, HOST, READ, TOPIC, "orders")
    assert not authorizer().may(ALICE, HOST, READ, TOPIC, "payments")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(operation=WRITE)], True),
        ([acl("o", WRITE, pattern=PREFIXED)], True),
        ([acl("*", WRITE), acl("o", WRITE, pattern=PREFIXED, deny=True)], True),
        ([acl("*", WRITE), acl("*", WRITE, deny=True)], False),
        ([acl(operation=WRITE), acl(operation=WRITE, deny=True)], False),
        ([acl(operation=WRITE), acl("ord", WRITE, pattern=PREFIXED, deny=True)], False),
        ([acl("ord", WRITE, pattern=PREFIXED), acl("orders", WRITE, deny=True)], True),
        ([acl(operation=WRITE, who="User:bob")], False),
        ([acl(operation=WRITE, host="10.0.0.2")], False),
        ([acl(operation=READ)], False),
        ([acl(operation=ALL)], True),
    ],
)
def test_whether_some_topic_may_be_written_follows_from_the_patterns(acls: list[Acl], allowed: bool) -> None:
    assert authorizer(*acls).may_anywhere(ALICE, HOST, WRITE, TOPIC) is allowed


def test_a_change_counts_at_once_though_decisions_are_remembered() -> None:
    made = authorizer(acl())
    assert made.may(ALICE, HOST, READ, TOPIC, "orders")
    assert not made.may_anywhere(ALICE, HOST, WRITE, TOPIC)
    made.update((frozenset([acl(deny=True), acl(operation=WRITE)]),))
    assert not made.may(ALICE, HOST, READ, TOPIC, "orders")
    assert made.may_anywhere(ALICE, HOST, WRITE, TOPIC)


def test_the_standard_authorizer_is_named_as_in_kafka_and_none_is_none() -> None:
    assert make_authorizer("", {}) is None
    assert isinstance(make_authorizer(STANDARD_AUTHORIZER, {"super.users": "User:a"}), AclAuthorizer)
    assert isinstance(make_authorizer("kafka.security.authorizer.AclAuthorizer", {}), AclAuthorizer)


@pytest.mark.parametrize(
    "name", ["nowhere.Class", "odradek.security.acls.Acl", "json.loads", "x", "odradek.no.Class"]
)
def test_an_authorizer_that_cannot_be_made_is_a_mistake_in_the_settings(name: str) -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        make_authorizer(name, {})
