"""Settings of the broker itself, of topic creation, of its data directories, and of compaction."""

from __future__ import annotations

from odradek.config.data_directory import default_data_directory
from odradek.config.definition import at_least, between, one_of
from odradek.config.section import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    Boolean,
    Double,
    Int,
    List,
    Long,
    Section,
    String,
    section,
    setting,
)


@section()
class ServerConfig(Section):
    """The identity of this broker, and settings that all of its parts share."""

    # fmt: off
    node_id: Int = setting(default=1, valid=at_least(0), synonyms=("broker.id",), importance=HIGH, meaning=
        "This broker's number, unique in its cluster.")
    broker_rack: String | None = setting(default=None, meaning=
        "The rack of this broker: clients see it.")
    config_providers: List = setting(default=(), importance=LOW, dynamic=CLUSTER_WIDE, as_started=True, meaning=
        "Names of providers of values that are stored elsewhere: ${file:PATH:KEY}, ${directory:PATH:FILE}, ${env:NAME}. "
        "config.providers.NAME.class says which of Kafka's three each is.")
    num_io_threads: Int = setting(default=8, valid=at_least(1), importance=HIGH, dynamic=CLUSTER_WIDE,
        as_started=True, meaning=
        "Threads for what blocks: fsync and reads from a cold disk. They start when they are needed.")
    fetch_max_bytes: Int = setting(default=55 << 20, valid=at_least(1024), meaning=
        "The most bytes that one fetch is answered with.")
    max_incremental_fetch_session_cache_slots: Int = setting(default=1000, valid=at_least(0), meaning=
        "The most fetch sessions held at once.")
    max_request_partition_size_limit: Int = setting(default=2000, valid=at_least(1), meaning=
        "The most partitions that one DescribeTopicPartitions is answered with.")
    unstable_api_versions_enable: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether clients are offered versions of the protocol that Kafka has not declared stable.")
    odradek_loop_held_warn_ms: Int = setting(default=100, valid=at_least(0), meaning=
        "A line in the log says what held the event loop, when that took longer than this, and how often and how "
        "long it was held since the start. 0: no one looks.")
    odradek_event_loop: String = setting(default="auto", valid=one_of("auto", "asyncio", "uvloop"), importance=LOW, meaning=
        "The event loop that the broker runs on: asyncio's, or uvloop's, which costs less for each request. auto: uvloop's "
        "where it is installed.")
    odradek_log_peer_lines_max: Int = setting(default=40, valid=at_least(0), meaning=
        "How many lines at once one address may cause in the log for each event; they grow again by one a second. 0: no limit.")
    # fmt: on


@section()
class MetricsConfig(Section):
    """The address of the metrics listener, and the limits of its content."""

    # fmt: off
    listeners: List = setting("metrics.listeners", default=(), meaning=
        "Where metrics and probes are served over HTTP: HOST:PORT, separated by commas. Without HOST: on the loopback "
        "interface. Port 0: the system chooses. Not set: nowhere.")
    token_file: String = setting("odradek.metrics.token.file", default="", meaning=
        "A file with a token on each line, one of which a request to the metrics listeners must show (Authorization: Bearer "
        "TOKEN, or as the password of Basic). /livez and the status of /readyz need none. Not set: no login.")
    tls_listener: String = setting("odradek.metrics.tls.listener", default="", meaning=
        "The listener whose TLS the metrics listeners use: its certificates, and whether clients must show one. Not set: "
        "plain HTTP.")
    series_max: Int = setting("odradek.metrics.series.max", default=500_000, valid=at_least(1), meaning=
        "The most series that one scrape contains. Those beyond are left out, and counted in odradek_metrics_series_left_out.")
    connections_max: Int = setting("odradek.metrics.connections.max", default=64, valid=at_least(1), meaning=
        "The most connections to the metrics listeners at one time. Others are closed at once.")
    slow_request_ms: Int = setting("odradek.slow.request.ms", default=500, valid=at_least(0), meaning=
        "A request that takes longer is kept among the last slow ones, with the time of each stage. Waits that a client asked "
        "for do not count. 0: none is kept.")
    telemetry_max_bytes: Int = setting("telemetry.max.bytes", default=1 << 20, valid=at_least(1), meaning=
        "The most bytes of metrics that a client may push at one time (KIP-714).")
    client_telemetry_instances_max: Int = setting("odradek.client.telemetry.instances.max", default=16_384,
        valid=at_least(1), meaning=
        "The most clients whose metrics are known (KIP-714). The one that has been quiet for the longest makes room.")
    client_telemetry_series_max: Int = setting("odradek.client.telemetry.series.max", default=20_000,
        valid=at_least(1), meaning=
        "The most series that clients pushed (KIP-714), of all clients together. Those beyond are left out, and counted in "
        "odradek_client_telemetry_left_out_total.")
    # fmt: on


