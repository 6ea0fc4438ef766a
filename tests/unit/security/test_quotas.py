"""Quotas: whose limit counts, how long a client must be silent, and how little it costs the broker to know."""

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.buckets import Window
from odradek.security.quota_entities import QuotaKind
from odradek.security.quotas import Quotas, QuotaTerms

PRODUCE, REQUEST = QuotaKind.PRODUCE, QuotaKind.REQUEST


def entity(**names: str | None):
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in names.items()))


def quotas_of(*limits, key: str = "producer_byte_rate", **terms) -> Quotas:
    quotas = Quotas(QuotaTerms(**terms))
    quotas.update({limited_entity: {key: limit} for limited_entity, limit in limits})
    return quotas


LEVELS = [
    entity(user="u", client_id="c"),
    entity(user="u", client_id=None),
    entity(user="u"),
    entity(user=None, client_id="c"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="c"),
    entity(client_id=None),
]


def test_without_limits_nothing_is_active_measured_or_delayed() -> None:
    quotas = Quotas()
    quotas.update({})
    assert not quotas.active
    assert quotas.record(PRODUCE, "u", "c", 1e12, 0.0) == 0.0
    assert quotas.amount_max(PRODUCE, "u", "c") == float("inf")
    assert quotas.measure_count == 0


@pytest.mark.check(46)
@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_limit_counts(level: int) -> None:
    quotas = quotas_of(
        *((quota_level, 100.0 + number) for number, quota_level in enumerate(LEVELS) if number >= level)
    )
    assert quotas.amount_max(PRODUCE, "u", "c") == (100.0 + level) * 10


def test_a_limit_of_one_kind_does_not_hide_another_level_of_the_next() -> None:
    quotas = Quotas()
    quotas.update({LEVELS[0]: {"consumer_byte_rate": 1.0}, LEVELS[7]: {"producer_byte_rate": 2.0}})
    assert quotas.amount_max(QuotaKind.FETCH, "u", "c") == 10
    assert quotas.amount_max(PRODUCE, "u", "c") == 20
    assert quotas.amount_max(REQUEST, "u", "c") == float("inf")


def test_a_silent_client_may_use_the_windows_worth_at_once_and_is_then_delayed() -> None:
    quotas = quotas_of((entity(user="u"), 100.0))
    assert quotas.record(PRODUCE, "u", "c", 1000, 0.0) == 0.0
    assert quotas.record(PRODUCE, "u", "c", 500, 0.0) == 5.0
    assert quotas.record(PRODUCE, "u", "c", 100, 5.0) == 1.0


def test_clients_of_a_user_share_its_limit_and_other_users_have_one_of_their_own() -> None:
    quotas = quotas_of((entity(user=None), 100.0))
    quotas.record(PRODUCE, "u", "a", 1000, 0.0)
    assert quotas.record(PRODUCE, "u", "b", 100, 0.0) > 0
    assert quotas.record(PRODUCE, "v", "a", 1000, 0.0) == 0.0


def test_any_other_client_id_has_a_measure_of_its_own() -> None:
    quotas = quotas_of((entity(client_id=None), 100.0))
    quotas.record(PRODUCE, "u", "a", 2000, 0.0)
    assert quotas.record(PRODUCE, "v", "a", 1, 0.0) > 0
    assert quotas.record(PRODUCE, "u", "b", 1, 0.0) == 0.0


@pytest.mark.check(46)
def test_a_delay_for_requests_lasts_one_sample_at_most() -> None:
    quotas = quotas_of((entity(user="u"), 1.0), key="request_percentage")
    assert quotas.record(REQUEST, "u", "c", 1e6, 0.0) == 1.0


def test_a_new_limit_counts_at_once_for_what_was_used_before() -> None:
    quotas = quotas_of((entity(user="u"), 1000.0))
    quotas.record(PRODUCE, "u", "c", 5000, 0.0)
    quotas.update({entity(user="u"): {"producer_byte_rate": 100.0}})
    assert quotas.record(PRODUCE, "u", "c", 0, 0.0) == 40.0


def test_measures_of_idle_clients_are_dropped() -> None:
    quotas = quotas_of((entity(client_id=None), 100.0))
    for number in range(100):
        quotas.record(PRODUCE, "u", f"c{number}", 1, 0.0)
    for number in range(60):
        quotas.record(PRODUCE, "u", f"later{number}", 1, 11.0)
    assert quotas.measure_count == 60


def test_a_client_id_for_every_request_neither_grows_the_broker_nor_goes_unlimited() -> None:
    quotas = quotas_of((entity(client_id=None), 100.0), measures_max=50)
    delays = [quotas.record(PRODUCE, "u", f"c{number}", 100, 0.0) for number in range(1000)]
    assert quotas.measure_count == 51
    assert delays[-1] > 100


@pytest.mark.check(46)
def test_mutations_are_refused_once_more_was_used_than_was_saved_up() -> None:
    quotas = quotas_of((entity(user="u"), 2.0), key="controller_mutation_rate")
    quotas.check_mutations("u", "c", 0.0)
    quotas.record_mutations("u", "c", 24, 0.0)  # 22 were saved up
    with pytest.raises(KafkaError) as refused:
        quotas.check_mutations("u", "c", 0.0)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quotas.mutations_delay("u", "c", 0.0) == 1.0
    quotas.check_mutations("u", "c", 1.0)


@pytest.mark.check(44)
def test_an_address_over_its_limit_is_refused_and_others_are_only_delayed_by_the_brokers_limit() -> None:
    quotas = Quotas(QuotaTerms(broker_connections_per_second=2.0))
    quotas.update({entity(ip="1.2.3.4"): {"connection_creation_rate": 1.0}})
    assert quotas.limits_connections
    assert not quotas.active
    first = [quotas.connection_from("1.2.3.4", 0.0) for _ in range(11)]
    assert first[:10] == [(0.0, False)] * 10
    assert first[10] == (1.0, True)
    others = [quotas.connection_from("5.6.7.8", 0.0) for _ in range(12)]
    assert others[9] == (0.0, False)
    assert others[11] == (1.0, False)


def test_samples_may_be_of_another_number_and_length() -> None:
    quotas = quotas_of((entity(user="u"), 10.0), window=Window(sample_count=3, sample_seconds=5.0))
    assert quotas.amount_max(PRODUCE, "u", "c") == 100.0
    assert quotas.record(PRODUCE, "u", "c", 100, 0.0) == 0.0
    assert quotas.record(PRODUCE, "u", "c", 60, 5.0) == 1.0


def test_who_does_not_heed_its_delays_is_back_within_its_limit_soon_after_it_ends() -> None:
    quotas = quotas_of((entity(user="u"), 100.0))
    for _ in range(1000):
        quotas.record(PRODUCE, "u", "c", 10_000, 0.0)
    assert quotas.record(PRODUCE, "u", "other", 1, 210.0) == 0.0
