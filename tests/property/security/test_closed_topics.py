"""A closed topic is changed only by rules that mean it, whatever other rules there are; other topics go by Kafka's rules."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.access.file_authorizer import FileAuthorizer
from odradek.dead_letters.redriven import REDRIVES_TOPIC
from odradek.pipelines.document import PIPELINES_TOPIC
from odradek.pipelines.status import STATUS_TOPIC
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acl_decision import AclJudge, DecidedBy
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, AclPattern
from odradek.security.audit import AUDIT_TOPIC
from odradek.security.authorizer import AclAuthorizer
from odradek.spark.exactly_once.decision import DECISIONS_TOPIC
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.streams.plan.queries import changelog_topic

TOPIC = AclResourceType.TOPIC
ALICE, HOST = "User:alice", "10.0.0.1"
SYSTEM = (
    PIPELINES_TOPIC,
    STATUS_TOPIC,
    REDRIVES_TOPIC,
    DECISIONS_TOPIC,
    "_schemas",
    CommandTopic("x:1", "default_", {}, lambda offset, command: None).topic,
)
STATE = (changelog_topic("orders.out", "by-item"), "app-store-changelog", "app-store-repartition")
DATA = ("orders", "orders.changelog.v2", "__odradek", "_schemas2")
CLOSED = (AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
OPEN = (AclOperation.READ, AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)


def prefixes(name: str) -> list[tuple[str, PatternType]]:
    return [(name[:length], PatternType.PREFIXED) for length in range(1, len(name) + 1)]


PATTERNS = st.sampled_from([*SYSTEM, *STATE, *DATA, AUDIT_TOPIC]).flatmap(
    lambda name: st.sampled_from(
        [
            (name, PatternType.LITERAL),
            ("*", PatternType.LITERAL),
            ("*", PatternType.PREFIXED),
            *prefixes(name),
        ]
    )
)
ACLS = st.builds(
    lambda pattern, principal, operation, permission: Acl(
        AclPattern(TOPIC, *pattern), principal, "*", operation, permission
    ),
    PATTERNS,
    st.sampled_from([ALICE, "User:bob", "User:*"]),
    st.sampled_from([AclOperation.ALL, *CLOSED, *OPEN]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from([*SYSTEM, *STATE, *DATA, AUDIT_TOPIC]), st.sampled_from([*CLOSED, *OPEN])
)


def is_meant(pattern: AclPattern, topic: str) -> bool:
    """The rule in its plain form, written a second time."""
    literal = pattern.pattern_type == PatternType.LITERAL
    if topic == AUDIT_TOPIC:
        return False
    if literal:
        return pattern.name == topic
    if topic in STATE:
        return topic.startswith(pattern.name)
    return topic.startswith(pattern.name) and pattern.name.startswith(
        ("__odradek_", "_odradek-sql-", "_schemas")
    )


@given(st.sets(ACLS, max_size=8), QUESTIONS, st.booleans())
def test_a_closed_topic_is_changed_by_those_whom_a_rule_means(
    acls: set[Acl], question: tuple[str, AclOperation], is_open_by_default: bool
) -> None:
    topic, operation = question
    settings = {"allow.everyone.if.no.acl.found": str(is_open_by_default).lower()}
    authorizer = AclAuthorizer()
    authorizer.configure(settings)
    authorizer.update((frozenset(acls),))
    verdict = AclIndex(acls).verdict(ALICE, HOST, operation, TOPIC, topic)
    expected = verdict is AclVerdict.ALLOWED or (verdict is AclVerdict.NO_ACLS and is_open_by_default)
    audit = topic == AUDIT_TOPIC and operation in (*CLOSED, AclOperation.CREATE)
    if audit or (operation in CLOSED and topic in SYSTEM) or (operation in CLOSED and topic in STATE):
        meant = {acl for acl in acls if is_meant(acl.pattern, topic)}
        by_rule = AclIndex(meant).verdict(ALICE, HOST, operation, TOPIC, topic) is AclVerdict.ALLOWED
        free = verdict is AclVerdict.NO_ACLS and topic in STATE
        expected = expected and (by_rule or free)
    assert authorizer.may(ALICE, HOST, operation, TOPIC, topic) is expected
    explained = AclJudge(acls, settings).decide(ALICE, HOST, operation, TOPIC, topic)
    assert explained.is_allowed is expected
    assert explained.rules or explained.by is not DecidedBy.RULES


@given(st.sets(ACLS, max_size=4), QUESTIONS)
def test_super_users_and_an_empty_setting_leave_kafkas_rules(
    acls: set[Acl], question: tuple[str, AclOperation]
) -> None:
    topic, operation = question
    authorizer = AclAuthorizer()
    authorizer.update((frozenset(acls),))
    authorizer.configure({"super.users": ALICE})
    assert authorizer.may(ALICE, HOST, operation, TOPIC, topic)
    authorizer.configure({"odradek.closed.topic.suffixes": ""})
    if topic in STATE:
        verdict = AclIndex(acls).verdict(ALICE, HOST, operation, TOPIC, topic)
        assert authorizer.may(ALICE, HOST, operation, TOPIC, topic) is (verdict is AclVerdict.ALLOWED)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["allow", "deny"]),
            st.lists(PATTERNS.map(lambda p: p[0] + "*" * (p[1] == PatternType.PREFIXED)), max_size=2),
        ),
        max_size=4,
    ),
    QUESTIONS,
)
def test_the_authorizer_of_rules_in_a_file_closes_the_same_topics(
    rules: list[tuple[str, list[str]]], question: tuple[str, AclOperation]
) -> None:
    topic, operation = question
    entries: list[dict[str, Any]] = [
        {"effect": effect, "resources": [f"TOPIC:{name}" for name in names]} for effect, names in rules
    ]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "rules.json"
        path.write_text(json.dumps(entries))
        authorizer = FileAuthorizer()
        authorizer.configure({"odradek.authorizer.file": str(path)})
        allowed = authorizer.may(ALICE, HOST, operation, TOPIC, topic)
    first = next((rule for rule in rules if any(fnmatchcase(topic, name) for name in rule[1])), None)
    if first is None or first[0] == "deny":
        assert not allowed
    elif operation not in CLOSED and topic != AUDIT_TOPIC:
        assert allowed
    elif allowed and topic in SYSTEM:
        assert any(name.startswith(("__odradek_", "_odradek-sql-", "_schemas")) for name in first[1])
    elif topic in DATA:
        assert allowed
    else:
        assert not (allowed and set(first[1]) == {"*"})


@pytest.mark.parametrize("entry", [{"effect": "allow"}, {"effect": "allow", "resources": ["*"]}])
def test_a_rule_of_a_file_about_everything_opens_no_closed_topic(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([entry]))
    authorizer = FileAuthorizer()
    authorizer.configure({"odradek.authorizer.file": str(path)})
    assert authorizer.may(ALICE, HOST, AclOperation.WRITE, TOPIC, "orders")
    for topic in (*SYSTEM, *STATE, AUDIT_TOPIC):
        assert not authorizer.may(ALICE, HOST, AclOperation.WRITE, TOPIC, topic)
        assert authorizer.may(ALICE, HOST, AclOperation.READ, TOPIC, topic)