@section()
class OtlpConfig(Section):
    """The OpenTelemetry collector for traces and metrics, and the share that it gets."""

    # fmt: off
    endpoint: String = setting("odradek.otlp.endpoint", default="", meaning=
        "The address of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318. It needs "
        "odradek[otel]. Headers and certificates: OpenTelemetry's environment variables. Not set: nothing is sent.")
    metrics_interval_ms: Int = setting("odradek.otlp.metrics.interval.ms", default=60_000, valid=at_least(0), meaning=
        "How often metrics are sent to odradek.otlp.endpoint. 0: never.")
    metrics_series_max: Int = setting("odradek.otlp.metrics.series.max", default=20_000, valid=at_least(1), meaning=
        "The most series that are sent at one time. Totals come first; those beyond are left out, and counted in "
        "odradek_metrics_series_left_out.")
    traced_records_per_second_max: Int = setting("odradek.otlp.traced.records.per.second.max", default=100,
        valid=at_least(0), meaning=
        "The most records with a sampled trace context in their headers whose way through this broker becomes spans. 0: none.")
    traced_batch_bytes_max: Int = setting("odradek.otlp.traced.batch.bytes.max", default=64 << 10, valid=at_least(0), meaning=
        "The headers of larger batches are not looked at for a trace context. Compressed ones count expanded.")
    # fmt: on


@section()
class TopicCreationConfig(Section):
    """Settings for creating and deleting topics, and defaults for topics whose creator sets none."""

    # fmt: off
    auto_create_topics_enable: Boolean = setting(default=True, importance=HIGH, meaning=
        "Whether a topic is created when a client asks for one that does not exist.")
    default_replication_factor: Int = setting(default=1, valid=at_least(1), meaning=
        "Replicas of a topic whose creator does not say how many.")
    delete_topic_enable: Boolean = setting(default=True, importance=HIGH, meaning=
        "Whether topics may be deleted at all.")
    num_partitions: Int = setting(default=1, valid=at_least(1), meaning=
        "Partitions of a topic whose creator does not say how many.")
    # fmt: on


@section()
class StorageConfig(Section):
    """The data directories, and how often a broker checks what is in them."""

    # fmt: off
    log_dirs: List = setting(default_factory=lambda: (default_data_directory(),), written_default=None,
        synonyms=("log.dir",), importance=HIGH, meaning=
        "The data directories, separated by commas; each partition lives in one of them.")
    log_retention_check_interval_ms: Long = setting(default=300_000, valid=at_least(1), meaning=
        "How often old segments are looked for.")
    log_flush_offset_checkpoint_interval_ms: Int = setting(default=60_000, valid=at_least(0), meaning=
        "How often the offsets known to be on disk are written down, from which recovery starts.")
    producer_id_expiration_ms: Int = setting(default=86_400_000, valid=at_least(1), dynamic=CLUSTER_WIDE, meaning=
        "How long an idempotent producer that sends nothing is remembered.")
    odradek_log_dir_slow_sync_ms: Int = setting(default=1000, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The disk of a data directory is slow when the 99th percentile of its syncs is longer than this: then other "
        "brokers lead its partitions, if they are in sync and their disks are not slow. 0: no disk is slow.")
    odradek_log_dir_slow_after_ms: Int = setting(default=30_000, valid=at_least(1000), dynamic=CLUSTER_WIDE, meaning=
        "So long syncs must take longer than that before a disk counts as slow, and be twice as fast before it no longer does.")
    # fmt: on


@section("log.cleaner.")
class CleanerConfig(Section):
    """Settings for compaction (Kafka's log cleaner)."""

    # fmt: off
    enable: Boolean = setting(default=True, meaning=
        "Whether topics with cleanup.policy=compact are compacted.")
    threads: Int = setting(default=1, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "Logs that are compacted at once.")
    backoff_ms: Long = setting(default=15_000, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "How long compaction rests when no log needs it.")
    dedupe_buffer_size: Long = setting(default=128 << 20, valid=at_least(1024), dynamic=CLUSTER_WIDE, meaning=
        "Memory for the keys of the logs under compaction, 24 bytes each, taken as far as they need it. A log with more keys "
        "is compacted in several goes.")
    io_buffer_size: Int = setting(default=512 << 10, valid=at_least(0), importance=LOW, dynamic=CLUSTER_WIDE, meaning=
        "Memory for what compaction reads and writes; a larger batch takes what it needs.")
    io_buffer_load_factor: Double = setting(default=0.9, valid=between(0, 1), importance=LOW, dynamic=CLUSTER_WIDE,
        meaning=
        "How full the memory for keys may get: the fuller, the more keys in one go, and the slower each.")
    io_max_bytes_per_second: Double = setting(default=1.7976931348623157e308, valid=at_least(1), dynamic=CLUSTER_WIDE,
        meaning=
        "Bytes that compaction reads and writes in a second, all logs together.")
    # fmt: on
