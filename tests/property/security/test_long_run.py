"""Whatever a client does between its delays: in the long run it goes at its limit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.security.buckets import Window
from odradek.security.quota_entities import QuotaKind
from odradek.security.quotas import Quotas, QuotaTerms

AMOUNTS = st.lists(st.integers(1, 2000), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(amounts=AMOUNTS, limit=st.integers(50, 1000), samples=st.integers(2, 15))
def test_a_client_that_heeds_its_delays_goes_at_its_limit(
    amounts: list[int], limit: int, samples: int
) -> None:
    window = Window(sample_count=samples, sample_seconds=1.0)
    quotas = Quotas(QuotaTerms(window=window))
    quotas.update({(("user", "u"),): {QuotaKind.PRODUCE.value: float(limit)}})
    now, used = 0.0, 0
    for number in range(400):
        amount = amounts[number % len(amounts)]
        delay = quotas.record(QuotaKind.PRODUCE, "u", "c", amount, now)
        used += amount
        now += delay
    saved_up = limit * window.seconds + max(amounts)
    assert used <= limit * now + saved_up
    assert used >= limit * now - saved_up


@settings(deadline=None, max_examples=60)
@given(amounts=AMOUNTS, limit=st.integers(1, 100))
def test_the_token_bucket_grants_its_rate_and_no_more(amounts: list[int], limit: int) -> None:
    quotas = Quotas()
    quotas.update({(("user", "u"),): {QuotaKind.MUTATIONS.value: float(limit)}})
    now, used = 0.0, 0
    for number in range(200):
        amount = amounts[number % len(amounts)]
        quotas.check_mutations("u", "c", now)
        quotas.record_mutations("u", "c", amount, now)
        used += amount
        now += quotas.mutations_delay("u", "c", now) + 1e-6
    assert limit * now + limit * 11 + max(amounts) >= used
