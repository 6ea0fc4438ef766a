"""How brokers register, and who is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from odradek.cluster.registration import (
    CLUSTER_ID,
    SPEAKS,
    Registration,
    join_cluster,
    register,
    registered,
    registration_from,
    removal,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import RegistryConflict

NEXT = SPEAKS[1] + 1
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


def test_a_document_says_which_listener_is_the_control_plane_and_older_ones_say_nothing() -> None:
    with_one = replace(ONE, endpoints={**ONE.endpoints, "CONTROL": ("h", 9094)}, control_plane="CONTROL")
    assert registration_from(BrokerId(1), with_one.data()).image(7).control_plane == "CONTROL"
    older = json.loads(ONE.data())
    del older["control_plane"]
    assert registration_from(BrokerId(1), json.dumps(older).encode()) == ONE


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


async def test_a_registration_is_removed_and_one_that_came_after_it_is_not(cluster: Any) -> None:
    """Its node is at version 0, as that of the life before was."""
    first, second, other = cluster.session(), cluster.session(), cluster.session()
    assert await removal(other, BrokerId(1)) is None
    epoch = await register(first, ONE)
    late = await removal(other, BrokerId(1))
    assert late is not None
    assert (late.registration, late.epoch) == (ONE, epoch)
    epoch = await register(second, ONE)
    with pytest.raises(RegistryConflict):
        await other.commit(late.operations)
    assert (await registered(other))[BrokerId(1)][1] == epoch
    removed = await removal(other, BrokerId(1))
    assert removed is not None
    await other.commit(removed.operations)
    assert await registered(other) == {}


async def test_a_registration_that_says_something_new_is_of_the_same_life(cluster: Any) -> None:
    session = cluster.session()
    await register(session, ONE)
    before = await session.get(ONE.lives_path)
    await register(session, replace(ONE, port=1))
    assert await session.get(ONE.lives_path) == before


async def test_another_broker_with_the_same_id_is_refused(cluster: Any) -> None:
    await register(cluster.session(), ONE)
    other = Registration(broker_id=BrokerId(1), directory_id="d2", host="g", port=9093)
    with pytest.raises(KafkaError, match=r"another broker\.id") as refused:
        await register(cluster.session(), other)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_two_processes_on_copies_of_one_directory_do_not_replace_each_other_for_ever(
    cluster: Any,
) -> None:
    first, second = cluster.session(), cluster.session()
    await register(first, ONE)
    await register(second, ONE)  # it may be the first one, started again
    with pytest.raises(KafkaError, match="a copy of this broker's data") as refused:
        await register(first, ONE, earlier=[first.session_id])
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    renewed = cluster.session()
    assert await register(renewed, ONE, earlier=[second.session_id, renewed.session_id])


async def test_a_broker_may_say_something_new_about_itself(cluster: Any) -> None:
    session = cluster.session()
    epoch = await register(session, ONE)
    moved = Registration(broker_id=BrokerId(1), directory_id="d1", host="h", port=1, is_cordoned=True)
    assert await register(session, moved) == epoch
    assert (await registered(session))[BrokerId(1)] == (moved, epoch)


async def test_a_broker_that_no_one_here_understands_is_refused(cluster: Any) -> None:
    await register(cluster.session(), ONE)
    newer = Registration(broker_id=BrokerId(2), directory_id="d2", host="h", port=1, speaks=(NEXT, NEXT + 1))
    with pytest.raises(KafkaError, match="one version at a time") as refused:
        await register(cluster.session(), newer)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    nearer = Registration(
        broker_id=BrokerId(2), directory_id="d2", host="h", port=1, speaks=(SPEAKS[1], NEXT)
    )
    await register(cluster.session(), nearer)


async def test_a_broker_that_is_too_old_gets_an_error(cluster: Any) -> None:
    await register(cluster.session(), replace(ONE, speaks=(NEXT, NEXT + 1)))
    older = Registration(broker_id=BrokerId(2), directory_id="d2", host="h", port=1, speaks=SPEAKS)
    with pytest.raises(KafkaError, match="too old: start it with the version that the others run") as refused:
        await register(cluster.session(), older)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION


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
