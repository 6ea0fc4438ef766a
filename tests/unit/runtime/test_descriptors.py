"""The shares of the limit of open files."""

import pytest

from odradek.runtime.descriptors import DescriptorBudget


@pytest.mark.parametrize("limit", [16, 64, 256, 1024, 4096, 65_536, 1_048_576])
def test_the_shares_are_never_more_than_the_limit(limit: int) -> None:
    budget = DescriptorBudget.of(limit)
    assert budget.reserved + budget.connections + budget.readers + budget.writers <= limit
    assert min(budget.connections, budget.readers, budget.writers, budget.reserved) >= 1


def test_a_small_limit_keeps_a_reserve_for_the_broker_itself() -> None:
    budget = DescriptorBudget.of(256)
    assert (budget.reserved, budget.connections) == (64, 96)
    assert budget.readers + budget.writers == 96
    assert budget.partitions_max > 400


def test_logs_have_the_descriptors_that_the_most_connections_leave() -> None:
    default = DescriptorBudget.of(20_000)
    few = default.for_connections(6000)
    assert (few.connections, few.readers) == (6064, default.readers)
    assert few.writers - default.writers == default.connections - few.connections
    assert default.for_connections(2**31 - 1) == default
    assert default.for_connections(default.connections) == default
    assert few.for_connections(2**31 - 1) == default, "the setting may grow while the broker runs"
    assert few.for_connections(6000) is few
