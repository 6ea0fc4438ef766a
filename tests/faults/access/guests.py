"""Users whose access comes and goes while faults fall, and users who have none: all of them try to write, all the time.

A guest gets a password and the right to write to one topic; a while later the right is taken away, then the password. It
sends Produce requests to every broker. An answer other than TOPIC_AUTHORIZATION_FAILED means that the broker let it in. Once a
right is gone for `RULES_AGE_S`, no broker lets the guest in, also none that is cut off. In the end its records are read back.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka
from tests.faults.access.clients import MECHANISM, ClientSettings, password
from tests.faults.access.rules import FORBIDDEN, LEDGER, ONLOOKER, RULES_AGE_S, VISITS, RuleKeeper
from tests.faults.client_thread import ClientThread
from tests.faults.writers import read_topic
from tests.kit.requests import produce_request

from odradek.config.listening.listeners import parse_host_port
from odradek.model.errors import ErrorCode
from odradek.net.outgoing_security import LoginCredentials, LoginFailed
from odradek.protocol.messages.data.produce import ProduceResponse
from odradek.records import BatchBuilder, Codec
from odradek.testing.sim.wire_client import WireClient

VISITS_PARTITIONS: Final = 3
_LANES: Final = 4
"""So many guests are there at a time."""
_ANSWER_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = (0.1, 0.4)
_RIGHT_SECONDS: Final = (1.0, 4.0)
_ONLOOKER_PAUSE_SECONDS: Final = 0.5
_AFTER_SECONDS: Final = 2.0
"""So much longer than the bound a guest goes on."""
_LOGINS_MAX: Final = 20
_PRODUCE_VERSION: Final = 9
_END_SECONDS: Final = 300.0
_REFUSED: Final = "TOPIC_AUTHORIZATION_FAILED"


@dataclass(slots=True)
class AccessFindings:
    """What those who may not write achieved: `wrongs` by kind."""

    stays: int = 0
    """Guests whose right was certainly there, and certainly taken away."""
    let_in: int = 0
    refused: int = 0
    refused_records: int = 0
    """The records of the unmodified producer that were refused."""
    longest_s: float = 0.0
    """How long after the answer a right that was taken away still counted somewhere."""
    wrongs: dict[str, list[str]] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        return not any(self.wrongs.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "stays": self.stays,
            "let_in": self.let_in,
            "refused": self.refused,
            "refused_records": self.refused_records,
            "right_counted_for_s": round(self.longest_s, 2),
            "wrongs": {kind: wrongs[:20] for kind, wrongs in self.wrongs.items() if wrongs},
            "troubles": dict(self.troubles),
        }

    def text(self) -> list[str]:
        return [
            f"guests that came and went {self.stays}; let in while they might {self.let_in:,} times;"
            f" refused, with those who never might, {self.refused + self.refused_records:,} times",
            f"a right that was taken away counted for {self.longest_s:.1f} s at most (bound {RULES_AGE_S:g} s)",
            *(
                f"  {kind}: {len(wrongs)}: {', '.join(wrongs[:5])}"
                for kind, wrongs in self.wrongs.items()
                if wrongs
            ),
        ]


class Guests(ClientThread):
    """Guests, one after another in each lane, and the user that is never let in. `brokers`: their addresses."""

    def __init__(self, clients: ClientSettings, brokers: Sequence[str], seed: int) -> None:
        super().__init__("guests")
        self._clients = clients
        self._tls = clients.tls_context()
        self._brokers = [parse_host_port(address) for address in brokers]
        self._random = random.Random(seed)
        self._keeper = RuleKeeper(clients)
        self._taken_s = {FORBIDDEN: -math.inf}
        """Since when a user certainly has no right."""
        self._gone: list[str] = []
        """Guests whose password was taken away."""
        self._let_in = self._refused = 0
        self._longest_s = 0.0
        self._wrongs: dict[str, list[str]] = {
            "let in without a right": [],
            "rules and users that could not be changed": [],
            "logged in without a password": [],
        }
        self._is_done = False
        self._onlooker = Onlooker(clients)

    def start(self) -> None:
        super().start()
        self._onlooker.start()

    def findings(self) -> AccessFindings:
        """Asks a cluster that is whole. Ends the guests and reads what they wrote."""
        hanging = [self.finish(_END_SECONDS), self._onlooker.finish(_END_SECONDS)]
        where = [position for position in hanging if position is not None]
        if not self._is_done and not where:
            where = ["the guests' thread ended early"]
        return AccessFindings(
            stays=len(self._taken_s) - 1,
            let_in=self._let_in,
            refused=self._refused,
            refused_records=self._onlooker.troubles[_REFUSED],
            longest_s=self._longest_s,
            wrongs={
                **self._wrongs,
                "written without a right": self._onlooker.let_in + self._written_late(),
                "did not end": where,
            },
            troubles=self.troubles + self._keeper.troubles + self._onlooker.troubles,
        )

    def _written_late(self) -> list[str]:
        wrongs = []
        for message in read_topic(self._clients, VISITS, VISITS_PARTITIONS, _END_SECONDS):
            user, _, text = message.value().decode().partition(":")
            taken_s = self._taken_s.get(user)
            if taken_s is not None and float(text) > taken_s + RULES_AGE_S:
                wrongs.append(f"{user}, {float(text) - taken_s:.1f} s after")
        return wrongs

    def _run(self) -> None:
        asyncio.run(self._work())
        self._is_done = True

    async def _work(self) -> None:
        forbidden = asyncio.create_task(self._try_everywhere(FORBIDDEN, LEDGER))
        try:
            await asyncio.gather(*(self._lane(number) for number in range(_LANES)))
            await self._log_in_again()
        finally:
            await _ended(forbidden)

    async def _lane(self, lane: int) -> None:
        number = 0
        while not self._stopping.is_set():
            await self._stay(f"guest-{lane}-{number}")
            number += 1
            self.busy_since = time.monotonic()

    async def _stay(self, user: str) -> None:
        keeper = self._keeper
        await self._insist(keeper.add_user, user)
        # Where the answer is lost the rule may still come later, and the guest proves nothing.
        is_certain = await asyncio.to_thread(keeper.allow_to_write, user)
        trying = asyncio.create_task(self._try_everywhere(user, VISITS))
        try:
            await asyncio.sleep(self._random.uniform(*_RIGHT_SECONDS))
            if await self._insist(keeper.remove_rules_of, user) and is_certain:
                self._taken_s[user] = time.monotonic()
                await asyncio.sleep(RULES_AGE_S + _AFTER_SECONDS)
        finally:
            await _ended(trying)
        if await self._insist(keeper.remove_user, user):
            self._gone.append(user)

    async def _insist(self, change: Callable[[str], bool], user: str) -> bool:
        is_done = await asyncio.to_thread(change, user)
        if not is_done:
            self._wrongs["rules and users that could not be changed"].append(f"{change.__name__} {user}")
        return is_done

    async def _try_everywhere(self, user: str, topic: str) -> None:
        """Tries at every broker, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for broker in self._brokers:
                group.create_task(self._try(user, topic, broker))

    async def _try(self, user: str, topic: str, broker: tuple[str, int]) -> None:
        """The connection is kept: access ends on an open one, too."""
        link: WireClient | None = None
        try:
            while True:
                await asyncio.sleep(self._random.uniform(*_PAUSE_SECONDS))
                try:
                    if link is None:
                        link = await self._connect(user, broker)
                    asked_s = time.monotonic()
                    code = await _produce(link, topic, f"{user}:{asked_s:.3f}", self._random)
                except (OSError, LoginFailed) as error:
                    self.troubles[type(error).__name__] += 1
                    if link is not None:
                        link.close()
                    link = None
                else:
                    self._note(user, broker, asked_s, code)
        finally:
            if link is not None:
                link.close()

    async def _connect(self, user: str, broker: tuple[str, int]) -> WireClient:
        login = LoginCredentials(mechanism=MECHANISM, user=user, password=password(user))
        return await WireClient.connect(*broker, api_timeout_s=_ANSWER_SECONDS, login=login, tls=self._tls)

    async def _logs_in(self, user: str, broker: tuple[str, int]) -> bool:
        """OSError when the broker does not answer for long."""
        for attempt in range(_LOGINS_MAX):
            try:
                link = await self._connect(user, broker)
            except LoginFailed:
                return False
            except OSError:
                if attempt == _LOGINS_MAX - 1:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS[1])
            else:
                link.close()
                return True
        return False

    def _note(self, user: str, broker: tuple[str, int], asked_s: float, code: ErrorCode) -> None:
        taken_s = self._taken_s.get(user)
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._refused += taken_s is not None
        elif taken_s is None:
            self._let_in += 1
        elif asked_s > taken_s + RULES_AGE_S:
            late = f"{user} by {broker[0]}:{broker[1]} ({code.name}), {asked_s - taken_s:.1f} s after"
            self._wrongs["let in without a right"].append(late)
        else:
            self._longest_s = max(self._longest_s, asked_s - taken_s)

    async def _log_in_again(self) -> None:
        """All is whole: no broker takes a password that was removed."""
        for user in self._gone[-_LANES:]:
            for broker in self._brokers:
                if await self._logs_in(user, broker):
                    wrong = f"{user} by {broker[0]}:{broker[1]}"
                    self._wrongs["logged in without a password"].append(wrong)


