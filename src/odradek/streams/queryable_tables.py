"""Interactive queries: the tables of a running program as materialized views of their topics, with the formats of its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StringType, StructType

from odradek.client.settings.settings import ConsumerSettings
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.streams.restore.changelogs import kafka_client
from odradek.streams.translation.formats import kafka_number

if TYPE_CHECKING:
    from odradek.streams.plan.operators import TopicSink
    from odradek.streams.plan.schemas import Format
    from odradek.streams.translation.frames import RecordFrame
    from odradek.views import table_view
    from odradek.views.http import serving as http_serving
    from odradek.views.table_view import TableView
else:
    http_serving = lazy("odradek.views.http.serving")
    table_view = lazy("odradek.views.table_view")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryableTable:
    """A topic, and what `TableView` calls the formats of its keys and values."""

    topic: str
    key: str
    value: str

    @classmethod
    def of(cls, sink: TopicSink, frame: RecordFrame) -> QueryableTable:
        """Returns a sink's table. A key of one column, and a value with the name `value`, have no JSON around them."""
        assert sink.topic is not None
        key, value = (frame.rows.schema[name].dataType for name in ("__key", "__value"))
        assert isinstance(key, StructType)
        assert isinstance(value, StructType)
        return cls(
            topic=sink.topic,
            key=_format(key, sink.key_format, is_bare=len(key.fields) == 1),
            value=_format(value, sink.value_format, is_bare=value.fieldNames() == ["value"]),
        )


def _format(kind: StructType, form: Format, *, is_bare: bool) -> str:
    if not isinstance(form, str):
        return "bytes"  # views know no schema files
    if not is_bare:
        return "json" if form == "json" else "string"
    column = kind.fields[0].dataType
    if isinstance(column, (StringType, BinaryType)):
        return "string" if isinstance(column, StringType) else "bytes"
    if form != "kafka":
        return "json"
    number = kafka_number(column)
    return "bytes" if number is None else number.name


@dataclass(slots=True)
class QueryableTables:
    """Views that are opened when their table is asked for the first time, and closed together."""

    options: Mapping[str, str] = field(repr=False)
    tables: Mapping[str, QueryableTable]
    _views: dict[str, TableView] = field(default_factory=dict)
    _serving: http_serving.ServingThread | None = None

    def __getitem__(self, topic: str) -> TableView:
        """Opens a table as committed at this moment. ConfigError when the program writes no table to the topic."""
        view = self._views.get(topic)
        if view is None:
            table = self.tables.get(topic)
            if table is None:
                raise ConfigError(
                    f"the program writes no table to {topic!r}; it writes {', '.join(sorted(self.tables)) or 'none'}"
                )
            servers, settings = self._client()
            view = self._views[topic] = table_view.TableView.open(
                servers, topic, key=table.key, value=table.value, **settings
            )
        return view

    def serve(self, host: str, port: int) -> str:
        """Serves all tables over HTTP, by views of their own; returns the URL. Raises ConfigError when there is no table, or
        the address is taken."""
        if not self.tables:
            raise ConfigError("the program writes no table: there is nothing to serve")
        if self._serving is not None:
            raise ConfigError(f"the tables are served at {self._serving.address} already")
        servers, settings = self._client()
        try:
            tables = [
                http_serving.ServedTable(topic=table.topic, key=table.key, value=table.value)
                for table in self.tables.values()
            ]
        except ImportError as error:
            raise ConfigError(f"serving tables needs more ({error}): pip install 'odradek[views]'") from error
        self._serving = http_serving.ServingThread(
            servers, tuple(tables), host=host, port=port, settings=settings
        )
        return self._serving.address

    def _client(self) -> tuple[str, ClientSettings]:
        settings = ConsumerSettings.arguments(kafka_client(self.options, "-"))
        return settings.pop("bootstrap_servers"), settings

    def close(self) -> None:
        """Closes the views. Idempotent."""
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        while self._views:
            self._views.popitem()[1].close()
