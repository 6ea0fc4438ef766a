"""A console in front of two real brokers with metrics listeners and TLS: who moves how much, what is slow, what ends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of

from odradek.client import Admin, NewTopic, Producer
from odradek.console.listeners.reading import ListenerTerms
from odradek.console.web.console import ConsoleOptions
from odradek.net.listener_pages import ListenerAddress
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest
from odradek.testing import Cluster

pytestmark = pytest.mark.interop
READ_S = 60.0
RECORD_BYTES = 100_000


def free_ports() -> tuple[int, int]:
    """Returns two ports that follow one another, of which none was in use just now."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port, port + 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, ListenerTerms]]:
    now = datetime.datetime.now(datetime.UTC)
    certificate = tmp_path_factory.mktemp("tls") / "broker.pem"
    request = CertificateRequest(name="broker", hosts=("127.0.0.1",), is_server=True, days=3)
    certificate.write_bytes(CertificateAuthority.new("test", now=now).issue(request, now=now).pem)
    certificate.chmod(0o600)
    ports = free_ports()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "metrics.listeners": f"127.0.0.1:{ports[0]}",
        "odradek.slow.request.ms": "1",
    }
    with Cluster(2, settings) as running:
        with Admin(running.address) as admin:
            admin.create_topics([NewTopic("flights", assignments=[[1], [2]])])
        addresses = tuple(ListenerAddress("127.0.0.1", port) for port in ports)
        yield running, ListenerTerms(addresses=addresses, age_s=0.2)


@pytest.fixture
async def browser(cluster: tuple[Cluster, ListenerTerms]) -> AsyncIterator[Browser]:
    options = ConsoleOptions(bootstrap=cluster[0].address, hosts=HOSTS, listeners=cluster[1])
    async with browser_of(options) as running:
        yield running


async def test_a_busy_client_a_slow_request_and_a_certificate_of_real_brokers(
    browser: Browser, cluster: tuple[Cluster, ListenerTerms]
) -> None:
    ended = asyncio.Event()

    async def crawl() -> None:
        with Producer(cluster[0].address, client_id="crawler", linger_ms=0) as producer:
            while not ended.is_set():
                future = producer.send("flights", b"x" * RECORD_BYTES, partition=1)
                await asyncio.to_thread(future.result, READ_S)

    crawling = asyncio.get_running_loop().create_task(crawl())
    try:
        page = ""
        async with asyncio.timeout(READ_S):
            while "crawler" not in page:
                await asyncio.sleep(0.3)
                page = (await browser.get("/traffic")).text
        assert 'Broker 2 <span class="quiet">' in page, "it is the broker that leads the partition"
        assert "KiB/s" in page or "MiB/s" in page
        alone = await browser.get("/traffic", params={"broker": str(cluster[1].addresses[1])})
        assert "crawler" in alone.text
    finally:
        ended.set()
        await crawling
    slow = (await browser.get("/traffic/slow?search=crawler")).text
    assert "Produce v" in slow
    assert "127.0.0.1:" in slow
    certificates = (await browser.get("/people/certificates")).text
    assert certificates.count("Ends soon") == 2, "one of each broker"
    assert "Broker 1" in certificates
    assert "The certificate of listener SSL ends soon" in (await browser.get("/")).text
