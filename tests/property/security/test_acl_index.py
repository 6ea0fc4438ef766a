"""The index decides as a loop over all ACLs would, and as Kafka's rules say."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, AclPattern

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
NAMES = st.text("ab*", min_size=1, max_size=4)
USERS = ("User:alice", "User:bob", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
OPERATIONS = [operation for operation in AclOperation if operation >= AclOperation.ALL]
ACLS = st.builds(
    Acl,
    pattern=st.builds(
        AclPattern,
        st.sampled_from([TOPIC, GROUP]),
        NAMES,
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    principal=st.sampled_from(USERS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:carol"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
    st.sampled_from([operation for operation in OPERATIONS if operation != AclOperation.ALL]),
    st.sampled_from([TOPIC, GROUP]),
    st.text("ab", min_size=1, max_size=5),
)


def by_looking_at_all(
    acls: Iterable[Acl], principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
) -> AclVerdict:
    """Kafka's rules in their plain form: a DENY first, then an ALLOW, then whether there is any ACL at all."""
    about = [acl for acl in acls if acl.pattern.resource_type == kind and acl.pattern.covers(name)]
    for_asker = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    allowing = {operation, AclOperation.ALL}
    if operation == AclOperation.DESCRIBE:
        allowing |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        allowing |= {AclOperation.ALTER_CONFIGS}
    for acl in for_asker:
        if acl.permission == AclPermission.DENY and acl.operation in (operation, AclOperation.ALL):
            return AclVerdict.DENIED
    if any(acl.permission == AclPermission.ALLOW and acl.operation in allowing for acl in for_asker):
        return AclVerdict.ALLOWED
    return AclVerdict.NOT_ALLOWED if about else AclVerdict.NO_ACLS


@given(st.sets(ACLS, max_size=12), st.lists(QUESTIONS, min_size=1, max_size=8))
def test_the_index_decides_as_a_look_at_all_acls_does(
    acls: set[Acl], questions: list[tuple[str, str, AclOperation, AclResourceType, str]]
) -> None:
    index = AclIndex(acls)
    for question in questions:
        assert index.verdict(*question) == by_looking_at_all(acls, *question)
        decided = index.verdict(*question) in (AclVerdict.ALLOWED, AclVerdict.DENIED)
        assert bool(index.deciding(*question)) == decided


@given(st.lists(ACLS, max_size=12, unique=True), st.data())
def test_what_was_removed_leaves_no_trace(acls: list[Acl], data: st.DataObject) -> None:
    index = AclIndex(acls)
    gone = data.draw(st.sets(st.sampled_from(acls)) if acls else st.just(set()))
    for acl in gone:
        index.remove(acl)
    left = set(acls) - gone
    assert set(index) == left
    question = data.draw(QUESTIONS)
    assert index.verdict(*question) == by_looking_at_all(left, *question)
    for acl in left:
        index.remove(acl)
    assert list(index) == []
    assert index.verdict(*question) == AclVerdict.NO_ACLS


@given(st.sets(ACLS, max_size=8), QUESTIONS)
def test_allowed_somewhere_means_that_there_is_such_a_name(
    acls: set[Acl], question: tuple[str, str, AclOperation, AclResourceType, str]
) -> None:
    """WRITE implies nothing and nothing implies it: a name can be looked for among all that patterns make a difference to."""
    principal, host, _, kind, _ = question
    index = AclIndex(acls)
    operation = AclOperation.WRITE
    literal = {acl.pattern.name for acl in acls}
    names = literal | {name + "b" * 5 for name in literal} | {"z"}
    exists = any(
        index.verdict(principal, host, operation, kind, name) is AclVerdict.ALLOWED
        for name in names
        if name != "*"
    )
    if index.is_allowed_somewhere(principal, host, operation, kind):
        denied_by_prefixes = any(
            acl.pattern.pattern_type == PatternType.PREFIXED and acl.permission == AclPermission.DENY
            for acl in acls
        )
        assert exists or denied_by_prefixes  # Kafka's rule for the wildcard does not look at denied prefixes
    else:
        assert not exists
