"""`odradek table`: compacted topics as tables: serve them, ask them."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.cli.access import check_reachable, client_arguments
from odradek.cli.metrics import metrics_options, metrics_terms
from odradek.cli.options import bootstrap_option, complete_topics, json_option
from odradek.cli.output import print_json, print_table, remark, say, say_lines
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy
from odradek.model.safe_text import safe_json

if TYPE_CHECKING:
    from odradek.views import lookup
    from odradek.views.http import answers, serving
else:
    lookup = lazy("odradek.views.lookup")
    answers = lazy("odradek.views.http.answers")
    serving = lazy("odradek.views.http.serving")

_DEFAULT_SERVER: Final = "http://127.0.0.1:8085"
_CONNECT_S: Final = 1.0
_ANSWER_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 64 << 20

_formats: Final = {
    "key": "Format of keys: string, bytes, short, int, long, float, double, json.",
    "value": "Format of values: json, string, bytes, short, int, long, float, double.",
    "windows": "Keys are windowed: the size of the windows (10m, '10 minutes'), or session.",
}


@click.group()
def table() -> None:
    """Query compacted topics as tables, while they change."""


@table.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--key", "keys", multiple=True, metavar="[TOPIC=]FORMAT", help=_formats["key"])
@click.option("--value", "values", multiple=True, metavar="[TOPIC=]FORMAT", help=_formats["value"])
@click.option("--windows", "windows", multiple=True, metavar="[TOPIC=]SIZE", help=_formats["windows"])
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the rows here, each table in a directory of its name. By default they are in memory.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8085",
    show_default=True,
    help="Where to listen. No one has to log in: think before you leave this machine.",
)
@metrics_options
@bootstrap_option
def serve(
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    values: tuple[str, ...],
    windows: tuple[str, ...],
    directory: Path | None,
    listen: str,
    bootstrap: str,
) -> None:
    """Answer over HTTP (JSON): GET /tables, /tables/TOPIC?from=&to=, ?prefix=, ?limit=&token=, /tables/TOPIC/KEY.

    Each table follows its topic, committed records only, and reports its freshness with each response.
    """
    names = tuple(dict.fromkeys(topics))
    key_of, value_of, windows_of = (
        _by_topic(items, names, option)
        for items, option in ((keys, "--key"), (values, "--value"), (windows, "--windows"))
    )
    host, port = _address(listen)
    metrics = metrics_terms()
    check_reachable(bootstrap)
    try:
        served = tuple(
            serving.ServedTable(
                topic=name,
                key=key_of.get(name, "string"),
                value=value_of.get(name, "json"),
                windows=windows_of.get(name),
            )
            for name in names
        )
    except ImportError as error:
        raise ConfigError(f"serving tables needs more ({error}): pip install 'odradek[views]'") from error
    asyncio.run(
        serving.serve(
            bootstrap,
            served,
            host=host,
            port=port,
            directory=directory,
            settings=client_arguments(),
            metrics=metrics,
            on_metrics=lambda url: remark(f"metrics on {url}"),
            on_ready=lambda address: say(f"ready {address}"),
        )
    )


@table.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("key")
@click.option("--key", "key_format", default="string", show_default=True, help=_formats["key"])
@click.option("--value", "value_format", default="json", show_default=True, help=_formats["value"])
@click.option("--windows", help=_formats["windows"])
@click.option(
    "--server",
    metavar="URL",
    envvar="ODRADEK_TABLES",
    help=f"A `table serve` to ask. By default {_DEFAULT_SERVER} if it has the table, else the topic itself is read.",
)
@bootstrap_option
@json_option
def get(
    topic: str,
    key: str,
    key_format: str,
    value_format: str,
    windows: str | None,
    server: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the value of a key, or its windows.

    A running `table serve` answers at once, in its own formats. Without one, the topic is read from its beginning to its end.
    """
    rows = _rows_of_server(server or _DEFAULT_SERVER, topic, key, is_wanted=server is not None)
    if rows is None:
        check_reachable(bootstrap)
        listed = asyncio.run(
            lookup.look_up(
                bootstrap,
                topic,
                key,
                key=key_format,
                value=value_format,
                windows=windows,
                settings={**client_arguments(), "default_api_timeout_ms": 10_000},
            )
        )
        rows = [answers.row_as_json(row) for row in listed]
    if not rows:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"table {topic} has no key {key!r}")
    if as_json:
        print_json(rows if any("window" in row for row in rows) else rows[0])
    elif "window" in rows[0]:
        print_table(
            ("start_ms", "end_ms", "value"),
            [(row["window"]["start_ms"], row["window"]["end_ms"], _text(row)) for row in rows],
        )
    else:
        say_lines(_text(rows[0]))


