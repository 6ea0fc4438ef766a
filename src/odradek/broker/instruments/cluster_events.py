"""What happens to a broker's cluster and at its doors: elections and logins. Counted on the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from odradek.cluster.image import NO_LEADER, ClusterImage, TopicImage
from odradek.telemetry.metrics import Family, counter, gauge, labels

_STATS: Final = "kafka_controller_controllerstats_"


class ElectionFigures:
    """Counts changes of leaders while this broker is the controller. `now`: monotonic, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.count = 0
        self.unclean_count = 0
        self._failed_over_at: float | None = None
        """The time when a partition last got another leader, or lost its own."""

    def note(self, before: ClusterImage, after: ClusterImage) -> None:
        """Compares two images. Topics that did not change are the same objects in both."""
        topics = before.topics
        if after.topics is not topics:
            for name, topic in after.topics.items():
                known = topics.get(name)
                if known is not topic and known is not None and known.topic_id == topic.topic_id:
                    self._note_topic(known, topic)

    def _note_topic(self, before: TopicImage, after: TopicImage) -> None:
        for old, new in zip(before.partitions, after.partitions, strict=False):
            if old is new or old.leader == new.leader:
                continue
            if old.leader != NO_LEADER:
                self._failed_over_at = self._now()
            if new.leader != NO_LEADER:
                self.count += 1
                self.unclean_count += new.recovering

    def families(self) -> list[Family]:
        elections = counter(f"{_STATS}leaderelections", "Elections that this controller made.")
        elections.add(self.count)
        kafkas = gauge(f"{_STATS}leaderelectionrateandtimems_count", "Elections that this controller made.")
        kafkas.add(self.count)
        unclean = counter(
            f"{_STATS}uncleanleaderelections", "Elections of leaders that may lack acknowledged records."
        )
        unclean.add(self.unclean_count)
        since = gauge(
            "odradek_controller_seconds_since_failover", "Time since a partition last lost its leader."
        )
        if self._failed_over_at is not None:
            since.add(self._now() - self._failed_over_at)
        return [elections, kafkas, unclean, since]


class AttemptedLogin(Protocol):
    """What is counted of a login: `broker.security.login.LoginAttempt`."""

    @property
    def listener(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class LoginFigures:
    """Counts SASL logins by listener, of which there are few."""

    def __init__(self) -> None:
        self.done: Final[Counter[str]] = Counter()
        self.failed: Final[Counter[str]] = Counter()

    def note(self, attempt: AttemptedLogin) -> None:
        (self.done if attempt.reason is None else self.failed)[attempt.listener] += 1

    def families(self, failed_handshakes: Counter[str]) -> list[Family]:
        """Returns the families of logins. `failed_handshakes`: failed TLS handshakes by listener."""
        prefix = "kafka_server_socket_server_metrics_"
        done = counter(f"{prefix}successful_authentication", "Logins of clients.")
        failed = counter(f"{prefix}failed_authentication", "Logins and TLS handshakes that failed.")
        for listener in sorted({*self.done, *self.failed, *failed_handshakes}):
            text = labels(listener=listener)
            done.add(self.done[listener], text)
            failed.add(self.failed[listener] + failed_handshakes[listener], text)
        return [done, failed]
