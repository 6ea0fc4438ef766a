"""How brokers register, and who is refused."""

from typing import Any

import pytest

from odradek.cluster.registration import (
    CLUSTER_ID,
    Registration,
    join_cluster,
    register,
    registered,
    registration_from,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId

ONE = Registration(
    broker_id=BrokerId(1),
    directory_id="d1",
    host="h",
    port=9092,
    endpoints={"PLAINTEXT": ("h", 9092)},
    rack="r",
)


def test_a_document_reads_back() -> None:
    assert registration_from(BrokerId(1), ONE.data()) == ONE
    assert ONE.image(7).epoch == 7


async def test_each_life_has_a_higher_epoch(cluster: Any) -> None:
    first = cluster.session()
    epoch = await register(first, ONE)
    assert await register(first, ONE) == epoch
    first.expire()
    assert await register(cluster.session(), ONE) > epoch


async def test_what_a_dead_incarnation_left_is_taken_over(cluster: Any) -> None:
    epoch = await register(cluster.session(), ONE)  # its session has not run out yet
    second = cluster.session()
    assert await register(second, ONE) > epoch
    assert (await registered(second))[BrokerId(1)][0] == ONE


async def test_another_broker_with_the_same_id_is_refused(cluster: Any) -> None:
    await register(cluster.session(), ONE)
    other = Registration(broker_id=BrokerId(1), directory_id="d2", host="g", port=9093)
    with pytest.raises(KafkaError, match=r"another broker\.id") as refused:
        await register(cluster.session(), other)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_broker_may_say_something_new_about_itself(cluster: Any) -> None:
    session = cluster.session()
    epoch = await register(session, ONE)
    moved = Registration(broker_id=BrokerId(1), directory_id="d1", host="h", port=1, is_cordoned=True)
    assert await register(session, moved) == epoch
    assert (await registered(session))[BrokerId(1)] == (moved, epoch)


async def test_a_broker_that_nobody_here_understands_is_refused(cluster: Any) -> None:
    await register(cluster.session(), ONE)
    newer = Registration(broker_id=BrokerId(2), directory_id="d2", host="h", port=1, speaks=(2, 3))
    with pytest.raises(KafkaError, match="one version at a time") as refused:
        await register(cluster.session(), newer)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    nearer = Registration(broker_id=BrokerId(2), directory_id="d2", host="h", port=1, speaks=(1, 2))
    await register(cluster.session(), nearer)


async def test_the_first_broker_founds_the_cluster_and_others_join_it(cluster: Any) -> None:
    session = cluster.session()
    assert await join_cluster(session, known=None, may_found=True, new_id=lambda: "c1") == "c1"
    assert await join_cluster(session, known=None, may_found=False, new_id=lambda: "c2") == "c1"
    assert await join_cluster(session, known="c1", may_found=False, new_id=lambda: "c2") == "c1"


async def test_data_of_another_cluster_is_refused(cluster: Any) -> None:
    session = cluster.session()
    await join_cluster(session, known=None, may_found=True, new_id=lambda: "c1")
    with pytest.raises(KafkaError, match=r"check zookeeper\.connect") as refused:
        await join_cluster(session, known="c9", may_found=True, new_id=lambda: "c2")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_a_registry_that_lost_its_content_is_refused(cluster: Any) -> None:
    session = cluster.session()
    with pytest.raises(KafkaError, match="backup") as refused:
        await join_cluster(session, known="c1", may_found=False, new_id=lambda: "c2")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert await session.get(CLUSTER_ID) is None
    assert await join_cluster(session, known="c1", may_found=True, new_id=lambda: "c2") == "c1"
