"""Does the time of a failed login show which users exist, or how much of a password is right? `python -m tests.security.timing`

Pairs of logins that must look the same, and two pairs that do not: a control, where both are the same login, and a planted
leak, which the survey must find. The logins of a pair alternate in a random order. First only the code that decides is timed,
without network and loop: an attacker never measures that well. Then (`--rounds`) a broker in a process of its own is asked over
loopback, with the shortest delay of failed logins that there can be.

Printed are medians with their quartiles, how far apart they are in nanoseconds, the chance that a login of the first kind is
slower than one of the second (0.5: nothing to see), and the p-value of the rank-sum test that says so.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.kit.cluster import cluster
from tests.kit.frames import receive_exactly

from odradek.config.listening.listeners import parse_host_port
from odradek.protocol import Message, RequestHeader, api_of, decode_response, encode_request
from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from odradek.security.sasl.credentials import new_credential
from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, ServerExchange
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramClient, ScramLookup, ScramServer
from odradek.security.sasl.users import CredentialShapes

MECHANISM: Final = "SCRAM-SHA-256"
KNOWN: Final = "alice"
UNKNOWN: Final = "mrtwo"
"""As long as the other."""
PASSWORD: Final = "correct horse battery staple"
NEARLY: Final = PASSWORD[:-1] + "x"
FAR: Final = "x" * len(PASSWORD)
P_MAX: Final = 1e-4
DISTANCE_NS_MIN: Final = 100
"""Of the medians. Over a local network, thousands of measurements show no less (Crosby, Wallach and Riedi, 2009); and two wrong
proofs for one user, which tell nothing, differ here by some ten nanoseconds."""
_ANSWER_SECONDS: Final = 20.0
_WARM_UP: Final = 50

Login = Callable[[], int]
"""One login, and how long it took, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two samples, in nanoseconds."""

    first: Sequence[int]
    second: Sequence[int]

    @property
    def chance(self) -> float:
        """That one drawn from the first is larger than one drawn from the second; ties count half."""
        ordered = sorted(self.second)
        below = sum((bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in self.first)
        return below / (len(self.first) * len(self.second))

    @property
    def p_value(self) -> float:
        """Returns p of the rank-sum test of Mann and Whitney, by its normal approximation: both sides, ties corrected."""
        n1, n2 = len(self.first), len(self.second)
        total = n1 + n2
        ties = 0
        pooled = sorted((*self.first, *self.second))
        start = 0
        while start < total:
            end = bisect_right(pooled, pooled[start])
            ties += (end - start) ** 3 - (end - start)
            start = end
        variance = n1 * n2 / 12 * (total + 1 - ties / (total * (total - 1)))
        if variance <= 0:
            return 1.0
        distance = abs(self.chance - 0.5) * n1 * n2 / variance**0.5
        return 2 * (1 - statistics.NormalDist().cdf(distance))

    @property
    def distance_ns(self) -> float:
        """Returns the distance of the medians, in nanoseconds."""
        return statistics.median(self.first) - statistics.median(self.second)

    @property
    def is_distinguished(self) -> bool:
        return self.p_value < P_MAX and abs(self.distance_ns) >= DISTANCE_NS_MIN

    def row(self, name: str) -> str:
        medians = "  ".join(f"{_spread(sample):>24}" for sample in (self.first, self.second))
        verdict = "distinguished" if self.is_distinguished else "alike"
        return f"{name:44} {medians}  {self.distance_ns:7.0f}  {self.chance:6.3f}  {self.p_value:8.1e}  {verdict}"


def _spread(sample: Sequence[int]) -> str:
    """Median and quartiles, in microseconds."""
    low, middle, high = (value / 1000 for value in statistics.quantiles(sample, n=4))
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def compare(first: Login, second: Login, rounds: int, seed: int) -> Comparison:
    """Each is run so many times, in an order that is drawn."""
    order = [0, 1] * rounds
    random.Random(seed).shuffle(order)
    samples: tuple[list[int], list[int]] = ([], [])
    logins = (first, second)
    for login in logins * _WARM_UP:
        login()
    gc.collect()
    gc.disable()
    try:
        for which in order:
            samples[which].append(logins[which]())
    finally:
        gc.enable()
    return Comparison(first=samples[0], second=samples[1])


# -- the code that decides, alone


def _timed(make: Callable[[], ServerExchange], responses: Sequence[bytes]) -> Login:
    """The last response is timed; it is refused, or it is the first."""

    def login() -> int:
        server = make()
        for response in responses[:-1]:
            server.step(response)
        last = responses[-1]
        began = time.perf_counter_ns()
        try:
            server.step(last)
        except LoginRefused:
            pass
        return time.perf_counter_ns() - began

    return login


class LeakyServer:
    """The planted leak: it compares letter by letter, and only for users that exist."""

    def step(self, response: bytes) -> ExchangeStep:
        _, user, password = response.decode().split("\0")
        if user != KNOWN:
            raise LoginRefused("no such user")
        for right, guess in zip(PASSWORD, password, strict=True):
            if right != guess:
                raise LoginRefused("a wrong password")
        return ExchangeStep()


def plain_message(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def _scram_server() -> ScramServer:
    return ScramServer(MECHANISM, _LOOKUP, "server")


_CREDENTIAL: Final = new_credential(MECHANISM, PASSWORD, b"salt" * 4)
_LOOKUP: Final = ScramLookup(
    credential={KNOWN: _CREDENTIAL}.get,
    token=lambda token_id: None,
    secret=b"of the cluster",
    shapes=CredentialShapes([_CREDENTIAL]),
)


def _scram_messages(user: str, password: str) -> list[bytes]:
    client = ScramClient(MECHANISM, user, password, "nonce")
    first = client.step(b"") or b""
    return [first, client.step(_scram_server().step(first).challenge) or b""]


def _nearly_right() -> list[bytes]:
    """A proof of which all but the last byte is right."""
    first, last = _scram_messages(KNOWN, PASSWORD)
    return [first, last[:-4] + (b"AAA=" if last[-4:] != b"AAA=" else b"BBA=")]


def decisions() -> Mapping[str, tuple[Login, Login]]:
    """Pairs of logins, by what distinguishes them."""

    def plain(user: str, password: str, make: Callable[[], ServerExchange] | None = None) -> Login:
        return _timed(make or (lambda: _PLAIN), [plain_message(user, password)])

    known, unknown = _scram_messages(KNOWN, FAR), _scram_messages(UNKNOWN, FAR)
    return {
        "control: the same login": (plain(KNOWN, FAR), plain(KNOWN, FAR)),
        "planted leak: known user, unknown": (
            plain(KNOWN, FAR, LeakyServer),
            plain(UNKNOWN, FAR, LeakyServer),
        ),
        "planted leak: password nearly right, far": (
            plain(KNOWN, NEARLY, LeakyServer),
            plain(KNOWN, FAR, LeakyServer),
        ),
        "PLAIN: known user, unknown": (plain(KNOWN, FAR), plain(UNKNOWN, FAR)),
        "PLAIN: password nearly right, far": (plain(KNOWN, NEARLY), plain(KNOWN, FAR)),
        "control: two wrong proofs by SCRAM": (
            _timed(_scram_server, _scram_messages(KNOWN, FAR[::-1] + "y")),
            _timed(_scram_server, known),
        ),
        "SCRAM, first message: known user, unknown": (
            _timed(_scram_server, known[:1]),
            _timed(_scram_server, unknown[:1]),
        ),
        "SCRAM, proof: known user, unknown": (_timed(_scram_server, known), _timed(_scram_server, unknown)),
        "SCRAM, proof: nearly right, far": (
            _timed(_scram_server, _nearly_right()),
            _timed(_scram_server, known),
        ),
    }


_PLAIN: Final = PlainServer({KNOWN: PASSWORD})


# -- over loopback


SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",  # the one listener that the process is given
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "odradek.sasl.plain.without.tls.enable": "true",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'x.PlainLoginModule required user_{KNOWN}="{PASSWORD}";'
    ),
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.jaas.config": f'x.ScramLoginModule required username="{KNOWN}" password="{PASSWORD}";',
    "odradek.scram.first.users": f"{MECHANISM}=[name={KNOWN},password={PASSWORD}]",
    "connection.failed.authentication.delay.ms": "0",
}


class BrokerLogins:
    """Logins at a broker; the time from the last request to its answer."""

    def __init__(self, address: str) -> None:
        self._place = parse_host_port(address)

    def plain(self, user: str, password: str) -> Login:
        return lambda: self._log_in("PLAIN", [plain_message(user, password)])

    def scram_first(self, user: str) -> Login:
        return lambda: self._log_in(MECHANISM, [f"n,,n={user},r=nonce".encode()])

    def scram_proof(self, user: str, password: str) -> Login:
        def login() -> int:
            return self._log_in(MECHANISM, [], ScramClient(MECHANISM, user, password, "nonce"))

        return login

    def pairs(self) -> Mapping[str, tuple[Login, Login]]:
        return {
            "broker, control: the same login": (self.plain(KNOWN, FAR), self.plain(KNOWN, FAR)),
            "broker, PLAIN: known user, unknown": (self.plain(KNOWN, FAR), self.plain(UNKNOWN, FAR)),
            "broker, PLAIN: password nearly right, far": (self.plain(KNOWN, NEARLY), self.plain(KNOWN, FAR)),
            "broker, SCRAM, first: known user, unknown": (self.scram_first(KNOWN), self.scram_first(UNKNOWN)),
            "broker, SCRAM, proof: known user, unknown": (
                self.scram_proof(KNOWN, FAR),
                self.scram_proof(UNKNOWN, FAR),
            ),
        }

    def _log_in(self, mechanism: str, tokens: Sequence[bytes], client: ScramClient | None = None) -> int:
        with socket.create_connection(self._place, _ANSWER_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _ask(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
            if client is not None:
                first = client.step(b"") or b""
                challenge, _ = _ask(connection, SaslAuthenticateRequest(auth_bytes=first), 2)
                tokens = [client.step(bytes(challenge.auth_bytes)) or b""]
            return _ask(connection, SaslAuthenticateRequest(auth_bytes=tokens[-1]), 2)[1]


def _ask(connection: socket.socket, request: Message, version: int) -> tuple[Any, int]:
    """The answer, and after how many nanoseconds it came."""
    key = api_of(request).key
    frame = encode_request(RequestHeader(key, version, 1, "survey"), request)
    began = time.perf_counter_ns()
    connection.sendall(frame)
    head = receive_exactly(connection, 4)
    ended = time.perf_counter_ns()
    (size,) = struct.unpack(">i", head)
    return decode_response(key, version, receive_exactly(connection, size))[1], ended - began


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.security.timing", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--decisions", type=int, default=20_000, help="logins of each kind, without a broker (20000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=2_000, help="logins of each kind, at a broker (2000; 0: none)"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(
        f"load {os.getloadavg()[0]:.1f}; medians and quartiles in microseconds, distance in nanoseconds, chance, p\n"
    )
    wrong = 0
    for name, pair in decisions().items():
        wrong += _report(name, compare(*pair, options.decisions, options.seed))
    if options.rounds:
        with (
            tempfile.TemporaryDirectory(prefix="odradek-timing-") as directory,
            cluster(Path(directory), SETTINGS, brokers=1) as fleet,
        ):
            for name, pair in BrokerLogins(fleet.bootstrap).pairs().items():
                wrong += _report(name, compare(*pair, options.rounds, options.seed))
    return 1 if wrong else 0


def _report(name: str, comparison: Comparison) -> bool:
    """Whether it is not as it should be."""
    sys.stdout.write(comparison.row(name) + "\n")
    sys.stdout.flush()
    return comparison.is_distinguished != name.startswith("planted")


if __name__ == "__main__":
    sys.exit(main())
