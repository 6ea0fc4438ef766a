"""This broker's membership in its cluster: registered under an epoch of its own, a candidate for controller, and a
follower of the current one.

Tasks, each woken by what happens and otherwise asleep:

- *registering*: the registration is made again, under a new epoch, when the session ended or the controller took the node away;
- *election*: the candidacy (`registry/election.py`), which begins and ends the time of a `Controller` here;
- *following*: the controller, here or elsewhere, gets this broker's report and is asked for news. What another broker's
  controller tells is applied, and the next question acknowledges it; what our own does is applied as it happens;
- *reporting*: the controller learns at once of replicas that went offline, or came back.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from odradek.cluster.controller.controller import Controller
from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.cluster.known_brokers import DiskClaim
from odradek.cluster.registration import BROKERS, Registration, register, removal
from odradek.cluster.sync import BrokerReport, SyncAnswer, UpdateDoesNotFit, UpdateKind, apply_update
from odradek.cluster.sync_pieces import in_turns
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.protocol import Message
from odradek.registry import Check, Delete, Registry, RegistryConflict, RegistryError, SessionExpired
from odradek.registry.election import CONTROLLER, CONTROLLER_EPOCH, Election, Term
from odradek.runtime.ports import Entropy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.cluster.image_age import ImageAge
    from odradek.net import peer_connection
    from odradek.protocol.messages.cluster import cluster_sync
else:
    peer_connection = lazy("odradek.net.peer_connection")
    cluster_sync = lazy("odradek.protocol.messages.cluster.cluster_sync")

_log = events.get("broker")

CLUSTER_SYNC: Final = 10000
_IMAGES, _REPORTS = "images", "reports"
_POLL_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = (0.05, 1.0)
_SESSIONS_MAX: Final = 16
_SIGN_OF_LIFE_SECONDS: Final = 2.0
_LEAVE_SECONDS: Final = 10.0
_LEAVE_POLL_SECONDS: Final = 0.1

LoadController = Callable[[Term], Awaitable[Controller]]
Report = Callable[[], BrokerReport]
"""Returns the report about this broker's replicas; its identity, and what it has applied, is filled in here."""


class MembershipLink(Protocol):
    """The parts of `ClusterLink` that a membership needs."""

    @property
    def image(self) -> ClusterImage: ...

    async def apply_image(self, after: ClusterImage) -> object:
        """Apply an image. What it brings may be opened later."""

    async def send_to_control_plane(
        self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float, lane: str
    ) -> Message:
        """Raises an OdradekError when there is no answer."""

    def locate(self, broker: BrokerImage) -> bool:
        """Notes the addresses of a broker, which the image may not have yet. Returns whether they are new."""

    async def reached(self, controller_epoch: int, version: int) -> None:
        """Returns when an image that is as new as that was applied."""

    def changed(self) -> None:
        """Wakes waiters: the controller, or the registration, has changed."""


class JoiningDisk(Protocol):
    """The parts of `DiskIdentity` that a membership needs."""

    async def alone(self, registration: Registration) -> int | None:
        """Returns when no other process is this broker; raises when one is. The session of a dead one that is registered."""

    async def claim(self) -> DiskClaim: ...
    async def claimed(self) -> None: ...
    async def confirmed(self) -> DiskClaim | None: ...


