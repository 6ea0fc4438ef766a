"""Nothing of the recorded release of Kafka is missing without a reason, and no reason outlives its difference."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.peer import PeerAbsentError, PeerJars, cached_peer
from tests.contract.parity.comparison import (
    Difference,
    differences,
    outdated,
    reason_for,
    unexplained,
    without_effect,
)
from tests.contract.parity.operations import OPERATIONS
from tests.contract.parity.page import HEADING, PAGE, parity_lines
from tests.contract.parity.reasons import REASONS
from tests.contract.parity.recording import Facts, facts_of, recorded, written

from odradek.config.unsupported import AREAS


@cache
def recorded_facts() -> Facts:
    return recorded()[1]


@cache
def recorded_differences() -> tuple[Difference, ...]:
    return tuple(differences(recorded_facts()))


def test_nothing_is_missing_without_a_reason() -> None:
    assert [str(difference) for difference in unexplained(recorded_differences())] == []


def test_every_reason_still_has_a_difference() -> None:
    assert outdated(recorded_differences()) == []


def test_a_difference_has_one_reason_of_the_table() -> None:
    """A place that two lines explain would hide a change of one of them."""
    explained = [
        (difference.place, [reason.title for reason in REASONS if reason.explains(difference.place)])
        for difference in recorded_differences()
    ]
    assert [(place, titles) for place, titles in explained if len(titles) > 1] == []


def test_a_setting_without_effect_is_one_that_the_broker_warns_about() -> None:
    named = {key for area in AREAS for key in area.keys.split()}
    silent = {
        difference.place.partition("/")[2]
        for difference in recorded_differences()
        if difference.section == "broker setting" and difference.here == "without effect"
    }
    by_twins = {key for key in silent - named if reason_for(difference_at(key)) in REASONS}
    assert silent <= named | by_twins
    assert without_effect() == named


def difference_at(key: str) -> Difference:
    return next(d for d in recorded_differences() if d.place == f"broker setting/{key}")


def test_the_comparison_sees_what_a_release_adds_and_changes() -> None:
    facts = {section: dict(items) for section, items in recorded_facts().items()}
    facts["error"]["BRAND_NEW"] = {"code": 9999, "retriable": False}
    facts["error"]["OFFSET_OUT_OF_RANGE"] = {"code": 1, "retriable": True}
    facts["admin"]["inventSomething"] = {}
    facts["message"]["FetchRequest.Topics.Colour"] = facts["message"]["FetchRequest.Topics.Topic"]
    facts["api"]["Metadata"] = facts["api"]["Metadata"] | {"versions": "0-99"}
    setting = facts["broker setting"]["background.threads"]
    facts["broker setting"]["brand.new"] = setting
    retention = facts["topic setting"]["retention.bytes"]
    facts["topic setting"]["retention.bytes"] = retention | {
        "default": "7",
        "accepts": retention["accepts"] | {"1": False},
    }
    facts["group setting"]["consumer.session.timeout.ms"] = facts["group setting"][
        "consumer.session.timeout.ms"
    ] | {"broker": []}
    new = {difference.place for difference in differences(facts)} - {
        difference.place for difference in recorded_differences()
    }
    assert new == {
        "admin/inventSomething",
        "api/Metadata: versions",
        "broker setting/brand.new",
        "error/BRAND_NEW",
        "error/OFFSET_OUT_OF_RANGE: retriable",
        "group setting/consumer.session.timeout.ms: broker",
        "message/FetchRequest.topics.colour",
        "topic setting/retention.bytes: accepts '1'",
        "topic setting/retention.bytes: default",
    }


def test_the_table_of_operations_names_what_java_has() -> None:
    assert OPERATIONS.keys() - recorded_facts()["admin"].keys() == set()


def test_the_page_is_what_the_comparison_says() -> None:
    _, heading, tail = PAGE.read_text(encoding="utf-8").partition(HEADING)
    assert (heading + tail).rstrip("\n").split("\n") == parity_lines()


@pytest.fixture(scope="module")
def jars() -> PeerJars:
    try:
        return cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")


def test_the_newest_jars_say_what_is_recorded(jars: PeerJars) -> None:
    """A release that is newer than the recorded one ends here: record it with `python -m tests.contract.parity --record`."""
    version, facts = recorded()
    newest = facts_of(jars)
    assert [str(difference) for difference in unexplained(differences(newest))] == []
    assert jars.version == version
    assert written(newest) == written(facts)
