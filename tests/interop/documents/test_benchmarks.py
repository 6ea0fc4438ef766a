"""The benchmarks themselves: that they run, and that their arithmetic is right."""

from __future__ import annotations

import json

import pytest
from benchmarks import run, tls
from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import RefusedError
from benchmarks.cluster.plan import SMOKE, Up
from benchmarks.cluster.suite import ClusterSuite, in_turn
from benchmarks.odradek_node import OdradekNode
from benchmarks.samples import Sample, findings
from benchmarks.scale import costs, model
from benchmarks.sql import first_rows

from odradek.sql.applying import apply
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import SqlCatalog


def _sample(contender, round_number, value, better="higher"):
    return Sample(
        measure="produce",
        condition="100 B",
        quantity="MB/s",
        better=better,
        contender=contender,
        round_number=round_number,
        value=value,
    )


def _ours(better="higher", *, kafka, odradek):
    samples = [_sample("kafka", number, value, better) for number, value in enumerate(kafka)]
    samples += [_sample("odradek", number, value, better) for number, value in enumerate(odradek)]
    peer, ours = findings(samples, "kafka")
    assert peer.ratio is None
    return ours


def test_ratios_are_taken_round_by_round():
    ratio = _ours(kafka=[10, 20, 40], odradek=[20, 30, 44]).ratio
    assert (ratio.lowest, ratio.median, ratio.highest) == (1.1, 1.5, 2.0)


@pytest.mark.parametrize(
    ("better", "odradek", "verdict"),
    [
        ("higher", [11, 12], "better"),
        ("higher", [8, 9], "worse"),
        ("higher", [9, 11], "level"),
        ("lower", [8, 9], "better"),
        ("lower", [11, 12], "worse"),
    ],
)
def test_a_verdict_needs_all_rounds_to_agree(better, odradek, verdict):
    assert _ours(better, kafka=[10, 10], odradek=odradek).verdict == verdict


def test_without_the_peer_there_are_figures_and_no_ratios():
    (ours,) = findings([_sample("odradek", 0, 5.0)], "kafka")
    assert (ours.values.median, ours.ratio, ours.verdict) == (5.0, None, "")


def test_the_benchmark_runs_and_writes_its_results(tmp_path, server_kind, capsys):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    flags = ["--smoke", "--no-peer", "--contender", "odradek", "--out", str(tmp_path)]
    assert run.main([*flags, "--only", "throughput", "--only", "latency", "--only", "start"]) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert {entry["measure"] for entry in document["samples"]} >= {"produce", "consume", "acknowledgement"}
    assert all(entry["value"] >= 0 for entry in document["samples"])
    assert "| produce | 100 B, acks=all | MB/s |" in (tmp_path / "results.md").read_text()
    assert "produce" in capsys.readouterr().out


def test_the_rows_of_requests_and_recovery_run(tmp_path, server_kind, capsys):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    flags = ["--smoke", "--no-peer", "--contender", "odradek", "--out", str(tmp_path)]
    for name in ("small", "commits", "requests", "recovery"):
        flags += ["--only", name]
    assert run.main(flags) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    values = {(entry["measure"], entry["quantity"]): entry["value"] for entry in document["samples"]}
    assert values["small requests", "requests/s"] > 0
    assert values["small requests", "broker CPU s per 10,000 requests"] > 0
    assert values["cost of a request", "broker CPU s per 10,000 requests"] > 0
    assert values["recovery after kill -9", "s"] > 0
    assert values["offset commits", "commits/s"] > 0
    assert "no row has a ratio in both" in capsys.readouterr().out
    assert "no row has a ratio in both" in (tmp_path / "moved.md").read_text()


def test_a_refused_request_is_an_error_and_no_figure(server_kind):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    with OdradekNode(settings={"auto.create.topics.enable": "false"}) as node:
        frames = [plain_requests.produce("absent", [0, 1], plain_requests.batch(10), "all")]
        refused = pytest.raises(RefusedError, match="with error 3")
        with plain_requests.connected(node.bootstrap, 2) as sockets, refused:
            plain_requests.drive(sockets, frames, in_flight=2, count=4)
        with pytest.raises(RefusedError, match="with error 3"):
            plain_requests.until_accepted(node.bootstrap, [plain_requests.fetch("absent", 0)], seconds_max=0)