async def _ended(task: asyncio.Task[None]) -> None:
    """Raises what ended the task before it was cancelled."""
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


async def _produce(link: WireClient, topic: str, value: str, rng: random.Random) -> ErrorCode:
    """acks=1: what others have of it does not matter here."""
    builder = BatchBuilder(Codec.NONE)
    builder.append(int(time.time() * 1000), None, value.encode())
    partition = rng.randrange(VISITS_PARTITIONS)
    request = produce_request(topic, builder.build(), partition=partition, acks=1)
    response = await link.call(request, _PRODUCE_VERSION, ProduceResponse)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


class Onlooker(ClientThread):
    """An unmodified producer that may see the ledger's partitions, and not write to them.

    A producer sends nothing more to a topic once a broker has refused it, so there is a new one for each record.
    """

    def __init__(self, clients: ClientSettings) -> None:
        super().__init__(ONLOOKER)
        self.let_in: list[str] = []
        self._settings = {
            **clients.of(ONLOOKER),
            "acks": "all",
            "message.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_ONLOOKER_PAUSE_SECONDS):
            producer = confluent_kafka.Producer(self._settings)
            producer.produce(LEDGER, f"{ONLOOKER}:{number}", on_delivery=self._delivered)
            producer.flush(_END_SECONDS)
            number += 1
            self.busy_since = time.monotonic()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.let_in.append(f"{ONLOOKER}: {message.topic()}-{message.partition()} at {message.offset()}")
        else:
            self.troubles[error.name()] += 1
