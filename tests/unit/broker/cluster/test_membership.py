"""A broker in its cluster, with the registry and the other brokers played by the test: whom it asks, and what it survives."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.broker.cluster.membership import ClusterMembership
from odradek.cluster.controller.controller import Controller
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.registration import Registration, register
from odradek.cluster.sync import BrokerReport, SyncAnswer, UpdateKind, snapshot
from odradek.cluster.sync_pieces import at_once
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, BrokerId, LeaderEpoch
from odradek.net.peer_connection import PeerUnreachable
from odradek.protocol import Message
from odradek.protocol.messages.cluster.cluster_sync import ClusterSyncRequest, ClusterSyncResponse
from odradek.registry import Create, Delete, Node, Operation, Put, SessionExpired
from odradek.registry.election import CONTROLLER, CONTROLLER_EPOCH, Term
from odradek.registry.tree import Tree
from odradek.registry.watching import Watches

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCHS_FROM = 7
Ask = Callable[[BrokerId, ClusterSyncRequest], Awaitable[Message]]


class Store:
    """What all sessions share."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.sessions: list[Session] = []

    def session(self) -> "Session":
        return Session(self)

    def apply(self, changes: Any) -> None:
        touched = self.tree.apply(changes)
        for session in self.sessions:
            session.watches.notify(touched)


class Session:
    def __init__(self, store: Store) -> None:
        self.store = store
        store.sessions.append(self)
        self.session_id = len(store.sessions)
        self.watches = Watches()
        self.on_expired: Callable[[], None] = lambda: None
        self.is_over = False
        self.renewals = 0
        self.before_commit: Callable[[Sequence[Operation]], Awaitable[None]] | None = None

    async def get(self, path: str) -> Node | None:
        self._check()
        return self.store.tree.nodes.get(path)

    async def children(self, path: str) -> list[str]:
        self._check()
        return self.store.tree.children(path)

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._check()
        if self.before_commit is not None:
            await self.before_commit(operations)
        self.store.apply(self.store.tree.decide(operations, self.session_id))

    async def sync(self) -> None:
        self._check()

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self.watches.add(path, on_change)

    async def renew(self) -> None:
        self.is_over = False
        self.renewals += 1

    async def close(self) -> None:
        self.expire()

    def expire(self) -> None:
        self.is_over = True
        self.store.apply([(path, None) for path in self.store.tree.owned_by(self.session_id)])

    def _check(self) -> None:
        if self.is_over:
            raise SessionExpired("the session is over")


class Entropy:
    def uniform(self) -> float:
        return 0.0


