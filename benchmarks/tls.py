"""`python -m benchmarks.tls`: Odradek beside Apache Kafka with TLS 1.3, in one run, round by round.

Both have one certificate (EC P-256) and choose one cipher, which is checked. Measured are MB/s in and out with the broker's CPU
for them, handshakes a second with the broker's CPU for each, and the memory that 2,000 open connections cost. Clients are
librdkafka for records, and Python's ssl for connections: each of these sends ApiVersions once, so that the broker has seen the
end of the handshake.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import load, report
from benchmarks.cluster.suite import in_turn
from benchmarks.contenders import DURABLE, PAGE_CACHE, PEER, Contender
from benchmarks.measures import PARTITIONS, Running, settle, work_directory
from benchmarks.odradek_node import Node, OdradekNode
from benchmarks.peer import KafkaNode, PeerAbsentError, PeerJars, fetch_peer, free_port
from benchmarks.samples import Better, Sample, findings
from benchmarks.watch import cpu_seconds, memory
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest

VALUE_BYTES: Final = 1024
CLIENT_THREADS: Final = 4
CONNECT_SECONDS_MAX: Final = 60.0
SPARE_DESCRIPTORS: Final = 256
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Version 0, without a client id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    rounds: int
    record_count: int
    handshake_seconds: float
    connection_count: int


FULL: Final = Plan(rounds=7, record_count=500_000, handshake_seconds=5.0, connection_count=2_000)
SMOKE: Final = Plan(rounds=1, record_count=5_000, handshake_seconds=0.5, connection_count=20)
"""Whether it runs at all; its figures mean nothing."""


class Keys:
    """One authority and one certificate, for all brokers of a run."""

    def __init__(self, directory: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        signer = CertificateAuthority.new("benchmark", now=now)
        request = CertificateRequest(name="broker", hosts=["localhost", "127.0.0.1"])
        self.authority, self.certificate = directory / "ca.pem", directory / "broker.pem"
        self.authority.write_bytes(signer.issued.certificate)
        self.certificate.touch(mode=0o600)
        self.certificate.write_bytes(signer.issue(request, now=now).pem)

    def broker_settings(self) -> dict[str, str]:
        """Returns settings by Kafka's names, for both brokers. The listener keeps its name, and speaks TLS."""
        return {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.enabled.protocols": "TLSv1.3",
        }

    def client_settings(self) -> dict[str, str]:
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.authority)}

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def contenders(jars: PeerJars | None, keys: Keys) -> list[Contender]:
    secured = keys.broker_settings()
    page_cache = {**secured, "log.flush.before.ack": "false"}
    ours = [
        Contender(
            key=DURABLE,
            title="Odradek",
            promise="acks=all waits for fsync (Odradek's default)",
            make=lambda directory: OdradekNode(directory=directory, port=free_port(), settings=secured),
        ),
        Contender(
            key=PAGE_CACHE,
            title="Odradek, page cache",
            promise="log.flush.before.ack=false: the page cache is enough, as for Kafka",
            make=lambda directory: OdradekNode(directory=directory, port=free_port(), settings=page_cache),
        ),
    ]
    if jars is None:
        return ours
    peer = Contender(
        key=PEER,
        title=f"Apache Kafka {jars.version}",
        promise="Kafka's default flush: the page cache is enough; default settings, 1 GiB heap",
        make=lambda directory: KafkaNode(jars, directory=directory, settings=secured),
    )
    return [peer, *ours]


# -- connections


