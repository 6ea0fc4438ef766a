"""Pages of metrics as they are read: in pieces, from anyone, and the rates of clients between two of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.telemetry.exposition import written
from odradek.telemetry.metrics import gauge, labels
from odradek.telemetry.scraped_metrics import (
    LINE_BYTES_MAX,
    MetricsSnapshot,
    ScrapedSamples,
    ScrapeError,
    client_traffic,
    samples,
)

BYTES, REQUESTS, BUSY = "odradek_client_bytes", "odradek_client_requests", "odradek_client_busy_seconds"


def page(**clients: tuple[float, float, float, float]) -> bytes:
    """Returns a page as a broker writes it: bytes in, bytes out, requests and seconds of each client."""
    families = [gauge(name, "?") for name in (BYTES, REQUESTS, BUSY)]
    for client, (bytes_in, bytes_out, requests, busy) in clients.items():
        families[0].add(bytes_in, labels(client_id=client, direction="in"))
        families[0].add(bytes_out, labels(client_id=client, direction="out"))
        families[1].add(requests, labels(client_id=client))
        families[2].add(busy, labels(client_id=client))
    return written(families)


def snapshot(at_s: float, **pages: bytes) -> MetricsSnapshot:
    names = (BYTES, REQUESTS, BUSY)
    return MetricsSnapshot(at_s=at_s, by_broker={name: samples(text, names) for name, text in pages.items()})


@given(st.lists(st.integers(0, 400), max_size=6))
def test_a_page_in_pieces_is_the_same_page(cuts: list[int]) -> None:
    whole = page(loader=(1, 2, 3, 4), reader=(5, 6, 7, 8)).rstrip(b"\n")
    scraped = ScrapedSamples([BYTES, BUSY])
    position = 0
    for cut in sorted(cuts):
        scraped.feed(whole[position:cut])
        position = max(position, cut)
    scraped.feed(whole[position:])
    scraped.end()
    assert scraped.by_name == samples(whole, [BYTES, BUSY])
    assert scraped.by_name[BUSY][("client_id", "reader"),] == 8


def test_metrics_that_are_not_wanted_are_left_out() -> None:
    read = samples(b"other 1\nodradek_client_requests_of_old 2\nodradek_client_requests 3\n", [REQUESTS])
    assert read == {REQUESTS: {(): 3.0}}


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{client_id=",
        b'{client_id="a" 1',
        b'{client_id="a',
        b'{client_id="a"} ',
        b'{client_id="a"} many',
        b'{client_id="a"} nan',
        b'{client_id="a"} +Inf',
        b'{client_id="a"} 1e300',
        b'{client_id="a"}}} x 1',
        b"{" + b"a" * 200_000,
        b'{a="' + b"\\" * 200_000,
        b"{" + b'a="b",' * 30_000,
    ],
)
def test_a_line_that_is_no_sample_is_left_out(line: bytes) -> None:
    read = samples(REQUESTS.encode() + line + b"\n" + page(loader=(1, 1, 9, 1)), [REQUESTS])
    assert list(read[REQUESTS].values()) == [9.0]


def test_a_line_without_an_end_is_refused_before_it_is_kept() -> None:
    scraped = ScrapedSamples([REQUESTS])
    scraped.feed(b"x" * LINE_BYTES_MAX)
    with pytest.raises(ScrapeError, match="this is no page of metrics"):
        scraped.feed(b"x")


def test_series_beyond_the_bound_are_counted_and_not_kept() -> None:
    scraped = ScrapedSamples([REQUESTS], series_max=2)
    scraped.feed(b"".join(b'odradek_client_requests{client_id="%d"} 1\n' % number for number in range(50)))
    scraped.feed(b'odradek_client_requests{client_id="1"} 2\n')
    assert len(scraped.by_name[REQUESTS]) == 2
    assert scraped.by_name[REQUESTS][("client_id", "1"),] == 2.0, "a known series is no further one"
    assert scraped.left_out == 48


def test_rates_are_sums_over_brokers() -> None:
    before = snapshot(10.0, one=page(loader=(100, 0, 10, 1)), two=page(loader=(0, 50, 0, 0)))
    now = snapshot(12.0, one=page(loader=(500, 0, 30, 2)), two=page(loader=(100, 150, 4, 0)))
    [client] = client_traffic(before, now)
    assert client == ("loader", 250.0, 50.0, 12.0, 0.5)
    [at_two] = client_traffic(before, now, ["two"])
    assert (at_two.bytes_in, at_two.bytes_out, at_two.bytes_moved) == (50.0, 50.0, 100.0)


def test_what_a_client_did_before_the_first_scrape_is_no_rate() -> None:
    """A broker shows its ten largest clients: a further one may come into view with the bytes of a day."""
    before = snapshot(0.0, one=page(loader=(100, 0, 1, 1)))
    now = snapshot(1.0, one=page(loader=(200, 0, 2, 1), old=(10**12, 0, 10**6, 100)))
    assert [client.client_id for client in client_traffic(before, now)] == ["loader"]


def test_a_client_that_connected_again_has_no_negative_rate() -> None:
    before, now = (
        snapshot(0.0, one=page(loader=(500, 5, 50, 5))),
        snapshot(1.0, one=page(loader=(1, 1, 1, 0))),
    )
    assert client_traffic(before, now) == [("loader", 0.0, 0.0, 0.0, 0.0)]


def test_a_broker_that_is_gone_or_new_has_no_part_in_the_rates() -> None:
    before = snapshot(0.0, gone=page(a=(1, 1, 1, 1)), stays=page(b=(0, 0, 0, 0)))
    now = snapshot(1.0, new=page(a=(9, 9, 9, 9)), stays=page(b=(3, 0, 0, 0)))
    assert [(client.client_id, client.bytes_in) for client in client_traffic(before, now)] == [("b", 3.0)]
