"""Pipelines as metrics, and the listener that shows them."""

from __future__ import annotations

import urllib.request
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.pipelines.document import run_key
from odradek.pipelines.status import Phase, PipelineStatus, RunFailure, pipeline_families

SECONDS = 20
FINE = PipelineStatus(
    name="totals",
    phase=Phase.RUNNING,
    revision=1,
    version=1,
    since_ms=40_000,
    supervisor="me",
    rows_count=12,
    batch_ms=250.0,
)
FAILED = replace(
    FINE,
    phase=Phase.BACKING_OFF,
    version=2,
    failures_in_a_row=3,
    failure=RunFailure(line="no JSON", at_ms=90_000),
    batch_ms=None,
)
STATUSES = [("totals", FINE), (run_key("totals", 2), FAILED)]


def test_the_listener_shows_what_the_statuses_say() -> None:
    with MetricsPage(PageTerms.of("127.0.0.1:0"), lambda: pipeline_families(STATUSES, 100_000)) as page:
        with urllib.request.urlopen(f"http://{page.address}/metrics", timeout=SECONDS) as page_read:
            text = page_read.read().decode()
        with urllib.request.urlopen(f"http://{page.address}/livez", timeout=SECONDS) as page_read:
            assert page_read.read() == b"alive\n"
    samples = {
        (sample.name.removeprefix("odradek_pipeline_"), sample.labels.get("candidate")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["phase", "false"].labels["phase"] == "running"
    assert samples["phase", "true"].labels["phase"] == "backing-off"
    assert samples["phase_seconds", "false"].value == 60.0
    assert samples["failures_in_a_row", "true"].value == 3
    assert samples["seconds_since_failure", "true"].value == 10.0
    assert ("seconds_since_failure", "false") not in samples
    assert samples["batch_seconds", "false"].value == 0.25
    assert ("batch_seconds", "true") not in samples
    assert samples["rows", "false"].value == 12
    assert "process_resident_memory_bytes" in text


def test_pipelines_are_counted_by_phase_also_those_that_none_is_in() -> None:
    total = pipeline_families(STATUSES, 0)[0]
    assert len(total.samples) == len(Phase)
    assert {label: value for label, value in total.samples if value} == {
        'phase="running"': 1,
        'phase="backing-off"': 1,
    }
