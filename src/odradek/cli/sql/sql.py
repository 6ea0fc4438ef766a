"""`odradek sql`: a shell for SQL on streams and tables, and its server."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.cli.access import check_reachable, connection_settings
from odradek.cli.metrics import metrics_options, metrics_terms
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, pairs
from odradek.cli.output import remark, say, say_in_red, say_lines
from odradek.cli.progress import waiting_line
from odradek.config.data_directory import default_data_directory
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.cli.sql import sandbox as sql_sandbox
    from odradek.sql import rest_client
    from odradek.sql.doors import opening
    from odradek.sql.queries import sleeping
    from odradek.sql.server import gate, properties, serving, sql_server
    from odradek.sql.server.topics import processing_log
    from odradek.sql.shell import names, prompt
    from odradek.sql.shell import session as shell_session
    from odradek.values import schema_registry as schemas
else:
    sql_sandbox = lazy("odradek.cli.sql.sandbox")
    rest_client = lazy("odradek.sql.rest_client")
    schemas = lazy("odradek.values.schema_registry")
    sleeping = lazy("odradek.sql.queries.sleeping")
    opening = lazy("odradek.sql.doors.opening")
    gate = lazy("odradek.sql.server.gate")
    properties = lazy("odradek.sql.server.properties")
    processing_log = lazy("odradek.sql.server.topics.processing_log")
    serving = lazy("odradek.sql.server.serving")
    sql_server = lazy("odradek.sql.server.sql_server")
    names = lazy("odradek.sql.shell.names")
    prompt = lazy("odradek.sql.shell.prompt")
    shell_session = lazy("odradek.sql.shell.session")

_PORT_MAX: Final = 65535
_WIDTH_OF_FILES: Final = 1_000_000


@click.group(invoke_without_command=True)
@click.option(
    "--server",
    metavar="URL",
    envvar="ODRADEK_SQL",
    default="http://127.0.0.1:8088",
    show_default=True,
    help="The URL of the SQL server; a ksqlDB server works, too.",
)
@click.option(
    "--user", help="To log in to the server; the password is asked for, or in ODRADEK_SQL_PASSWORD."
)
@click.option("--ca", type=click.Path(path_type=Path), help="The authority of an https server, as PEM.")
@click.option("-e", "--execute", "texts", metavar="SQL", multiple=True, help="Run this statement, and end.")
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), help="Run a script, and end.")
@click.option("--define", "defined", metavar="NAME=VALUE", multiple=True, help="A variable, for ${NAME}.")
@click.option(
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv are for programs: only data goes to standard output, everything else to standard error.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@click.option(
    "--timings", is_flag=True, help="Each statement says how long it took. In the shell: timing on."
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="EXPLAIN draws the plan of a query into this SVG file.",
)
@click.option("--sandbox", is_flag=True, help="Start a broker, a server and streams of flights to play with.")
@click.option("--lang", type=click.Choice(["en", "ru"]), default="en", help="The language of the sandbox.")
@click.pass_context
def sql(
    context: click.Context,
    server: str,
    user: str | None,
    ca: Path | None,
    texts: tuple[str, ...],
    file: Path | None,
    defined: tuple[str, ...],
    output: str,
    as_json: bool,
    timings: bool,
    picture: Path | None,
    sandbox: bool,
    lang: str,
) -> None:
    """Query streams and tables in SQL, as in ksqlDB.

    Without -e and -f it reads statements from the terminal, or from a pipe. It needs a server: `odradek sql serve`.
    """
    if context.invoked_subcommand is not None:
        return
    terms = {"output": "json" if as_json else output, "timings": timings, "picture": picture}
    if sandbox:
        with sql_sandbox.running() as address:
            if not texts and file is None and terms["output"] == "table":
                say_lines(sql_sandbox.LESSON[lang])
            _run(rest_client.RestClient(url=address), texts, file, defined, terms)
        return
    password = os.environ.get("ODRADEK_SQL_PASSWORD", "")
    if user is not None and not password:
        password = click.prompt("Password", hide_input=True, err=True)
    client = rest_client.RestClient(url=server, user=user, password=password, ca=ca)
    _run(client, texts, file, defined, terms)


def _run(
    client: Any, texts: tuple[str, ...], file: Path | None, defined: tuple[str, ...], terms: dict[str, Any]
) -> None:
    try:
        session = shell_session.ShellSession(
            client, say_lines, partial(say_lines, err=True), width=_width, waiting=waiting_line, **terms
        )
    except ImportError as error:
        raise ConfigError(f"the SQL shell needs more ({error}): pip install 'odradek[sql]'") from error
    for definition in defined:
        name, equals, value = definition.partition("=")
        if not equals:
            raise click.UsageError(f"--define {definition!r}: expected NAME=VALUE")
        session.variables[name] = value
    try:
        if texts or file is not None:
            goes_on = all(session.run(text) for text in texts)
            if file is not None and goes_on:
                session.run(_text_of(file), str(file))
        elif sys.stdin.isatty():
            _talk(session, client)
        else:
            session.run(sys.stdin.read())
    except rest_client.ServerRefusal as refusal:
        say_lines(refusal.message, err=True)  # several lines: the statement, and a caret below the place
        raise SystemExit(1) from None
    finally:
        session.close()


def _width() -> int:
    """Returns the width of the terminal. In a file or a pipe nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_FILES


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is no UTF-8 text: {error}") from error


