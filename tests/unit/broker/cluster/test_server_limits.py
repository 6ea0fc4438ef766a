"""The limits of connections, from the settings and from the descriptors that there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.broker.cluster.endpoints import server_limits
from odradek.config.loading import load_broker_config
from odradek.runtime.descriptors import DescriptorBudget
from odradek.runtime.real import real_runtime


@pytest.mark.parametrize(("connections_max", "descriptors_max"), [(50, 114), (6000, 6064), (1_000_000, 9952)])
def test_connections_have_the_descriptors_of_the_present_setting(
    connections_max: int, descriptors_max: int
) -> None:
    """It can be changed while the broker runs, whatever its file has."""
    of_file = DescriptorBudget.of(20_000).for_connections(100)
    runtime = replace(real_runtime(), descriptors=of_file)
    config, _ = load_broker_config({"max.connections": str(connections_max)})
    limits = server_limits(config, runtime)
    assert (limits.connections_max, limits.descriptors_max) == (connections_max, descriptors_max)
