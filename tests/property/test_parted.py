"""A mapping in parts is the mapping that a dict would be, and quotas that follow it are those of a fresh start."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.image import NO_QUOTAS
from odradek.model.parted import PARTS, Parted
from odradek.security.quota_entities import Entity, QuotaKind
from odradek.security.quotas import Quotas

changes = st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 3), max_size=40)
names = st.sampled_from([None, "a", "b", "c", "d"])
entities: st.SearchStrategy[Entity] = st.one_of(
    st.tuples(st.tuples(st.just("user"), names)),
    st.tuples(st.tuples(st.just("client-id"), names)),
    st.tuples(st.tuples(st.just("client-id"), names), st.tuples(st.just("user"), names)),
)
limits = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]), st.floats(1, 9), min_size=1
)
limit_changes = st.dictionaries(entities, st.none() | limits, max_size=8)


@given(steps=st.lists(changes, max_size=6))
def test_it_is_the_mapping_that_a_dict_would_be(steps: list[dict[str, int | None]]) -> None:
    mapping: Parted[str, int] = Parted(str)
    expected: dict[str, int] = {}
    for step in steps:
        before, snapshot = mapping, dict(mapping)
        mapping = mapping.with_changes(step)
        expected = {key: value for key, value in (expected | step).items() if value is not None}
        assert dict(mapping) == expected == mapping
        assert len(mapping) == len(expected)
        assert dict(before) == snapshot
        assert all(mapping[key] == value for key, value in expected.items())
        unchanged = sum(new is old for new, old in zip(mapping.parts, before.parts, strict=True))
        assert unchanged >= PARTS - len(step)


@given(steps=st.lists(limit_changes, max_size=6))
def test_quotas_that_follow_changes_are_those_of_a_fresh_start(steps: list[dict[Entity, Any]]) -> None:
    stored, followed = NO_QUOTAS, Quotas()
    for step in steps:
        stored = stored.with_changes(step)
        followed.update(stored)
        fresh = Quotas()
        fresh.update(dict(stored))
        assert followed.active == fresh.active == bool(stored)
        for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH):
            assert followed.limits(kind) == fresh.limits(kind)
            for user in "abx":
                for client in "abx":
                    assert followed.amount_max(kind, user, client) == fresh.amount_max(kind, user, client)
