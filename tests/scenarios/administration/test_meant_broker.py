"""ApiVersions 5 (KIP-1242): a client that has reached another cluster, or another broker, than it means hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest

MEANT = 5


async def greeted(wire: Any, version: int = MEANT, **meant: Any) -> Any:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1", **meant)
    return await wire.ask(request, version)


async def test_the_right_broker_and_one_that_is_not_named_answer_in_full(wire: Any) -> None:
    metadata = await wire.ask(MetadataRequest(topics=[]), 12)
    here = {"cluster_id": metadata.cluster_id, "node_id": metadata.brokers[0].node_id}
    for meant in (here, {}, {"cluster_id": metadata.cluster_id}, {"node_id": here["node_id"]}):
        response = await greeted(wire, **meant)
        assert (response.error_code, bool(response.api_keys)) == (0, True)


@pytest.mark.parametrize("field", ["cluster_id", "node_id"])
async def test_another_one_asks_the_client_to_bootstrap_again(wire: Any, field: str) -> None:
    metadata = await wire.ask(MetadataRequest(topics=[]), 12)
    meant = {"cluster_id": metadata.cluster_id, "node_id": metadata.brokers[0].node_id}
    other = {"cluster_id": "another-cluster", "node_id": 4_711}
    response = await greeted(wire, **{**meant, field: other[field]})
    assert response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    assert response.api_keys == []
    assert (await greeted(wire, **meant)).error_code == 0


async def test_older_versions_mean_no_broker(wire: Any) -> None:
    assert (await greeted(wire, 4, cluster_id="another-cluster", node_id=4_711)).error_code == 0