def test_the_costs_of_the_model_are_measured(server_kind, capsys):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    assert costs.main(["--smoke"]) == 0
    document = json.loads(capsys.readouterr().out)
    read = model.costs_from(document)
    assert min(read.produce_leader, read.fetch, read.heartbeat, read.offset_commit, read.broker_bytes) > 0
    stored = json.loads((model.HERE / "constants.json").read_text())
    assert document["costs"].keys() == stored["costs"].keys()


def test_the_benchmark_of_tls_runs(tmp_path, server_kind):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    assert tls.main(["--smoke", "--no-peer", "--json", str(tmp_path / "tls.json")]) == 0
    document = json.loads((tmp_path / "tls.json").read_text())
    assert document["cipher"].startswith("TLSv1.3 TLS_")
    measured = {(entry["measure"], entry["quantity"]) for entry in document["samples"]}
    assert {("handshakes", "handshakes/s"), ("memory", "RSS kB per connection")} < measured


def test_the_cluster_suite_runs_and_says_what_failed(tmp_path, server_kind):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    flags = ["--smoke", "--no-peer", "--contender", "odradek", "--out", str(tmp_path)]
    assert run.main([*flags, "--only", "cluster", "--cluster-part", "failures"]) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["cluster"]["failed"] == []
    sample_values = {(entry["measure"], entry["quantity"]): entry["value"] for entry in document["samples"]}
    assert sample_values["3 brokers: kill -9 to the next acknowledgement", "ms"] > 0
    assert sample_values["3 brokers: restart of a broker to full ISR", "s"] > 0


def test_topics_are_made_until_each_replica_is_there(tmp_path, server_kind):
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")
    flags = ["--smoke", "--no-peer", "--contender", "odradek", "--out", str(tmp_path)]
    assert run.main([*flags, "--only", "cluster", "--cluster-part", "many"]) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["cluster"]["failed"] == []
    seconds = [
        entry["value"]
        for entry in document["samples"]
        if (entry["measure"], entry["quantity"]) == ("3 brokers: topics made", "s")
    ]
    assert len(seconds) == 4
    assert seconds == sorted(seconds)


def test_each_round_of_the_cluster_suite_begins_with_another_contender():
    assert [in_turn("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]


def test_a_case_that_fails_is_reported_and_costs_no_other_figure(monkeypatch):
    noted = []
    revived = []
    monkeypatch.setattr("benchmarks.cluster.failing.revive", revived.append)
    suite = ClusterSuite([], {}, SMOKE, _Noted(noted))
    up_claim = Up(key="odradek", title="Odradek", cluster="the cluster")

    def case(up, number):
        yield from up.samples("produce", "1 KiB", number, {"MB/s": (1.0, "higher")})
        raise TimeoutError("catching up took longer than 90 s")

    assert [sample.value for sample in suite.samples_of(up_claim, case, 0, 1)] == [1.0]
    assert suite.failed == ["round 1, Odradek: catching up took longer than 90 s"]
    assert revived == ["the cluster"]


class _Noted:
    def __init__(self, noted):
        self._noted = noted

    def say(self, text):
        self._noted.append(text)

    def show(self, up, rounds):
        self._noted.append(up.measure)


def test_first_rows_have_the_ratio_of_each_round_and_their_spread():
    figures = {"odradek": (1.0, 3.0, 2.0), "spark": (2.0, 3.0, 8.0)}
    samples = [
        {"side": side, "shape": "a join", "round": number, "wall_s": value, "cpu_s": 2 * value}
        for side, values in figures.items()
        for number, value in enumerate(values)
    ]
    row = "| a join | 2.00 | 3.00 | 0.50 (0.25 to 1.00) | 4.00 | 6.00 | 0.50 (0.25 to 1.00) |"
    assert first_rows.markdown_table("warm", samples)[-1] == row


@pytest.mark.parametrize("shape", first_rows.shapes(), ids=lambda shape: shape.name)
def test_the_server_takes_each_statement_whose_first_row_is_measured(shape):
    catalog = SqlCatalog()
    columns = ", ".join(f"c{number} BIGINT" for number in range(shape.width))
    statements = [
        f"CREATE STREAM {source} (k STRING KEY, {columns}) WITH (KAFKA_TOPIC='{source}', VALUE_FORMAT='JSON');"
        for source in shape.sources
    ]
    statements.append(f"CREATE {shape.kind} measured AS {shape.ksql} EMIT CHANGES;")
    for number, statement in enumerate(statements):
        catalog = apply(catalog, parse_one(statement), number).catalog
    assert "MEASURED" in catalog.sources
