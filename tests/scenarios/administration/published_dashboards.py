"""Which metrics published Grafana dashboards for Kafka ask for, with the labels that their panels use.

Metrics of the JVM, of containers and of Kubernetes are left out: a broker does not emit them. `FetchFollower` needs a second
broker, and `namespace`, `pod` and the like come from Prometheus.
"""

from __future__ import annotations

from typing import Final

Asked = dict[str, dict[str, str]]
"""A metric's name, and the labels it must have: with a value, or with any where that is empty."""

_TOPIC: Final = {"topic": ""}
_BEAN: Final = "kafka_server_brokertopicmetrics_"
_STAGES: Final = (
    "requestqueuetimems",
    "localtimems",
    "remotetimems",
    "responsequeuetimems",
    "responsesendtimems",
)

STRIMZI_KAFKA: Final[Asked] = {
    "kafka_server_replicamanager_leadercount": {},
    "kafka_controller_kafkacontroller_activecontrollercount": {},
    "kafka_controller_controllerstats_uncleanleaderelections_total": {},
    "kafka_server_replicamanager_partitioncount": {},
    "kafka_server_replicamanager_underreplicatedpartitions": {},
    "kafka_cluster_partition_atminisr": _TOPIC,
    "kafka_cluster_partition_underminisr": _TOPIC,
    "kafka_controller_kafkacontroller_offlinepartitionscount": {},
    "process_open_fds": {},
    f"{_BEAN}bytesin_total": _TOPIC,
    f"{_BEAN}bytesout_total": _TOPIC,
    f"{_BEAN}messagesin_total": _TOPIC,
    f"{_BEAN}totalproducerequests_total": _TOPIC,
    f"{_BEAN}failedproducerequests_total": _TOPIC,
    f"{_BEAN}totalfetchrequests_total": _TOPIC,
    f"{_BEAN}failedfetchrequests_total": _TOPIC,
    "kafka_network_socketserver_networkprocessoravgidle_percent": {},
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": {},
    "kafka_server_kafkaserver_linux_disk_write_bytes": {},
    "kafka_server_kafkaserver_linux_disk_read_bytes": {},
    "kafka_server_socket_server_metrics_connection_count": {"listener": ""},
    "kafka_log_log_size": {"topic": "", "partition": ""},
    "kafka_cluster_partition_replicascount": _TOPIC,
}
"""strimzi/strimzi-kafka-operator, strimzi-kafka.json."""

STRIMZI_KAFKA_EXPORTER: Final[Asked] = {
    "kafka_topic_partitions": _TOPIC,
    "kafka_topic_partition_replicas": _TOPIC,
    "kafka_topic_partition_in_sync_replica": _TOPIC,
    "kafka_topic_partition_under_replicated_partition": _TOPIC,
    "kafka_cluster_partition_atminisr": _TOPIC,
    "kafka_cluster_partition_underminisr": _TOPIC,
    "kafka_topic_partition_leader_is_preferred": _TOPIC,
    "kafka_topic_partition_current_offset": {"topic": "", "partition": ""},
    "kafka_consumergroup_current_offset": {"consumergroup": "", "topic": "", "partition": ""},
    "kafka_consumergroup_lag": {"consumergroup": "", "topic": "", "partition": ""},
    "kafka_topic_partition_oldest_offset": {"topic": "", "partition": ""},
    "kafka_broker_info": {},
}
"""strimzi/strimzi-kafka-operator, strimzi-kafka-exporter.json, which is based on Grafana's 7589."""

KAFKA_EXPORTER_OVERVIEW: Final[Asked] = {
    "kafka_topic_partition_current_offset": _TOPIC,
    "kafka_consumergroup_lag": {"consumergroup": "", "topic": ""},
    "kafka_topic_partitions": _TOPIC,
}
"""danielqsj/kafka_exporter, kafka_exporter_overview.json, which is based on Grafana's 721."""

GRAFANA_KAFKA: Final[Asked] = {
    "kafka_controller_kafkacontroller_activecontrollercount": {},
    "kafka_server_kafkaserver_brokerstate": {},
    f"{_BEAN}messagesin_total": {},
    f"{_BEAN}bytesin_total": {},
    f"{_BEAN}bytesout_total": {},
    "kafka_server_replicamanager_isrshrinks_total": {},
    "kafka_server_replicamanager_isrexpands_total": {},
    "kafka_server_replicamanager_partitioncount": {},
    "kafka_controller_kafkacontroller_offlinepartitionscount": {},
    "kafka_cluster_partition_underreplicated": {},
    "kafka_cluster_partition_underminisr": {},
    "kafka_controller_controllerstats_uncleanleaderelections_total": {},
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": {},
    **{
        f"kafka_network_requestmetrics_{stage}": {"request": "Produce", "quantile": "0.95"}
        for stage in _STAGES
    },
    "kafka_topic_partition_current_offset": {"topic": "", "partition": ""},
    f"{_BEAN}bytesinpersec_count": _TOPIC,
    f"{_BEAN}bytesoutpersec_count": _TOPIC,
    "kafka_log_log_logstartoffset": {"topic": "", "partition": ""},
    "kafka_log_log_logendoffset": {"topic": "", "partition": ""},
    "kafka_log_log_size": {"topic": "", "partition": ""},
    "kafka_consumergroup_lag": {"consumergroup": "", "topic": ""},
    "kafka_consumergroup_current_offset": {"consumergroup": "", "topic": ""},
}
"""grafana/jsonnet-libs, kafka-observ-lib, as it asks a JMX exporter and kafka_exporter (`prometheus`)."""

PUBLISHED: Final = {
    "strimzi-kafka": STRIMZI_KAFKA,
    "strimzi-kafka-exporter": STRIMZI_KAFKA_EXPORTER,
    "kafka-exporter-overview": KAFKA_EXPORTER_OVERVIEW,
    "grafana-kafka": GRAFANA_KAFKA,
}
KNOWN_MISSING: Final = frozenset({f"{_BEAN}bytesinpersec_count", f"{_BEAN}bytesoutpersec_count"})
"""Other spellings of what is there as `…bytesin_total` and `…bytesout_total`."""
SHARE_MIN: Final = 0.95
