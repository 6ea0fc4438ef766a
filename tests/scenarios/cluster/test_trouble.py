"""What a broker does that cannot go on as a member of its cluster, or cannot do all that the controller says."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.cluster.image import ClusterImage
from odradek.cluster.registration import SPEAKS, Registration, register, registered
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import EmbeddedRegistry
from odradek.runtime.real import real_runtime

TAKEN = KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another broker has this id")


async def test_a_broker_whose_id_was_taken_ends(scene: Any, wire: Any) -> None:
    link = scene.broker.context.cluster
    link.failed.set_exception(TAKEN)
    async with asyncio.timeout(PATIENCE_S):
        assert await scene.broker.fatal.wait()


async def test_settings_that_this_broker_cannot_take_keep_it_from_nothing_else(scene: Any, wire: Any) -> None:
    """The controller's own file allows them, this one's does not; topics are made and deleted all the same."""
    await wire.create("t")
    broker = scene.broker.context
    before: ClusterImage = broker.image
    config = broker.config
    after = replace(
        before.without_topics(["t"]),
        broker_configs={"log.retention.ms": "not a number"},
        version=before.version + 1,
    )
    await broker.cluster.apply_image(after)
    assert broker.image is after
    assert broker.config is config
    with pytest.raises(KafkaError) as gone:
        broker.replicas.replica("t", 0)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def neighbour(shared: Path) -> AsyncIterator[EmbeddedRegistry]:
    """A session of another broker with the registry that this machine's brokers share."""
    runtime = real_runtime()
    registry = EmbeddedRegistry.open(runtime, str(shared))
    yield registry
    await registry.close()
    runtime.offload.close()  # type: ignore[attr-defined]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.mark.parametrize(
    ("speaks", "advice"), [((3, 4), "start it with the version"), ((1, 1), "one version at a time")]
)
async def test_a_broker_of_a_version_that_the_others_cannot_talk_to_is_refused_in_one_line(
    scene: Any, shared: Path, neighbour: EmbeddedRegistry, speaks: tuple[int, int], advice: str
) -> None:
    other = Registration(broker_id=BrokerId(2), directory_id="d2", host="there", port=9, speaks=speaks)
    await register(neighbour, other)
    with pytest.raises(KafkaError) as refused:
        await scene.start(odradek_registry_dir=str(shared), node_id="1")
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    assert f"broker 2, at there:9, speaks versions {speaks[0]} to {speaks[1]}" in refused.value.message
    assert advice in refused.value.message
    assert "\n" not in str(refused.value)
    assert list(await registered(neighbour)) == [BrokerId(2)]


async def test_a_broker_joins_one_of_another_version_that_it_can_talk_to(
    scene: Any, shared: Path, neighbour: EmbeddedRegistry
) -> None:
    """A rolling upgrade: the next version speaks this one's language, too."""
    other = Registration(
        broker_id=BrokerId(2), directory_id="d2", host="there", port=9, speaks=(SPEAKS[1], SPEAKS[1] + 1)
    )
    await register(neighbour, other)
    await scene.start(odradek_registry_dir=str(shared), node_id="1")
    await neighbour.sync()
    assert {
        broker_id: registration_bytes.speaks
        for broker_id, (registration_bytes, _) in (await registered(neighbour)).items()
    } == {
        BrokerId(1): SPEAKS,
        BrokerId(2): (SPEAKS[1], SPEAKS[1] + 1),
    }
