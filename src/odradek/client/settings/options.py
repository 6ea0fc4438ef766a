"""The keyword arguments of the clients, for type checkers and editors.

`settings.py` declares them; a test holds the two against each other.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class SecurityOptions(TypedDict, total=False):
    """Lists the settings that secure connections."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    sasl_jaas_config: str
    java_security_auth_login_config: str
    sasl_kerberos_service_name: str
    sasl_oauthbearer_token: str
    sasl_oauthbearer_token_file: str
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_header_urlencode: bool
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    ssl_truststore_location: str
    ssl_truststore_password: str
    ssl_truststore_type: str
    ssl_truststore_certificates: str
    ssl_keystore_location: str
    ssl_keystore_password: str
    ssl_keystore_type: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_password: str
    ssl_enabled_protocols: str | list[str]
    ssl_cipher_suites: str | list[str]
    ssl_endpoint_identification_algorithm: str
    ssl_secrets_others_may_read: bool


class ClientOptions(SecurityOptions, total=False):
    """Lists the settings of every client."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    response_bytes_max: int


class ProducerOptions(ClientOptions, total=False):
    """Lists the settings of a producer."""

    transactional_id: str
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    acks: int | str
    enable_idempotence: bool
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    metadata_max_idle_ms: int
    delivery_timeout_ms: int
    retries: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_ignore_keys: bool
    enable_metrics_push: bool
    enable_opentelemetry: bool


class ConsumerOptions(ClientOptions, total=False):
    """Lists the settings of a consumer."""

    group_id: str
    group_instance_id: str
    group_protocol: Literal["auto", "consumer", "classic"]
    group_remote_assignor: str
    partition_assignment_strategy: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_max_bytes: int
    max_poll_records: int
    check_crcs: bool
    client_rack: str
    isolation_level: str
    allow_auto_create_topics: bool
    default_api_timeout_ms: int
    enable_metrics_push: bool
    enable_opentelemetry: bool


class ShareConsumerOptions(ClientOptions, total=False):
    """Lists the settings of a share consumer."""

    group_id: str
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    max_poll_records: int
    max_poll_interval_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    enable_metrics_push: bool
    enable_opentelemetry: bool


class AdminOptions(ClientOptions, total=False):
    """Lists the settings of an admin client."""

    default_api_timeout_ms: int
