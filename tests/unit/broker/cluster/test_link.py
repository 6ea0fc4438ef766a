"""A broker's image: it never goes back, and what was begun with one is brought to its end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from odradek.broker.cluster.link import ClusterLink
from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.cluster.registration import Registration
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.runtime.ports import Runtime
from odradek.testing.sim import SimClock, SimEntropy


class NoRegistry:
    """One that no one asks anything."""

    on_expired: Callable[[], None]


class Setting:
    """A runtime whose clock stands still."""

    entropy: Any = SimEntropy(Random(1))

    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock: Any = SimClock(lambda: self.now_s)


def image(epoch: int, version: int, *brokers: BrokerImage) -> ClusterImage:
    return ClusterImage(
        version=version,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers=brokers,
        topics={},
        topics_by_id={},
        controller_epoch=epoch,
    )


class Applying:
    def __init__(self) -> None:
        self.done: list[tuple[int, int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, before: ClusterImage, after: ClusterImage) -> None:
        await self.go.wait()
        self.done.append((after.controller_epoch, after.version))


@pytest.fixture
def applying() -> Applying:
    return Applying()


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.fixture
def link(applying: Applying, setting: Setting) -> ClusterLink:
    return ClusterLink(
        cast(Runtime, setting),
        cast(Any, NoRegistry()),
        image(0, 0),
        broker_id=BrokerId(1),
        apply=applying,
        request_timeout_s=1.0,
    )


async def test_what_a_controller_of_the_past_says_is_not_applied(
    link: ClusterLink, applying: Applying
) -> None:
    """A controller that was paused answers a question of long ago when it wakes up: topics that were made since are not in its
    image, and would be deleted."""
    await link.apply_image(image(5, 12))
    await link.apply_image(image(4, 40))
    assert applying.done == [(5, 12)]
    assert (link.image.controller_epoch, link.image.version) == (5, 12)


async def test_an_image_is_applied_to_its_end_though_no_one_waits_for_it_any_more(
    link: ClusterLink, applying: Applying
) -> None:
    applying.go.clear()
    taking = asyncio.ensure_future(link.apply_image(image(1, 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    applying.go.set()
    await link.apply_image(image(1, 2))
    assert applying.done == [(1, 1), (1, 2)]


async def test_closing_waits_for_the_image_that_is_being_applied(
    link: ClusterLink, applying: Applying
) -> None:
    applying.go.clear()
    taking = asyncio.ensure_future(link.apply_image(image(1, 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taking.cancel()
    closing = asyncio.ensure_future(link.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    applying.go.set()
    await closing
    assert applying.done == [(1, 1)]


async def test_a_broker_that_knows_no_broker_yet_not_even_itself_has_no_answer_to_who_is_there(
    link: ClusterLink,
) -> None:
    """librdkafka forgets every broker that an answer does not name, and the addresses it began with."""
    assert link.is_undecided
    decided = asyncio.ensure_future(link.decision())
    await link.apply_image(image(1, 1))
    await asyncio.sleep(0)
    assert not decided.done()

    await link.apply_image(image(1, 2, BrokerImage(broker_id=BrokerId(1), host="h", port=9092, epoch=1)))

    await decided
    assert not link.is_undecided


async def test_who_gave_up_waiting_is_forgotten(link: ClusterLink) -> None:
    for _ in range(10):
        waiting = asyncio.ensure_future(link.reached(9, 9))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert link.waiting_count == 0


def broker(broker_id: int) -> BrokerImage:
    return BrokerImage(broker_id=BrokerId(broker_id), host="h", port=9092, epoch=1)


async def test_a_broker_that_left_is_named_for_some_seconds_more(link: ClusterLink, setting: Setting) -> None:
    await link.apply_image(image(1, 1, broker(1), broker(2)))
    await link.apply_image(image(1, 2, broker(1)))
    assert [named_broker.broker_id for named_broker in link.named_brokers] == [1, 2]
    setting.now_s += 60
    assert [named_broker.broker_id for named_broker in link.named_brokers] == [1]


async def test_where_a_broker_is_found_in_the_registry_is_news_if_its_control_plane_is_another(
    link: ClusterLink,
) -> None:
    await link.apply_image(image(1, 1, broker(1), broker(2)))
    assert not link.locate(broker(2))
    there = replace(broker(2), endpoints={"CONTROL": ("h", 9094)}, control_plane="CONTROL")
    assert link.locate(there)
    assert not link.locate(there)
    assert link.locate(replace(there, endpoints={"CONTROL": ("h", 9095)}))
    assert link.locate(replace(broker(2), port=9093))


async def test_a_broker_whose_id_is_taken_while_it_starts_does_not_wait_for_ever(
    link: ClusterLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It registered, lost its session, and found the id taken, before it heard of any image."""
    taken = KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another broker has this id")

    async def join(*_: object) -> None:
        link.membership.failed = asyncio.get_running_loop().create_future()
        link.membership.failed.set_exception(taken)

    monkeypatch.setattr(link.membership, "join", join)
    registration = Registration(broker_id=BrokerId(1), directory_id="d", host="h", port=1)
    with pytest.raises(KafkaError, match="another broker has this id"):
        await link.join(registration, cast(Any, None), cast(Any, None))
