"""What an attack is, and the stage that it is played on: real brokers, a bystander, and what the attack finds wrong."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.hostile import heap
from tests.hostile.figures import MEBIBYTE, Figures, Watched
from tests.hostile.latencies import Bystander, by_phase
from tests.hostile.values import Known
from tests.kit.wire import BlockingWire, parse_address

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.protocol.api import APIS
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

BYSTANDER_TOPIC: Final = "bystander"
TARGET_TOPIC: Final = "target"
TARGET_PARTITIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of an attack is tried: all of it, or as much as belongs in `make test`."""

    is_full: bool
    seed: int
    seconds: float
    """An attack that can go on for ever stops by then."""
    calm_seconds: float = 60.0
    """Until then the bystander must be answered once more after an attack."""
    frame_count: int = 1_000_000
    """Generated frames."""
    frame_seconds: float = 3600.0
    """Generated frames end by then, though fewer were sent."""
    keep: Path | None = None
    """A directory for the brokers' data and logs, kept; they go away without one."""
    first_batch: int = 0
    """Of generated frames: to play one again."""

    def count(self, full: int, short: int) -> int:
        return full if self.is_full else short


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`claim` is what must hold, in one line. Bounds are of any one broker, beyond what it had before."""

    name: str
    claim: str
    run: Callable[[Stage], None]
    brokers: tuple[int, ...] = (1,)
    """With how many brokers it is tried: each is a run of its own."""
    settings: Mapping[str, str] = field(default_factory=dict)
    grown_bytes_max: int = 256 * MEBIBYTE
    """Of memory, while it goes on."""
    kept_bytes_max: int = 128 * MEBIBYTE
    """Of memory, some seconds after it is over; without what Python's allocator holds for later (`heap.py`)."""
    log_bytes_max: int = MEBIBYTE
    descriptors: int | None = None
    """The limit of each broker, soft and hard."""
    log_directories: tuple[str, ...] = ()
    """Of a lone broker, below its home; one of the usual kind without them."""
    descriptors_kept_max: int = 24
    """More than before, some seconds after it is over: segments that rolled, peers that came."""
    is_bystander_judged: bool = True
    """Whether the bystander's waiting says anything: not where brokers are stopped on purpose."""
    prepare: Callable[[Stage], None] | None = None
    """What has to be there beforehand; not measured."""
    directory_of: Callable[[Path], Any] | None = None
    """A context manager that makes the brokers' directory something special."""
    absent: Callable[[], str | None] | None = None
    """Why it cannot be tried here, if it cannot."""
    brokers_in_short: tuple[int, ...] = ()
    """With how many brokers `make test` tries it, too."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """One run of one attack. `wrongs` decides its verdict, `notes` are shown beside it."""

    attack: Attack
    scale: Scale
    fleet: Fleet
    bystander: Bystander
    tell: Callable[[str], None]
    wrongs: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    victim: BrokerProcess = field(init=False)
    """The broker that is attacked: the controller, where there are several."""
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.scale.seed} {self.attack.name}")
        self.victim = self.fleet.brokers[0]
        if len(self.fleet.brokers) > 1:
            with self.connect() as peer:
                controller_id = peer.ask(MetadataRequest(topics=[]), 8).controller_id
            self.victim = self.fleet.broker(controller_id)

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.victim.address)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Returns the addresses of all brokers that are alive."""
        return [parse_address(broker.address) for broker in self.fleet.brokers if broker.is_alive]

    def connect(self, **options: Any) -> BlockingWire:
        return BlockingWire(self.address, **options)

    def must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrongs.append(otherwise)

    @property
    def home(self) -> Path:
        """Returns the directory of everything that belongs to this run."""
        return self.victim.terms.directory.parent

    def watched(self) -> list[Watched]:
        """The brokers that are alive, the victim first."""
        ordered = sorted(self.fleet.brokers, key=lambda broker: broker is not self.victim)
        return [
            Watched(pid=broker.pid, port=parse_address(broker.address)[1], log_file=log_of(broker))
            for broker in ordered
            if broker.pid is not None
        ]

    def figures(self) -> Figures:
        """The largest of any broker."""
        most = Figures()
        for watched in self.watched():
            most = most.most(watched.read())
        return most

    def weigh(self) -> Figures:
        """The same, and each broker is asked how much of its memory holds nothing."""
        most = Figures()
        for watched in self.watched():
            figures = watched.read()
            unused_bytes = heap.ask(watched.pid, self.home)
            most = most.most(replace(figures, held_bytes=figures.rss_bytes - unused_bytes))
        return most

    def create_topic(self, name: str, *, partitions: int = 1, copies: int = -1, **settings: str) -> None:
        """Settings have underscores for dots. AssertionError when it is refused."""
        create_topic(self.connect(), name, partitions=partitions, copies=copies, settings=settings)

    def worst_bystander_ms(self, began: float, ended: float) -> float:
        """Returns the longest wait of a request that was under way between the two moments."""
        phases = by_phase(self.bystander.answers_since(0.0), attacked=began, calm=ended)
        return max((answered.latency_ms for answered in phases["during"]), default=0.0)


def create_topic(
    peer: BlockingWire, name: str, *, partitions: int, copies: int, settings: Mapping[str, str] | None = None
) -> None:
    """Closes the connection. AssertionError when it is refused."""
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in (settings or {}).items()
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=copies, configs=configs)
    with peer:
        created = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0]
    assert created.error_code == 0, f"topic {name}: error {created.error_code}: {created.error_message}"


def known_to(peer: BlockingWire) -> Known:
    """Returns what the brokers have, for generated requests to refer to. Closes the connection."""
    topics = [MetadataRequestTopic(name=TARGET_TOPIC)]
    with peer:
        metadata = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        served = {api.api_key for api in peer.ask(ApiVersionsRequest(), 0).api_keys}
    between_brokers = {api.key for api in APIS.values() if api.internal}
    return Known(topic_id=metadata.topics[0].topic_id, api_keys=frozenset(served | between_brokers))


def log_of(broker: BrokerProcess) -> Path:
    assert broker.terms.log_file is not None
    return broker.terms.log_file


def in_parallel(jobs: list[Callable[[], None]], timeout_s: float) -> int:
    """Run each in a thread of its own; how many have not ended in time. An error of one is raised here."""
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - the root of a thread: raised again below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    if failures:
        raise failures[0]
    return sum(thread.is_alive() for thread in threads)