class FakeController:
    """A controller at this broker."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = self.latest = image
        self.looks: list[str] = []
        self.trouble: list[Exception] = []
        self.is_closed = False

    async def brokers_changed(self) -> None:
        self.looks.append("looked")
        if self.trouble:
            raise self.trouble.pop(0)

    async def sync(self, report: BrokerReport, *, max_wait_s: float) -> SyncAnswer:
        await asyncio.sleep(0)
        if max_wait_s:
            await asyncio.Event().wait()
        return SyncAnswer(self.image.controller_epoch, self.image.version, UpdateKind.NOTHING)

    async def close(self) -> None:
        self.is_closed = True


def image(controller: BrokerId, epoch: int, *, topics: Sequence[TopicImage] = ()) -> ClusterImage:
    brokers = tuple(
        BrokerImage(broker_id=broker, host="h", port=broker, epoch=EPOCHS_FROM) for broker in (ME, OTHER)
    )
    return ClusterImage(
        version=epoch << 32,
        cluster_id="c",
        controller_id=controller,
        brokers=brokers,
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        controller_epoch=epoch,
    )


class FakeLink:
    """What a `ClusterLink` is to its membership. `answer` plays the other brokers."""

    def __init__(self) -> None:
        self.image = image(OTHER, 0)
        self.asked: list[BrokerId] = []
        self.reports: list[ClusterSyncRequest] = []
        self.taken: list[int] = []
        self.take_fails: list[Exception] = []
        self.answer: Ask = self.never

    async def apply_image(self, after: ClusterImage) -> None:
        if self.take_fails:
            raise self.take_fails.pop(0)
        self.image = after
        self.taken.append(after.controller_epoch)

    async def send_to_control_plane(
        self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float, lane: str
    ) -> Message:
        assert isinstance(request, ClusterSyncRequest)
        self.asked.append(broker)
        self.reports.append(request)
        return await self.answer(broker, request)

    async def never(self, broker: BrokerId, request: ClusterSyncRequest) -> Message:
        return cast(Message, await asyncio.get_running_loop().create_future())

    def locate(self, broker: BrokerImage) -> bool:
        return False

    async def reached(self, controller_epoch: int, version: int) -> None:
        return None

    def changed(self) -> None:
        return None


class Scene:
    def __init__(self) -> None:
        self.store = Store()
        self.session = self.store.session()
        self.link = FakeLink()
        self.membership = ClusterMembership(
            cast(Any, self.link), cast(Any, self.session), cast(Any, Entropy())
        )
        self.controllers: list[FakeController] = []
        self.registration = registration(ME)
        self.report_count = 0
        """How often this broker's report was asked for."""

    async def load(self, term: Term) -> Controller:
        made = FakeController(image(ME, term.epoch))
        self.controllers.append(made)
        return cast(Controller, made)

    def report(self) -> BrokerReport:
        self.report_count += 1
        return BrokerReport(broker_id=ME, broker_epoch=-1)

    async def join(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.membership.join(self.registration, self.load, self.report)

    async def elect(self, broker: BrokerId) -> Session:
        """Another broker is the controller from now on, in a session of its own."""
        session = self.store.session()
        await self.hand_over(session, broker)
        return session

    async def hand_over(self, session: Session, broker: BrokerId) -> None:
        controller, epoch = await session.get(CONTROLLER), await session.get(CONTROLLER_EPOCH)
        data = json.dumps({"broker": broker}).encode()
        steps: list[Operation] = []
        if controller is not None:
            steps.append(Delete(path=CONTROLLER, version=controller.version))
        steps.append(Create(path=CONTROLLER, data=data, ephemeral=True))
        if epoch is None:
            steps.append(Create(path=CONTROLLER_EPOCH, data=b"1"))
        else:
            steps.append(
                Put(path=CONTROLLER_EPOCH, data=b"%d" % (int(epoch.data) + 1), version=epoch.version)
            )
        await session.commit(steps)


def registration(broker: BrokerId, *, directory: str = "") -> Registration:
    return Registration(
        broker_id=broker, directory_id=directory or f"data of {broker}", host="h", port=int(broker)
    )


def sync_response(epoch: int, topics: Sequence[TopicImage] = ()) -> ClusterSyncResponse:
    payload = at_once(snapshot(image(OTHER, epoch, topics=topics)))
    return ClusterSyncResponse(
        controller_epoch=epoch, version=epoch << 32, kind=UpdateKind.SNAPSHOT, payload=payload
    )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    if made.membership.failed is not None and made.membership.failed.done():
        made.membership.failed.exception()
    await made.membership.close()


async def test_a_silent_controller_is_not_waited_for_once_another_is_known(scene: Scene) -> None:
    """It may be paused: its answer would come after ten seconds, or not at all."""
    session = await scene.elect(OTHER)
    await scene.join()
    await until(lambda: OTHER in scene.link.asked)
    await scene.hand_over(session, THIRD)
    await until(lambda: THIRD in scene.link.asked)
    assert scene.link.asked[0] == OTHER


async def test_a_mistake_while_following_ends_no_following(scene: Scene) -> None:
    """It is logged. Without the task this broker would never hear of anything again."""

    async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
        if len(scene.link.asked) == 1:
            raise ZeroDivisionError("a mistake of ours")
        if len(scene.link.asked) == 2:
            return sync_response(1)
        return await scene.link.never(broker, request)

    scene.link.answer = answer
    await scene.elect(OTHER)
    await scene.join()
    await until(lambda: scene.membership.has_applied)
    assert scene.link.taken == [1]


async def test_a_mistake_while_reporting_ends_no_reporting(scene: Scene) -> None:
    reports: list[bool] = []

    async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
        if request.version < 0:
            return sync_response(1)
        if request.max_wait_ms:
            return await scene.link.never(broker, request)
        reports.append(True)
        if len(reports) == 1:
            raise ZeroDivisionError("a mistake of ours")
        return ClusterSyncResponse(controller_epoch=1, version=1 << 32)

    scene.link.answer = answer
    await scene.elect(OTHER)
    await scene.join()
    await until(lambda: scene.membership.has_applied)
    scene.membership.report_now()
    await until(lambda: len(reports) == 1)
    scene.membership.report_now()
    await until(lambda: len(reports) == 2)
    assert scene.membership.has_applied


async def test_what_cannot_be_reported_now_is_reported_with_the_next_question(scene: Scene) -> None:
    async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
        if request.version < 0:
            return sync_response(1)
        if request.max_wait_ms:
            return await scene.link.never(broker, request)
        raise PeerUnreachable("no one there")

    scene.link.answer = answer
    await scene.elect(OTHER)
    await scene.join()
    await until(lambda: scene.membership.has_applied)
    for count in (1, 2):
        scene.membership.report_now()

        def reported_so_often(count: int = count) -> bool:
            return sum(report.max_wait_ms == 0 for report in scene.link.reports) == count

        await until(reported_so_often)
    assert set(scene.link.asked) == {OTHER}


async def test_a_mistake_while_looking_after_brokers_is_followed_by_another_look(scene: Scene) -> None:
    await scene.join()
    await until(lambda: scene.controllers and scene.controllers[0].looks)
    (controller,) = scene.controllers
    looks = len(controller.looks)
    controller.trouble.append(ZeroDivisionError("a mistake of ours"))
    await register(cast(Any, scene.store.session()), registration(OTHER))
    await until(lambda: len(controller.looks) >= looks + 2)
    assert not controller.trouble


async def test_a_mistake_while_registering_again_ends_no_registering(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.elect(OTHER)
    await scene.join()
    epoch = scene.membership.broker_epoch
    mistakes = [ZeroDivisionError("a mistake of ours")]

    async def mistaken(registry: Any, broker: Registration, **more: Any) -> int:
        if mistakes:
            raise mistakes.pop()
        return await register(registry, broker, **more)

    monkeypatch.setattr("odradek.broker.cluster.membership.register", mistaken)
    scene.session.expire()
    scene.session.on_expired()
    await until(lambda: scene.membership.broker_epoch > epoch)
    assert not mistakes


async def test_a_broker_whose_id_was_taken_meanwhile_says_so_and_gives_up(scene: Scene) -> None:
    """Its session ended, and another process with this id and other data was first."""
    await scene.elect(OTHER)
    await scene.join()
    failed = scene.membership.failed
    assert failed is not None
    scene.session.expire()
    await register(cast(Any, scene.store.session()), registration(ME, directory="other data"))
    scene.session.on_expired()
    await until(failed.done)
    error = failed.exception()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_session_that_ends_during_the_start_is_begun_again(scene: Scene) -> None:
    """Logs may take longer to open than a session lasts."""
    scene.session.expire()
    await scene.join()
    assert scene.session.renewals == 1
    assert scene.membership.broker_epoch > 0


async def test_a_controller_whose_image_cannot_be_taken_is_put_away_and_the_office_given_up(
    scene: Scene,
) -> None:
    """Else it would go on, with no one to stop it, while another is elected."""

    async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
        if request.version < 0:
            return sync_response(1)
        return await scene.link.never(broker, request)

    scene.link.answer = answer
    controller_of_others = await scene.elect(OTHER)
    await scene.join()
    await until(lambda: scene.membership.has_applied)
    scene.link.take_fails.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk"))
    controller_of_others.expire()
    await until(lambda: len(scene.controllers) == 2)
    assert scene.controllers[0].is_closed
    await until(lambda: scene.membership.controller == cast(Any, scene.controllers[1]))


class Refusing:
    """The controller's process is gone; `dead` is its session, which has not run out yet."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.dead: Session

    async def begin(self) -> None:
        async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
            if broker == OTHER:
                raise PeerUnreachable("no one listens", refused=True)
            return await self.scene.link.never(broker, request)

        self.scene.link.answer = answer
        self.dead = await self.scene.elect(OTHER)
        await register(cast(Any, self.dead), registration(OTHER))

    async def office_is_taken(self) -> bool:
        node = await self.scene.session.get(CONTROLLER)
        return node is not None and json.loads(node.data)["broker"] == ME


async def test_the_office_of_a_controller_that_refuses_connections_is_taken_at_once(scene: Scene) -> None:
    refusing = Refusing(scene)
    await refusing.begin()
    await scene.join()
    await until(lambda: scene.controllers)
    assert await refusing.office_is_taken()
    assert await scene.session.get("/brokers/ids/2") is None


@pytest.mark.parametrize("what", ["elected", "registered"])
async def test_a_controller_that_is_back_meanwhile_keeps_its_new_office_and_registration(
    scene: Scene, what: str
) -> None:
    """The nodes of its new life have the versions of those that it left: what was read of them must not be acted upon."""
    refusing = Refusing(scene)
    await refusing.begin()
    back = scene.store.session()
    happened = asyncio.Event()

    async def meanwhile(operations: Sequence[Operation]) -> None:
        if any(isinstance(operation, Delete) and operation.path == CONTROLLER for operation in operations):
            scene.session.before_commit = None
            if what == "elected":
                await scene.hand_over(back, THIRD)
            else:
                await register(cast(Any, back), registration(OTHER))
            happened.set()

    scene.session.before_commit = meanwhile
    await scene.join()
    async with asyncio.timeout(PATIENCE_S):
        await happened.wait()
    if what == "elected":
        await until(lambda: THIRD in scene.link.asked)
        assert not await refusing.office_is_taken()
    else:
        refused_before = len(scene.link.asked)
        node = await scene.session.get("/brokers/ids/2")
        assert node is not None
        assert node.owner == back.session_id
        await until(lambda: len(scene.link.asked) > refused_before)


@pytest.mark.parametrize(
    ("replicas", "leaving", "waits"),
    [((ME, OTHER), False, True), ((ME,), False, False), ((ME, OTHER), True, False)],
)
async def test_who_leaves_waits_only_for_those_who_could_take_over(
    scene: Scene, replicas: tuple[BrokerId, ...], leaving: bool, waits: bool
) -> None:
    partition = PartitionImage(leader=ME, leader_epoch=LeaderEpoch(1), replicas=replicas, isr=replicas)
    topic = TopicImage(name="t", topic_id=ZERO_UUID, partitions=(partition,))
    handed_over = asyncio.Event()

    async def answer(broker: BrokerId, request: ClusterSyncRequest) -> Message:
        if request.version < 0:
            return sync_response(1, [topic])
        if not request.max_wait_ms:
            assert b'"leaving":true' in request.payload
            handed_over.set()
            moved = replace(topic, partitions=(replace(partition, leader=OTHER),))
            scene.link.image = scene.link.image.with_topics([moved])
            return ClusterSyncResponse(controller_epoch=1, version=1 << 32)
        return await scene.link.never(broker, request)

    scene.link.answer = answer
    await scene.elect(OTHER)
    await scene.join()
    await until(lambda: scene.membership.has_applied)
    if leaving:
        before = scene.link.image
        gone = tuple(
            replace(broker_image, is_leaving=broker_image.broker_id == OTHER)
            for broker_image in before.brokers
        )
        scene.link.image = replace(before, brokers=gone)
    async with asyncio.timeout(PATIENCE_S):
        await scene.membership.leave()
    assert handed_over.is_set() is waits
