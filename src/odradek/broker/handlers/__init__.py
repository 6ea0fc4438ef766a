"""One file per API. `served_apis` is the list of what this broker serves; ApiVersions and the dispatcher read it."""

from __future__ import annotations

from odradek.broker.context import Served
from odradek.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

_MODULES = (
    produce,
    fetch,
    list_offsets,
    metadata,
    find_coordinator,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    incremental_alter_configs,
    describe_cluster,
    describe_topic_partitions,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    offset_commit,
    offset_fetch,
    describe_groups,
    list_groups,
    delete_groups,
    offset_delete,
)


def served_apis() -> list[Served]:
    served: list[Served] = [module.SERVED for module in _MODULES]
    served.append(api_versions.serving(lambda: [one.api_key for one in served]))
    return served