class ClusterMembership:
    """Keeps this broker registered, a candidate for controller, and a follower of the current controller. Used on the event
    loop only. `join`, later `leave` if others are to take over, and `close`."""

    def __init__(
        self,
        cluster: MembershipLink,
        registry: Registry,
        entropy: Entropy,
        image_age: ImageAge | None = None,
    ) -> None:
        """`image_age` tracks how new the image is, where that matters."""
        self._image_age = image_age
        self._cluster = cluster
        self._registry = registry
        self._entropy = entropy
        self._registration: Registration | None = None
        self._load_controller: LoadController | None = None
        self._report: Report | None = None
        self._identity: JoiningDisk | None = None
        self._election: Election | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._tending: asyncio.Task[None] | None = None
        self._end_watch: Callable[[], None] = _nothing
        self._brokers_changed = asyncio.Event()
        self._unregistered = asyncio.Event()
        self._news = asyncio.Event()
        self._has_to_report = asyncio.Event()
        self._refused_by: BrokerId | None = None
        """The controller whose listener refused the last connection."""
        self._has_applied = False
        self._is_leaving = False
        self._sessions: deque[int] = deque(maxlen=_SESSIONS_MAX)
        """That this process had, the newest last: what is registered in them is its own."""
        self._sign: asyncio.TimerHandle | None = None
        """The timer of the next sign of life while an image is applied."""
        self.controller: Controller | None = None
        """The controller, while it is this broker."""
        self.controller_id: BrokerId | None = None
        """The last elected controller that this broker knows; None while there is none."""
        self.broker_epoch = -1
        self.failed: asyncio.Future[None] | None = None
        """Ends with an error when this broker cannot belong to the cluster any more."""

    async def join(
        self,
        registration: Registration,
        load_controller: LoadController,
        report: Report,
        identity: JoiningDisk | None = None,
    ) -> None:
        """Registers, becomes a candidate for controller, and follows the current controller. Raises the error
        that prevents the registration."""
        self._registration, self._load_controller, self._report = registration, load_controller, report
        self._identity = identity
        self.failed = asyncio.get_running_loop().create_future()
        self._registry.on_expired = self._session_is_over
        self.broker_epoch = await self._registered(registration)
        _log.info("broker_registered", broker=registration.broker_id, epoch=self.broker_epoch)
        self._election = Election(
            self._registry,
            candidate=json.dumps({"broker": registration.broker_id}).encode(),
            on_elected=self._become_controller,
            on_deposed=self._deposed,
            on_controller=self._heard,
            entropy=self._entropy,
        )
        await self._election.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep_registered(), name="registering"),
            loop.create_task(self._follow(), name="following"),
            loop.create_task(self._report_progress(), name="reporting"),
        ]

    @property
    def has_applied(self) -> bool:
        """Whether an image was applied in this life."""
        return self._has_applied

    async def leave(self) -> None:
        """Hand over what this broker leads, as long as there is someone to take it (controlled shutdown). It never fails."""
        self._is_leaving = True
        if not self._has_applied or len(self._cluster.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                while self._leads_what_others_hold():
                    if self.controller_id is not None:
                        await self._sync_with(self.controller_id, max_wait_s=0.0, lane=_REPORTS)
                    await asyncio.sleep(_LEAVE_POLL_SECONDS)
        except (OdradekError, TimeoutError) as error:
            _log.warning(
                "leadership_not_handed_over", reason=str(error) or f"not within {_LEAVE_SECONDS:g} s"
            )

    def report_now(self) -> None:
        """Sends a changed report to the controller. If that is not possible now, the next request for news contains it."""
        self._has_to_report.set()

    async def _report_progress(self) -> None:
        while True:
            await self._has_to_report.wait()
            self._has_to_report.clear()
            if (self._has_applied or self._sign is not None) and self.controller_id is not None:
                try:
                    await self._sync_with(self.controller_id, max_wait_s=0.0, lane=_REPORTS)
                except OdradekError as error:  # the next question tells it
                    _log.info("report_not_heard", reason=str(error))
                except Exception:  # noqa: BLE001 - the root of a task
                    _log.exception("reporting_failed")

    async def close(self) -> None:
        """Ends all tasks; the registration ends when the registry is closed. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        election, self._election = self._election, None
        if election is not None:
            await election.close()

    # -- registering

    async def _registered(self, registration: Registration) -> int:
        """Returns the epoch, however long the registry cannot be reached: its session may have ended while logs were opened."""
        pause = _Pause(self._entropy)
        while True:
            try:
                self._note_session()
                if self._identity is None:
                    return await register(self._registry, registration)
                dead = await self._identity.alone(registration)
                claim = await self._identity.claim()
                epoch = await register(self._registry, registration, claim=claim, dead=dead)
                await self._identity.claimed()
                return epoch
            except RegistryError as error:
                _log.warning("registration_retried", reason=str(error))
                await pause.rest()
                if isinstance(error, SessionExpired):
                    with suppress(RegistryError):
                        await self._registry.renew()

    def _note_session(self) -> None:
        if self._registry.session_id not in self._sessions:
            self._sessions.append(self._registry.session_id)

    def _session_is_over(self) -> None:
        _log.warning("session_expired", epoch=self.broker_epoch)
        self._unregistered.set()

    async def _keep_registered(self) -> None:
        assert self._registration is not None
        pause = _Pause(self._entropy)
        while True:
            await self._unregistered.wait()
            try:
                self._note_session()
                claim = None if self._identity is None else await self._identity.confirmed()
                self.broker_epoch = await register(
                    self._registry, self._registration, claim=claim, earlier=self._sessions
                )
            except RegistryError as error:  # the election renews the session
                _log.info("registration_retried", reason=str(error))
                await pause.rest()
            except KafkaError as error:
                self.give_up(error)
                return
            except Exception:  # noqa: BLE001 - the root of a task
                _log.exception("registering_failed")
                await pause.rest()
            else:
                pause.over()
                self._unregistered.clear()
                _log.info(
                    "broker_registered_again", broker=self._registration.broker_id, epoch=self.broker_epoch
                )
                self._wake()

    def give_up(self, error: KafkaError) -> None:
        """Ends the membership because this broker cannot belong to the cluster any more."""
        _log.error("broker_cannot_go_on", reason=error.message)
        if self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)
        self._wake()

    # -- election

    async def _become_controller(self, term: Term) -> None:
        """Controller failover: this broker was elected, and loads the state that the last controller left."""
        assert self._load_controller is not None
        controller = await self._load_controller(term)
        if self._has_applied:
            try:
                await self._cluster.apply_image(controller.image)
            except BaseException:
                await controller.close()
                raise
        self.controller = controller
        self._brokers_changed.set()
        self._end_watch = self._registry.watch(BROKERS, self._brokers_changed.set)
        self._tending = asyncio.get_running_loop().create_task(self._tend(controller), name="tending brokers")
        self._wake()

    async def _deposed(self) -> None:
        self._end_watch()
        self._end_watch = _nothing
        controller, self.controller = self.controller, None
        tending, self._tending = self._tending, None
        if tending is not None:
            tending.cancel()
            await asyncio.gather(tending, return_exceptions=True)
        if controller is not None:
            await controller.close()
        self._wake()

    async def _tend(self, controller: Controller) -> None:
        """Brokers come and go."""
        pause = _Pause(self._entropy)
        while True:
            await self._brokers_changed.wait()
            self._brokers_changed.clear()
            try:
                await controller.brokers_changed()
            except OdradekError as error:
                _log.warning("brokers_not_read", reason=str(error))
                self._brokers_changed.set()
                await pause.rest()
            except Exception:  # noqa: BLE001 - the root of a task
                _log.exception("brokers_not_read")
                self._brokers_changed.set()
                await pause.rest()
            else:
                pause.over()

    def _heard(self, candidate: bytes | None, epoch: int) -> None:
        """Notes the controller that the registry names."""
        self.controller_id = None if candidate is None else BrokerId(json.loads(candidate)["broker"])
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._cluster.changed()

    # -- following

    async def _follow(self) -> None:
        pause = _Pause(self._entropy)
        while True:
            self._news.clear()
            controller = self.controller_id
            if controller is None or (self._is_me(controller) and self.controller is None):
                await self._news.wait()
                continue
            try:
                asked = self._now_known()
                response = await self._news_of(controller)
                if response is not None:
                    await self._apply_with_heartbeats(response)
                    await self._confirm_age(response, *asked)
            except UpdateDoesNotFit:
                self._has_applied = False
            except OdradekError as error:
                await self._report_failed(controller, error)
                await pause.rest()
            except Exception:  # noqa: BLE001 - the root of a task: without it this broker would never learn of anything
                _log.exception("following_failed", controller=controller)
                await pause.rest()
            else:
                pause.over()

    def _now_known(self) -> tuple[float, int]:
        """Returns the time, and the version that is decided by then as far as this process knows."""
        requested_s = 0.0 if self._image_age is None else self._image_age.now()
        return requested_s, -1 if self.controller is None else self.controller.latest.version

    async def _confirm_age(self, response: SyncAnswer, requested_s: float, decided_version: int) -> None:
        """The response is applied, so the image is as new as the request. If the controller is here, the
        image is as new as the registry's confirmation of its term."""
        if self._image_age is None:
            return
        image, own = self._cluster.image, self.controller
        wanted = response.controller_epoch, max(response.version, decided_version)
        if (image.controller_epoch, image.version) < wanted:
            return
        if own is not None and response.controller_epoch == own.epoch:
            await own.confirm_office()
        self._image_age.heard(requested_s)

    async def _apply_with_heartbeats(self, response: SyncAnswer) -> None:
        """Applies an image and sends heartbeats meanwhile, since opening its replicas may take long."""
        self._sign = self._next_sign()
        try:
            await self._apply_answer(response)
        finally:
            self._sign.cancel()
            self._sign = None

    def _next_sign(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(_SIGN_OF_LIFE_SECONDS, self._give_sign)

    def _give_sign(self) -> None:
        self._sign = self._next_sign()
        self.report_now()

    async def _news_of(self, controller: BrokerId) -> SyncAnswer | None:
        """Returns the controller's news; None as soon as another is the controller: this one may be paused, or cut off."""
        asking = asyncio.get_running_loop().create_task(
            self._sync_with(controller, max_wait_s=_POLL_SECONDS, lane=_IMAGES)
        )
        asking.add_done_callback(lambda _: self._news.set())
        try:
            while not asking.done():
                self._news.clear()
                if self.controller_id != controller:
                    return None
                await self._news.wait()
            return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _sync_with(self, controller: BrokerId, *, max_wait_s: float, lane: str) -> SyncAnswer:
        report = self._own_report()
        if self._is_me(controller):
            if self.controller is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
            return await self.controller.sync(report, max_wait_s=max_wait_s)
        # Not needed before there is another broker.

        request = cluster_sync.ClusterSyncRequest(
            broker_id=report.broker_id,
            broker_epoch=report.broker_epoch,
            controller_epoch=report.controller_epoch,
            version=report.version,
            max_wait_ms=int(max_wait_s * 1000),
            payload=report.data(),
        )
        response = await self._cluster.send_to_control_plane(
            controller, CLUSTER_SYNC, request, timeout_s=max_wait_s + _ANSWER_SECONDS, lane=lane
        )
        assert isinstance(response, cluster_sync.ClusterSyncResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.of(response.error_code),
                f"broker {controller}, the controller, sends no cluster image",
            )
        return SyncAnswer(
            controller_epoch=response.controller_epoch,
            version=response.version,
            kind=UpdateKind(response.kind),
            payload=response.payload,
        )

    def _own_report(self) -> BrokerReport:
        assert self._report is not None
        image = self._cluster.image
        return replace(
            self._report(),
            broker_epoch=self.broker_epoch,
            controller_epoch=image.controller_epoch if self._has_applied else -1,
            version=image.version if self._has_applied else -1,
            is_leaving=self._is_leaving,
        )

    async def _apply_answer(self, response: SyncAnswer) -> None:
        own = self.controller
        if own is not None and response.controller_epoch == own.image.controller_epoch:
            if self._has_applied:
                # It applies what it decides, in a task of its own.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._cluster.reached(response.controller_epoch, response.version)
            # It has heard us by now. What it decided before may still name this broker's former self as a leader.
            while not self._has_applied and self.controller is own:
                latest = own.latest
                await self._cluster.apply_image(latest)
                if latest is own.latest:
                    self._now_applied()
            return
        if response.kind is not UpdateKind.NOTHING:
            present = self._cluster.image
            image = await in_turns(apply_update(present if self._has_applied else None, response.payload))
            if self._cluster.image is not present:
                return  # it became the controller meanwhile: the next question is another
            await self._cluster.apply_image(image)
            self._now_applied()

    def _now_applied(self) -> None:
        if not self._has_applied:
            self._has_applied = True
            self._cluster.changed()

    async def _report_failed(self, controller: BrokerId, error: OdradekError) -> None:
        """Handles a controller that sends no updates: it stopped or was deposed, moved to another address, or
        does not know this broker."""
        code = error.code if isinstance(error, KafkaError) else None
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._unregistered.set()
        elif isinstance(error, peer_connection.PeerUnreachable) and not self._is_me(controller):
            refuses = self._refused_by == controller and error.refused
            self._refused_by = controller if error.refused else None
            # A conflict: others know better. No registry: the end of the session will do.
            with suppress(RegistryConflict, RegistryError):
                await self._locate(controller, is_dead=refuses)

    async def _locate(self, broker: BrokerId, *, is_dead: bool) -> None:
        """Looks up the controller's addresses in its registration. If it refuses connections there, its
        process has ended: its office and its registration are deleted without waiting for the end of its
        session.
        """
        await self._registry.sync()
        epoch = await self._registry.get(CONTROLLER_EPOCH)
        fenced = await removal(self._registry, broker)
        if fenced is None or epoch is None:
            return
        moved = self._cluster.locate(fenced.registration.image(fenced.epoch))
        office = await self._registry.get(CONTROLLER)
        if moved or not is_dead or office is None or json.loads(office.data)["broker"] != broker:
            return
        await self._registry.commit(
            [
                Check(path=CONTROLLER_EPOCH, version=epoch.version),
                Delete(path=CONTROLLER, version=office.version),
                *fenced.operations,
            ]
        )
        _log.warning("controller_is_dead", broker=broker, reason="its listener refuses connections")

    def _is_me(self, broker: BrokerId) -> bool:
        return self._registration is not None and broker == self._registration.broker_id

    def _leads_what_others_hold(self) -> bool:
        """Tells whether this broker leads something that a broker which stays could lead, now or when it has caught up."""
        assert self._registration is not None
        me, image = self._registration.broker_id, self._cluster.image
        staying = {broker.broker_id for broker in image.brokers if not broker.is_leaving} - {me}
        topics = image.topics.values()
        return bool(staying) and any(
            partition.leader == me and not staying.isdisjoint(partition.replicas)
            for topic in topics
            for partition in topic.partitions
        )


class _Pause:
    """A pause between two attempts: longer after each failure, and never the same for two brokers."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._failures = 0

    async def rest(self) -> None:
        shortest, longest = _RETRY_SECONDS
        seconds = min(longest, shortest * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        await asyncio.sleep(seconds * (0.5 + 0.5 * self._entropy.uniform()))

    def over(self) -> None:
        self._failures = 0


def _nothing() -> None:
    return None
