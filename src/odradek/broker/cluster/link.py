"""This broker's place in its cluster: the image that it runs on, and its way to the controller.

Whatever needs the controller asks here, and need not know which broker that is. How the place is kept: `membership.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.membership import ClusterMembership, JoiningDisk, LoadController, Report
from odradek.broker.cluster.other_brokers import NO_LISTENERS, OtherBrokers
from odradek.cluster.controller.controller import Controller
from odradek.cluster.image import BrokerImage, ClusterImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.cluster.registration import Registration
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.protocol import Message
from odradek.registry import Registry
from odradek.runtime.ports import Runtime
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.cluster import failure_detector, topic_creation
    from odradek.broker.cluster import forwarding as cluster_forwarding
    from odradek.broker.cluster.failure_detector import FailureDetector
    from odradek.broker.cluster.forwarding import Forwarding
    from odradek.broker.cluster.image_age import ImageAge
    from odradek.net.outgoing_security import OutgoingSecurity
    from odradek.net.peers import Peers
else:
    failure_detector = lazy("odradek.broker.cluster.failure_detector")
    cluster_forwarding = lazy("odradek.broker.cluster.forwarding")
    topic_creation = lazy("odradek.broker.cluster.topic_creation")

_NAMED_SECONDS: Final = 5.0
_log = events.get("broker")

Apply = Callable[[ClusterImage, ClusterImage], Awaitable[asyncio.Future[None] | None]]
"""The same as `cluster.publishing.Apply`."""


class ClusterLink:
    """The connection between a broker and its cluster: the image that the broker runs on, and the way to the controller.
    Used on the event loop only. `apply` does what it takes to get from one image to the next."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        image: ClusterImage,
        *,
        broker_id: BrokerId,
        apply: Apply,
        request_timeout_s: float,
        security: Callable[[], OutgoingSecurity | None] = lambda: None,
        control_planes: Mapping[str, Callable[[], OutgoingSecurity | None]] = NO_LISTENERS,
        image_age: ImageAge | None = None,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._image = image
        self._apply = apply
        self.security: Final = security
        """The security of connections to other brokers."""
        self.image_age: Final = image_age
        """The age of the image; None where the settings do not limit it."""
        self._applying = asyncio.Lock()
        self._takes: dict[asyncio.Task[asyncio.Future[None] | None], None] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._others = OtherBrokers(
            runtime,
            broker_id,
            lambda broker: _broker_in(self._image, broker),
            request_timeout_s=request_timeout_s,
            on_lost=self._lost,
            security=security,
            control_planes=control_planes,
        )
        self._forwarding: Forwarding | None = None
        self.failure_detector: FailureDetector | None = None
        """The detector of dead brokers; None until there are other brokers to probe."""
        self._closing = False
        self.joining: asyncio.Event | None = asyncio.Event()
        """Set when this broker has applied an image that names it; None from then on."""
        self.incarnation: Final = runtime.entropy.uuid().hex
        """A random id of this process."""
        self._gone: dict[BrokerId, tuple[BrokerImage, float]] = {}
        """Brokers that left the image lately, and until when they are named."""
        self.membership = ClusterMembership(self, registry, runtime.entropy, image_age)

    # -- what is known

    @property
    def image(self) -> ClusterImage:
        """The image of the cluster that this broker has applied."""
        return self._image

    @property
    def named_brokers(self) -> tuple[BrokerImage, ...]:
        """The brokers of the image, and for a few seconds those that left it.

        librdkafka loses sight of a partition for a second when one answer both moves it and drops the broker that it was at.
        """
        if not self._gone:
            return self._image.brokers
        now = self._runtime.clock.monotonic()
        present = {broker.broker_id for broker in self._image.brokers}
        self._gone = {
            broker_id: (broker, until)
            for broker_id, (broker, until) in self._gone.items()
            if now < until and broker_id not in present
        }
        return (*self._image.brokers, *(broker for broker, _ in self._gone.values()))

    @property
    def leads(self) -> bool:
        """Whether this broker is the controller."""
        controller = self.membership.controller
        return controller is not None and not controller.is_deposed

    @property
    def controller(self) -> Controller:
        """The controller, if it is this broker; NOT_CONTROLLER otherwise."""
        controller = self.membership.controller
        if controller is None or controller.is_deposed:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "another broker is the controller, or none is yet: try again"
            )
        return controller

    @property
    def controller_id(self) -> BrokerId | None:
        """The last elected controller that this broker knows; None while there is none."""
        return self.membership.controller_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self.membership.broker_epoch

    @property
    def has_applied(self) -> bool:
        """Whether a controller's image was applied in this life."""
        return self.membership.has_applied

    # -- coming and going

    async def join(
        self,
        registration: Registration,
        load_controller: LoadController,
        report: Report,
        identity: JoiningDisk | None = None,
    ) -> None:
        """Registers, becomes a candidate for controller, and returns when an image that knows this broker was applied."""
        membership = self.membership
        await membership.join(registration, load_controller, report, identity)
        while not (membership.has_applied and self._knows_me()):
            if membership.failed is not None and membership.failed.done():
                membership.failed.result()
            await self._change()
        joining, self.joining = self.joining, None
        if joining is not None:
            joining.set()

    @property
    def failed(self) -> asyncio.Future[None] | None:
        """Ends with an error when this broker cannot belong to the cluster any more."""
        return self.membership.failed

    def give_up(self, error: KafkaError) -> None:
        """Ends the membership because this broker cannot belong to the cluster any more."""
        self.membership.give_up(error)

    def report_now(self) -> None:
        """Sends this broker's report to the controller before the next request for news."""
        self.membership.report_now()

    def lost_sight_of(self, broker: BrokerId, epoch: int) -> None:
        """Lets the controller look whether a broker is dead, because its connection, on which it waited for news, broke."""
        if self.leads:
            self._detect_failure(broker, epoch)

    def _detect_failure(self, broker: BrokerId, epoch: int) -> None:
        if self._closing:
            return
        if self.failure_detector is None:
            self.failure_detector = failure_detector.FailureDetector(
                self._others.address_of,
                self._epoch_of,
                self._fence,
                self.changed,
                self._runtime.clock.monotonic,
            )
        self.failure_detector.connection_lost(broker, epoch)

    @property
    def dead(self) -> frozenset[BrokerId]:
        """Brokers of the image that have died since, as far as this one saw: the next image, or the one
        after, shows it."""
        return frozenset() if self.failure_detector is None else self.failure_detector.dead()

    @property
    def is_undecided(self) -> bool:
        """Whether no broker is known yet, or one may just have died: the brokers and leaders will be known in a moment.

        This broker listens before it has its first image of this life. An answer that names no broker would be the end of a
        client: librdkafka closes its connections to all that are not named, and has no broker left to ask.
        """
        is_looking = self.failure_detector is not None and self.failure_detector.undecided_for() > 0
        return is_looking or not self.named_brokers

    async def decision(self) -> None:
        """Returns when that moment is over."""
        while not self.named_brokers:
            await self._change()
        while self.failure_detector is not None and (seconds := self.failure_detector.undecided_for()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._change()

    async def _fence(self, broker: BrokerId, epoch: int) -> None:
        if self.leads:
            await self.controller.fence(broker, epoch)

    def _lost(self, broker: BrokerId) -> None:
        epoch = self._epoch_of(broker)
        if epoch is not None:
            self._detect_failure(broker, epoch)

    async def leave(self) -> None:
        """Hand over what this broker leads, if there is anyone to take it."""
        await self.membership.leave()

    async def close(self) -> None:
        """Give up office; ask no one any more. An image that is being applied is applied to its end."""
        self._closing = True
        if self.failure_detector is not None:
            await self.failure_detector.close()
        await self.membership.close()
        while self._takes:
            await asyncio.gather(*self._takes, return_exceptions=True)
        await self._others.close()

    def _knows_me(self) -> bool:
        epoch = self.membership.broker_epoch
        return any(
            broker.broker_id == self._broker_id and broker.epoch == epoch for broker in self._image.brokers
        )

    # -- what membership tells

    async def decided(self, _before: ClusterImage, after: ClusterImage) -> asyncio.Future[None] | None:
        """Our own controller made an image. Until it has heard this broker's first report, that may give it roles of its former
        life: then it is left out, and `ClusterMembership` takes the first one that counts."""
        return await self.apply_image(after) if self.has_applied else None

    async def apply_image(self, after: ClusterImage) -> asyncio.Future[None] | None:
        """Apply an image, then show it: to its end, whether or not the caller is still there. Returns what `apply` does.

        One of a controller whose time is over changes nothing: it may be the late answer to a question of long ago, and would
        take away what was made since.
        """
        task = asyncio.get_running_loop().create_task(self._apply_in_order(after), name="take image")
        self._takes[task] = None
        task.add_done_callback(lambda done: self._takes.pop(done, None))
        return await outcome_of(task)

    async def _apply_in_order(self, after: ClusterImage) -> asyncio.Future[None] | None:
        async with self._applying:
            before = self._image
            if after.controller_epoch < before.controller_epoch:
                _log.warning(
                    "image_is_of_the_past",
                    controller=after.controller_id,
                    controller_epoch=after.controller_epoch,
                    known_epoch=before.controller_epoch,
                )
                return None
            try:
                logs = await self._apply(before, after)
            finally:
                self.show(after)
        self.changed()
        return logs

    def show(self, after: ClusterImage) -> None:
        """Answer by this image from now on. What it asks of this broker was applied; those that wait for it are not woken."""
        before, self._image = self._image, after
        self._others.image_is_new()
        self._note_gone(before, after)

    def _note_gone(self, before: ClusterImage, after: ClusterImage) -> None:
        for broker in before.brokers:
            if broker not in after.brokers:
                self._gone[broker.broker_id] = broker, self._runtime.clock.monotonic() + _NAMED_SECONDS
                self._others.forget(broker.broker_id)

    def locate(self, broker: BrokerImage) -> bool:
        return self._others.locate(broker)

    def changed(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def waiting_count(self) -> int:
        """The number of waiters for another image, or another controller."""
        return len(self._waiting)

    async def _change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    async def controller_changed(self) -> None:
        """Returns when another broker, or none, may have become the controller."""
        await self._change()

    async def reached(self, controller_epoch: int, version: int) -> None:
        """Returns when this broker's image is as new as that."""
        while (self._image.controller_epoch, self._image.version) < (controller_epoch, version):
            await self._change()

    # -- asking others

    @property
    def peers(self) -> Peers:
        """The other brokers. Not imported before there is one to be asked."""
        return self._others.peers

    @property
    def forwarding(self) -> cluster_forwarding.Forwarding:
        """Passes clients' requests on to the controller."""
        if self._forwarding is None:
            self._forwarding = cluster_forwarding.Forwarding(self)
        return self._forwarding

    def send(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Awaitable[Message]:
        """Returns another broker's answer, or PeerUnreachable, to be awaited; see `Peers.send`."""
        return self.peers.send(broker, api_key, request, timeout_s=timeout_s, lane=lane)

    async def send_to_control_plane(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Message:
        """Returns the answer of a broker that is asked as the controller: at its control plane, if it has one for which this
        broker has settings. Else at its listener for brokers: so a cluster gets control planes broker by broker. Raises
        PeerUnreachable.
        """
        return await self._others.send_to_control_plane(
            broker, api_key, request, timeout_s=timeout_s, lane=lane
        )

    async def send_to_controller(self, api_key: int, request: Message) -> Message:
        """Returns the answer of a controller that is another broker. Raises PeerUnreachable; NOT_CONTROLLER when none is
        known."""
        controller = self.controller_id
        if controller is None or controller == self._broker_id:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no other controller is known: try again")
        return await self.send_to_control_plane(controller, api_key, request)

    async def create_topics(self, wanted: Sequence[TopicSpec]) -> list[TopicImage | KafkaError]:
        """Creates topics through the controller, on any broker; returns one outcome for each, in order."""
        if not self.leads:
            outcomes = await topic_creation.create_topics(self, wanted)
            if outcomes is not None:
                return outcomes
        return await self.controller.create_topics(wanted)

    def _epoch_of(self, broker: BrokerId) -> int | None:
        known = _broker_in(self._image, broker)
        return None if known is None else known.epoch


def _broker_in(image: ClusterImage, broker: BrokerId) -> BrokerImage | None:
    return next((listed for listed in image.brokers if listed.broker_id == broker), None)