def connect(address: tuple[str, int], context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection whose handshake both sides have completed."""
    plain = socket.create_connection(address, timeout=CONNECT_SECONDS_MAX)
    try:
        secured = context.wrap_socket(plain, server_hostname=address[0])
        secured.sendall(_API_VERSIONS)
        (left,) = struct.unpack(">i", _exactly(secured, 4))
        _exactly(secured, left)
    except BaseException:
        plain.close()
        raise
    return secured


def _exactly(source: ssl.SSLSocket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = source.recv(count - len(received))
        if not part:
            raise ConnectionError("the broker closed a connection that it had accepted")
        received += part
    return bytes(received)


def address_of(node: Node) -> tuple[str, int]:
    host, port = node.bootstrap.rsplit(":", 1)
    return host, int(port)


def cipher_of(node: Node, keys: Keys) -> str:
    """What both sides chose, and its version of TLS."""
    with connect(address_of(node), keys.client_context()) as secured:
        chosen = secured.cipher()
        assert chosen is not None
        return f"{secured.version()} {chosen[0]}"


# -- what is measured


def records(running: Running, keys: Keys, plan: Plan, round_number: int) -> Iterator[Sample]:
    """1 KiB values in with acks=all, and out again."""
    node, secured = running.node, keys.client_settings()
    topic = f"tls-{round_number}"
    load.create_topic(node.bootstrap, topic, PARTITIONS, secured)
    try:
        for what, direction in (("produce", "in"), ("consume", "out")):
            settle(plan.record_count * VALUE_BYTES if what == "produce" else 0)
            before = cpu_seconds(node.pid)
            count = {"count": plan.record_count, "value_bytes": VALUE_BYTES}
            if what == "produce":
                moved = load.run_producer(node.bootstrap, topic, acks="all", secured=secured, **count)
            else:
                moved = load.run_consumer(node.bootstrap, topic, secured=secured, **count)
            spent = cpu_seconds(node.pid) - before
            figures: dict[str, tuple[float, Better]] = {
                "MB/s": (moved.payload_bytes / moved.seconds / 1e6, "higher"),
                f"broker CPU s per GB {direction}": (spent / (moved.payload_bytes / 1e9), "lower"),
            }
            yield from running.samples(what, "1 KiB values, TLS 1.3", round_number, figures)
        if load.end_offsets(node.bootstrap, topic, PARTITIONS, secured) != plan.record_count:
            raise RuntimeError(f"{running.contender.title}: not all records are in the log")
    finally:
        load.delete_topic(node.bootstrap, topic, secured)


def handshakes(running: Running, keys: Keys, plan: Plan, round_number: int) -> Iterator[Sample]:
    """Connections one after another from a few threads: full handshakes, none resumed."""
    address, counts = address_of(running.node), [0] * CLIENT_THREADS
    failures: list[str] = []
    ends_at = time.perf_counter() + plan.handshake_seconds

    def work(number: int) -> None:
        context = keys.client_context()
        try:
            while time.perf_counter() < ends_at:
                connect(address, context).close()
                counts[number] += 1
        except OSError as error:
            failures.append(str(error))

    before, started = cpu_seconds(running.node.pid), time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENT_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{running.contender.title}: {failures[0]}")
    seconds, spent = time.perf_counter() - started, cpu_seconds(running.node.pid) - before
    figures: dict[str, tuple[float, Better]] = {
        "handshakes/s": (sum(counts) / seconds, "higher"),
        "broker CPU ms each": (spent / sum(counts) * 1000, "lower"),
    }
    yield from running.samples("handshakes", f"{CLIENT_THREADS} threads of one client", round_number, figures)


def open_connections(contender: Contender, keys: Keys, plan: Plan, round_number: int) -> Iterator[Sample]:
    """A fresh broker after its first few connections, and with many more of them open."""
    with work_directory() as directory, ExitStack() as opened:
        node = contender.make(directory).start()
        opened.callback(node.stop)
        running = Running(contender=contender, node=node)
        context = keys.client_context()
        for _ in range(10):
            connect(address_of(node), context).close()
        before = memory(node.pid)
        for _ in range(plan.connection_count):
            opened.enter_context(connect(address_of(node), context))
        after = memory(node.pid)
        figures: dict[str, tuple[float, Better]] = {
            "RSS kB per connection": (
                (after.rss_bytes - before.rss_bytes) / plan.connection_count / 1e3,
                "lower",
            ),
            "RSS MB in all": (after.rss_bytes / 1e6, "lower"),
        }
        yield from running.samples(
            "memory", f"{plan.connection_count:,} connections, idle", round_number, figures
        )


# -- the run


def run(plan: Plan, jars: PeerJars | None) -> tuple[dict[str, Any], list[Contender], list[Sample]]:
    """Facts about the run, who took part, and every figure."""
    _allow_descriptors(plan.connection_count + SPARE_DESCRIPTORS)
    load_before = os.getloadavg()
    samples: list[Sample] = []
    ciphers: dict[str, str] = {}
    with ExitStack() as stack:
        keys = Keys(stack.enter_context(work_directory()))
        who = contenders(jars, keys)
        with ExitStack() as together:
            running = []
            for contender in who:
                node = contender.make(together.enter_context(work_directory()))
                together.callback(node.stop)
                running.append(Running(contender=contender, node=node.start()))
                ciphers[contender.key] = cipher_of(node, keys)
                for number in (-2, -1):  # the peer's compiler has done most of its work then
                    for _ in records(running[-1], keys, plan, number):
                        pass
            if len(set(ciphers.values())) != 1:
                raise RuntimeError(f"they chose different ciphers: {ciphers}")
            for measure in (records, handshakes):
                for number in range(plan.rounds):
                    for entry in in_turn(running, number):
                        samples += _shown(measure(entry, keys, plan, number))
        for number in range(plan.rounds):
            for contender in in_turn(who, number):
                samples += _shown(open_connections(contender, keys, plan, number))
    facts = {
        "cipher": ciphers[who[0].key],
        "rounds": plan.rounds,
        "records": plan.record_count,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_before": load_before,
        "load_after": os.getloadavg(),
        "machine": report.machine(),
        "openssl": ssl.OPENSSL_VERSION,
    }
    return facts, who, samples


def _allow_descriptors(count: int) -> None:
    """Raises the limit of open files of this process and of the brokers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise RuntimeError(f"this process may open {hard} files, and needs {count}: raise it (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def _shown(samples: Iterator[Sample]) -> Iterator[Sample]:
    for sample in samples:
        words = f"{sample.measure}, {sample.condition}: {sample.value:,.2f} {sample.quantity}"
        print(
            f"round {sample.round_number + 1}  {sample.contender:<18}  {words}", file=sys.stderr, flush=True
        )
        yield sample


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument(
        "--smoke", action="store_true", help="seconds: whether it runs; the figures mean nothing"
    )
    parser.add_argument("--no-peer", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--json", type=Path, help="write facts and figures there")
    options = parser.parse_args(arguments)
    jars = None
    if not options.no_peer:
        try:
            jars = fetch_peer()
        except PeerAbsentError as reason:
            print(f"Apache Kafka is absent: {reason}. Measuring Odradek alone.", file=sys.stderr)
    plan = (
        SMOKE
        if options.smoke
        else Plan(
            rounds=options.rounds,
            record_count=FULL.record_count,
            handshake_seconds=FULL.handshake_seconds,
            connection_count=FULL.connection_count,
        )
    )
    facts, who, samples = run(plan, jars)
    result = findings(samples, PEER)
    print(report.markdown(result, who, PEER))
    print(f"{facts['cipher']}, {psutil.cpu_count()} cores, load {facts['load_before'][0]:.2f} before the run")
    if options.json:
        report.write_json(options.json, facts, samples, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