def _talk(session: Any, client: Any) -> None:
    info = client.info()
    remark(f"{client.url}, service {info['ksqlServiceId']}. Type help for help, exit to leave.")
    remark("")
    if session.output == "table":
        session.timings = True
    history = Path(default_data_directory()) / "sql-history"
    history.parent.mkdir(parents=True, exist_ok=True)
    prompt.Prompt(session, names.KnownNames(client), history, _report).run()


def _report(error: OdradekError) -> None:
    say_in_red(str(error))


@sql.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8088",
    show_default=True,
    help="Where to listen. Beyond this machine, think of --users and --certificate.",
)
@click.option(
    "--service-id",
    default="default",
    show_default=True,
    help="Servers with the same id share statements, streams, tables and queries.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where checkpoints are; by default `sql` in Odradek's data directory. It may be lost: all is in the brokers.",
)
@click.option(
    "--users",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with the users who may connect: a line name:password for each.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The certificate for https, as PEM.",
)
@click.option(
    "--key", type=click.Path(path_type=Path, dir_okay=False), help="The certificate's private key, as PEM."
)
@click.option(
    "--schema-registry",
    metavar="URL",
    envvar="ODRADEK_SCHEMA_REGISTRY",
    help="For AVRO, PROTOBUF and JSON_SR: http://host:8081, or https://user:password@host.",
)
@click.option(
    "settings",
    "--set",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting: odradek.sql.python.functions=true lets users make functions, which run with the server's rights."
    " Beyond odradek.sql.awake.queries=50, queries with nothing to read for odradek.sql.sleep.after.ms=120000 sleep."
    " odradek.sql.archive.endpoints=URL,… are S3-compatible stores that CREATE ARCHIVE may name."
    " A snapshot of the command topic is written after odradek.sql.snapshot.commands=500 commands. As in ksqlDB,"
    " ksql.logging.processing.topic.auto.create, stream.auto.create, topic.name, stream.name and rows.include are for the"
    " processing log.",
)
@click.option(
    "--connect",
    metavar="PORT",
    help="Open a door for Spark Connect on this port of 127.0.0.1, for notebooks. It only reads.",
)
@click.option(
    "--jdbc",
    metavar="PORT",
    help="Open a door for JDBC (Spark's Thrift server) on this port of 127.0.0.1. It only reads.",
)
@metrics_options
@click.option("--json-log", is_flag=True, help="The log as JSON, one object a line.")
@click.option(
    "--lifeline", type=Whole(min=0), hidden=True, help="A pipe: the server stops when its other end closes."
)
@bootstrap_option
def serve(
    listen: str,
    service_id: str,
    data: Path | None,
    users: Path | None,
    certificate: Path | None,
    key: Path | None,
    schema_registry: str | None,
    settings: tuple[str, ...],
    connect: str | None,
    jdbc: str | None,
    json_log: bool,
    lifeline: int | None,
    bootstrap: str,
) -> None:
    """Serve SQL over HTTP, with ksqlDB's REST API, until SIGTERM or Ctrl-C.

    Streams, tables and queries are kept in the brokers: a server that is started again, anywhere, has them all. Java starts
    with the first query that needs Spark.
    """
    events.configure(level="INFO", json_lines=json_log)
    try:
        given = properties.SERVER_SETTINGS.given(pairs(settings, "--set"), properties.PropertyUse.START)
    except ConfigError as error:
        raise click.UsageError(f"--set: {error}") from None
    connect_port, jdbc_port = _door_port("--connect", connect, users), _door_port("--jdbc", jdbc, users)
    check_reachable(bootstrap)
    host, colon, port = listen.rpartition(":")
    if not colon or not is_digits(port):
        raise click.UsageError(f"--listen {listen!r:.80}: expected HOST:PORT")
    try:
        terms = sql_server.ServerTerms(
            servers=bootstrap,
            service_id=service_id,
            directory=(data or Path(default_data_directory()) / "sql").absolute(),
            settings=connection_settings(),
            schema_registry=None
            if schema_registry is None
            else schemas.SchemaRegistryTerms.of(schema_registry),
            python_functions=given.flag("odradek.sql.python.functions"),
            sleep=sleeping.SleepTerms(
                awake_count_max=given.number("odradek.sql.awake.queries"),
                idle_s=given.number("odradek.sql.sleep.after.ms") / 1000,
            ),
            task_count=given.number("odradek.sql.tasks"),
            processing_log=processing_log.ProcessingLogTerms.of(given),
            archive_endpoints=frozenset(filter(None, given.words("odradek.sql.archive.endpoints"))),
            metrics=metrics_terms(),
            commands_between_snapshots=given.number("odradek.sql.snapshot.commands"),
        )
        http = serving.HttpTerms(host=host.strip("[]"), port=int(port), certificate=certificate, key=key)
        known = None if users is None else gate.HttpUsers.from_file(users)
        doors = None
        if connect_port is not None or jdbc_port is not None:
            doors = opening.DoorTerms(connect=connect_port, jdbc=jdbc_port)
    except ImportError as error:
        raise ConfigError(f"the SQL server needs more ({error}): pip install 'odradek[sql]'") from error
    asyncio.run(_serve(terms, http, known, doors, lifeline))


def _door_port(option: str, value: str | None, users: Path | None) -> int | None:
    """Returns the port of a door of Spark. Doors ask for no password, so only this machine may use them. Raises UsageError."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if host not in ("", "127.0.0.1", "localhost"):
        raise click.UsageError(
            f"{option} {value}: this door asks for no password, so it listens on 127.0.0.1 only: give a port, and reach it"
            " from elsewhere through ssh -L"
        )
    if not is_digits(port) or int(port) > _PORT_MAX:
        raise click.UsageError(f"{option} {value!r:.80}: expected a port")
    if users is not None:
        raise click.UsageError(
            f"{option} with --users: this door asks for no password, so it would let in everyone on this machine: leave out"
            " one of them"
        )
    return int(port)


async def _serve(terms: Any, http: Any, users: Any, doors: Any, lifeline: int | None) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def cut(pipe: int) -> None:
        loop.remove_reader(pipe)
        ended.set()

    if lifeline is not None:
        loop.add_reader(lifeline, cut, lifeline)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def ready(address: str) -> None:
        gc.collect()
        gc.freeze()  # modules are no garbage: a look at all of them holds the event loop
        say(f"ready {address}")

    await sql_server.serve(terms, http, users, ended, ready, doors)