def _text(row: Mapping[str, Any]) -> str:
    value = row["value"] if "value" in row else row["value_base64"]
    return value if isinstance(value, str) else safe_json(value)


def _rows_of_server(server: str, topic: str, key: str, *, is_wanted: bool) -> list[dict[str, Any]] | None:
    """Returns the rows of a server, without their freshness; None if there is no such server, or no such table there."""
    place = urllib.parse.urlsplit(server)
    if place.scheme != "http" or not place.hostname:
        raise ConfigError(f"--server {server!r}: expected http://HOST:PORT")
    path = f"/tables/{urllib.parse.quote(topic, safe='')}/{urllib.parse.quote(key, safe='')}?freshness=brief&limit=1000"
    rows: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        status, response = _fetched(place, path + (f"&token={token}" if token else ""), is_wanted=is_wanted)
        if status == 0:
            return None
        if "error" in response:
            return _not_there(response["error"], is_wanted=is_wanted)
        if "rows" not in response:
            return [{name: value for name, value in response.items() if name != "freshness"}]
        rows += response["rows"]
        token = response["next"]
        if token and len(rows) >= lookup.ROWS_FOUND_MAX:
            remark(f"only the first {len(rows)} windows are shown")
            break
    return rows


def _not_there(error: Mapping[str, Any], *, is_wanted: bool) -> list[dict[str, Any]] | None:
    code = ErrorCode.of(error["code"])
    if code is ErrorCode.RESOURCE_NOT_FOUND:
        return []
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_wanted:
        return None
    raise KafkaError(code, error["message"])


def _fetched(place: urllib.parse.SplitResult, path: str, *, is_wanted: bool) -> tuple[int, dict[str, Any]]:
    """(HTTP status, body); status 0 where nothing of ours listens and none was asked for."""
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 80, timeout=_CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(_ANSWER_S)
        connection.request("GET", path)
        response = connection.getresponse()
        body = json.loads(response.read(_ANSWER_BYTES_MAX))
        if not isinstance(body, dict) or not body.keys() & {"error", "rows", "value", "value_base64"}:
            raise ValueError("it is not a server of tables")
        return response.status, body
    except (OSError, http.client.HTTPException, ValueError) as error:
        if not is_wanted:
            return 0, {}
        raise OdradekError(
            f"no answer from {place.geturl()} ({error}): start one with `odradek table serve`, or leave --server out"
        ) from error
    finally:
        connection.close()


def _by_topic(items: tuple[str, ...], topics: tuple[str, ...], option: str) -> dict[str, str]:
    """Parses `FORMAT` for all topics, or `TOPIC=FORMAT` for one of them, into a mapping by topic."""
    for_all = [setting for setting in items if "=" not in setting]
    given = dict.fromkeys(topics, for_all[-1]) if for_all else {}
    for setting in items:
        topic, equals, text = setting.partition("=")
        if not equals:
            continue
        if topic not in topics:
            raise click.UsageError(
                f"{option} {setting!r}: {topic} is not served", click.get_current_context()
            )
        given[topic] = text
    return given


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not is_digits(port) or int(port) > 65_535:
        raise click.UsageError(f"--listen {text!r:.80}: expected HOST:PORT", click.get_current_context())
    return host.strip("[]"), int(port)
