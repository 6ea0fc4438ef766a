"""What a client notices while strangers fail to log in: `python -m tests.security.failing_logins --rate 2000 --seconds 20`.

A broker in a process of its own, strangers in another (SCRAM with a proof that is wrong, begun RATE times a second, whether or
not earlier ones are answered), and here a client that logged in and produces with acks=all, twenty times a second. Printed are
the client's waiting times without and with the strangers, and how many logins really failed each second: both need a quiet
machine. The broker answers a failed login after `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kit.cluster import cluster
from tests.kit.wire import Wire

import odradek
from odradek.model.errors import KafkaError
from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest

MECHANISM: Final = "SCRAM-SHA-512"
SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",  # the one listener that the process is given
    "sasl.enabled.mechanisms": MECHANISM,
    "odradek.scram.first.users": f"{MECHANISM}=[name=ann,password=secret]",
}
PAUSE_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 30.0
TOPIC: Final = "beside"
_PROOF: Final = base64.b64encode(bytes(64)).decode()


@dataclass(slots=True, kw_only=True)
class Waiting:
    """The waits of one phase, in milliseconds."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)

    def summary(self) -> dict[str, Any]:
        return {
            "requests": len(self.latencies_ms),
            "p50_ms": self.quantile_ms(0.5),
            "p99_ms": self.quantile_ms(0.99),
            "most_ms": self.quantile_ms(1.0),
            "errors": self.errors,
        }


@dataclass(slots=True, kw_only=True)
class Failures:
    """The outcome of the strangers' logins."""

    begun: int = 0
    refused: int = 0
    let_in: int = 0
    cut_off: int = 0
    """Connections that ended without an answer."""
    seconds: float = 0.0


async def measure(rate: int, seconds: float) -> dict[str, Any]:
    """Two phases of so many seconds: without strangers, and with them."""
    secured = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": MECHANISM,
        "sasl_username": "ann",
        "sasl_password": "secret",
    }
    with (
        tempfile.TemporaryDirectory(prefix="odradek-logins-") as directory,
        cluster(Path(directory), SETTINGS, brokers=1) as fleet,
    ):
        async with odradek.AsyncProducer(fleet.bootstrap, **secured) as producer:  # type: ignore[arg-type]
            await producer.send_and_wait(TOPIC, b"first")
            without = await _produce(producer, asyncio.sleep(seconds))
            strangers = await _strangers(fleet.bootstrap, rate, seconds)
            beside = await _produce(producer, strangers.wait())
            assert strangers.stdout is not None
            failures = json.loads(await strangers.stdout.read())
    return {
        "rate": rate,
        "load": round(os.getloadavg()[0], 1),
        "without": without.summary(),
        "beside": beside.summary(),
        "failures": failures,
    }


async def _strangers(address: str, rate: int, seconds: float) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "tests.security.failing_logins", "--rate", str(rate)]
    command += ["--seconds", str(seconds), "--attack", address]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def _produce(producer: odradek.AsyncProducer, phase: Any) -> Waiting:
    """Produces until the phase is over."""
    waiting = Waiting()
    running = asyncio.ensure_future(phase)
    while not running.done():
        began = time.monotonic()
        try:
            await producer.send_and_wait(TOPIC, b"x")
        except KafkaError as error:
            waiting.errors.append(str(error))
        waiting.latencies_ms.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    await running
    return waiting


async def attack(address: str, rate: int, seconds: float) -> Failures:
    """Logins are begun at their time, however many are under way."""
    host, _, port = address.rpartition(":")
    failures = Failures()
    began = time.monotonic()
    logins = []
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate) + 1 - len(logins)
        logins += [asyncio.create_task(_fail(host, int(port), failures)) for _ in range(due)]
        await asyncio.sleep(0.005)
    await asyncio.gather(*logins)
    failures.begun, failures.seconds = len(logins), round(time.monotonic() - began, 2)
    return failures


async def _fail(host: str, port: int, failures: Failures) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            code = await _log_in(host, port)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        failures.cut_off += 1
        return
    failures.refused += code != 0
    failures.let_in += code == 0


async def _log_in(host: str, port: int) -> int:
    """The error code of the last answer."""
    wire = Wire(*await asyncio.open_connection(host, port))
    try:
        await wire.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        first = await wire.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=stranger"), 2)
        nonce = bytes(first.auth_bytes).decode().partition(",")[0].removeprefix("r=")
        final = f"c=biws,r={nonce},p={_PROOF}".encode()
        return int((await wire.ask(SaslAuthenticateRequest(auth_bytes=final), 2)).error_code)
    finally:
        wire.abandon()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=int, default=2000, help="logins that begin in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--attack", metavar="ADDRESS", help="be the strangers")
    options = parser.parse_args()
    if options.attack:
        made = asyncio.run(attack(options.attack, options.rate, options.seconds))
        sys.stdout.write(json.dumps(asdict(made)))
    else:
        measured = asyncio.run(measure(options.rate, options.seconds))
        sys.stdout.write(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
