"""What clients push (KIP-714), from the request to the series that are shown. Used on the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from typing import Final
from uuid import UUID

from odradek.broker.telemetry.instances import ClientInstance, ClientInstances
from odradek.broker.telemetry.series import families_of
from odradek.broker.telemetry.subscriptions import TelemetryClient
from odradek.cluster.image import ResourceConfigs
from odradek.config.server import MetricsConfig
from odradek.model.errors import ErrorCode
from odradek.model.ids import kafka_id
from odradek.net.connection import Connection
from odradek.records.codec import Codec, Limits, decompress
from odradek.runtime.ports import Buffer, Runtime
from odradek.runtime.turns import Turn
from odradek.telemetry.metrics import Family, counter, gauge, labels
from odradek.telemetry.otlp import read_steps

_CLIENT_METRICS: Final = 16
"""The type of subscriptions among the image's `resource_configs`."""
_EXPANDED: Final = Limits(decompressed_bytes_max=4 << 20, ratio_free_bytes=4 << 20)
_TEXT_MAX: Final = 1_001
"""More of a client's own words is not kept. It is longer than what patterns match."""
_UNKNOWN_SOFTWARE: Final = "unknown"
"""Kafka's word for clients that do not say what they are."""


class ClientTelemetry:
    """The metrics of clients on one broker."""

    def __init__(self, runtime: Runtime, config: MetricsConfig) -> None:
        self._runtime: Final = runtime
        self.instances: Final = ClientInstances(
            instances_max=config.client_telemetry_instances_max, series_max=config.client_telemetry_series_max
        )
        self._configs: ResourceConfigs | None = None
        self.push_count = 0
        self._errors: Final[Counter[str]] = Counter()

    def instance(
        self, instance_id: UUID, client_id: str, connection: Connection, configs: ResourceConfigs
    ) -> ClientInstance:
        """Returns the instance of a request, with the subscription that the cluster's newest settings make."""
        if configs is not self._configs:
            self._configs = configs
            self.instances.subscribe(_subscriptions(configs))
        name, version = connection.client_software
        client = TelemetryClient(
            client_instance_id=kafka_id(instance_id),
            client_id=client_id[:_TEXT_MAX],
            client_software_name=name[:_TEXT_MAX] or _UNKNOWN_SOFTWARE,
            client_software_version=version[:_TEXT_MAX] or _UNKNOWN_SOFTWARE,
            client_source_address=connection.peer_host,
            client_source_port=str(connection.peer_port),
        )
        return self.instances.of(instance_id, client, self._runtime.clock.monotonic())

    def refused(self, code: ErrorCode) -> None:
        """Counts a request that is refused."""
        self._errors[code.name] += 1

    async def receive(self, instance: ClientInstance, compression: int, payload: Buffer, turn: Turn) -> None:
        """Takes over a payload. OdradekError for one that cannot be read; nothing of it counts then."""
        self.push_count += 1
        instance.push_count += 1
        if not instance.subscribed.metrics or not payload:
            return
        content: Buffer = bytes(payload)  # the frame may be released before this continues
        if compression:
            content = await self._runtime.offload.run(decompress, Codec(compression), content, _EXPANDED)
        pushed = await turn.drive(read_steps(memoryview(content)))
        wanted = [point for point in pushed.points if instance.subscribed.wants(point.name)]
        await turn.drive(instance.series.steps(wanted))
        instance.series.resource = pushed.resource
        self.instances.room.left_out_count += pushed.left_out

    def families(self) -> Generator[None, None, list[Family]]:
        """Returns the totals, and then what clients pushed, which comes last: it is theirs to choose."""
        now = self._runtime.clock.monotonic()
        present = self.instances.present(now)
        info = gauge("odradek_client_telemetry_info", "A client that pushed metrics; always 1.")
        for instance in present:
            yield
            if instance.push_count:
                info.add(1, _info(instance.client))
        pushed = yield from families_of([instance.series for instance in present])
        return [*self._totals(len(present)), info, *pushed]

    def _totals(self, instance_count: int) -> list[Family]:
        name = "odradek_client_telemetry_"
        room = self.instances.room
        instances = gauge(f"{name}instances", "Clients that asked for a subscription to their metrics.")
        instances.add(instance_count)
        series = gauge(f"{name}series", "Series that clients pushed.")
        series.add(room.count)
        pushes = counter(f"{name}pushes", "Pushes of clients that were accepted.")
        pushes.add(self.push_count)
        left_out = counter(f"{name}left_out", "Points of clients beyond the bounds, or that are no numbers.")
        left_out.add(room.left_out_count)
        errors = counter(f"{name}errors", "Requests of telemetry that were refused, by error.")
        for error, count in sorted(self._errors.items()):
            errors.add(count, labels(error=error))
        return [instances, series, pushes, left_out, errors]

    def described(self) -> Generator[None, None, list[dict[str, object]]]:
        """Returns every client that pushed metrics, with its values, for people and programs."""
        now = self._runtime.clock.monotonic()
        described = []
        for instance in self.instances.present(now):
            yield
            if instance.push_count:
                described.append(_described(instance, now))
        return described


def _subscriptions(configs: ResourceConfigs) -> dict[str, Mapping[str, str]]:
    return {name: settings for (kind, name), settings in configs.items() if kind == _CLIENT_METRICS}


def _info(client: TelemetryClient) -> str:
    return labels(
        client_id=client.client_id,
        client_instance_id=client.client_instance_id,
        software_name=client.client_software_name,
        software_version=client.client_software_version,
        address=client.client_source_address,
    )


def _described(instance: ClientInstance, now: float) -> dict[str, object]:
    client = instance.client
    return {
        "client_id": client.client_id,
        "client_instance_id": client.client_instance_id,
        "software": f"{client.client_software_name} {client.client_software_version}",
        "address": client.client_source_address,
        "port": int(client.client_source_port),
        "interval_ms": instance.subscribed.interval_ms,
        "seconds_since_last": round(now - instance.seen_at, 3),
        "has_ended": instance.is_terminating,
        "pushes": instance.push_count,
        "labels": dict(instance.series.resource),
        "metrics": [
            {"name": value.name, "labels": value.shown_labels, "value": value.value}
            for value in instance.series.values.values()
        ],
    }
