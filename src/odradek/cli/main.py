"""The entry point: which commands there are, and how every error is reported.

Commands are imported when they are run, so that `odradek serve` does not wait for what only the others need.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.output import say, say_lines
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.telemetry import events

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = lazy("importlib.metadata")

COMMANDS: Final = {
    "serve": ("odradek.cli.serving.serve", "serve", "Run a broker."),
    "topic": ("odradek.cli.topic", "topic", "Create, list, describe, alter and delete topics."),
    "produce": ("odradek.cli.records.produce", "produce", "Send records from a file or from standard input."),
    "consume": ("odradek.cli.records.consume", "consume", "Print the records of a topic."),
    "group": ("odradek.cli.group.group", "group", "List, describe and delete groups, and set their offsets."),
    "dlq": ("odradek.cli.dlq.dlq", "dlq", "Look at dead letters, and send them back."),
    "txn": ("odradek.cli.txn", "txn", "List and describe transactions, and abort those that hang."),
    "table": ("odradek.cli.table", "table", "Query compacted topics as tables, while they change."),
    "pipeline": ("odradek.cli.pipeline.pipeline", "pipeline", "Run Spark pipelines, and look after them."),
    "pipelines": ("odradek.cli.pipeline.serve", "pipelines", "Supervise the pipelines of a cluster."),
    "sql": ("odradek.cli.sql.sql", "sql", "Query streams and tables in SQL."),
    "archive": (
        "odradek.cli.archive.archive",
        "archive",
        "Keep topics as tables in files or object storage.",
    ),
    "acl": ("odradek.cli.acl", "acl", "List, add, remove and explain access rules."),
    "audit": ("odradek.cli.audit", "audit", "Show what was done, and who did it."),
    "quota": ("odradek.cli.quota", "quota", "Limit what users, clients and addresses may use."),
    "user": ("odradek.cli.user", "user", "Add, list and remove users that log in by SCRAM."),
    "token": ("odradek.cli.token", "token", "Let others act for a user for a while."),
    "cert": ("odradek.cli.serving.cert", "cert", "Make certificates, and look at them."),
    "config": ("odradek.cli.cluster.config", "config", "Show, explain and change settings."),
    "client-metrics": (
        "odradek.cli.client_metrics",
        "client_metrics",
        "List and change which metrics clients push to brokers.",
    ),
    "cluster": (
        "odradek.cli.cluster.cluster",
        "cluster",
        "Look at the cluster, and move replicas between its brokers.",
    ),
    "console": ("odradek.cli.console.console", "console", "Look at a cluster in the browser."),
    "broker": ("odradek.cli.broker", "broker", "Look at one broker."),
    "top": ("odradek.cli.cluster.top", "top", "Watch brokers, topics, groups and clients."),
    "bench": ("odradek.cli.bench.bench", "bench", "Measure how fast a cluster is, from this machine."),
    "sandbox": (
        "odradek.cli.sandbox.command",
        "sandbox",
        "Play with three brokers, and see how a Kafka cluster works.",
    ),
    "log": ("odradek.cli.records.log", "log", "Look into the files of a log."),
    "doctor": (
        "odradek.cli.doctor.doctor",
        "doctor",
        "Check what a broker needs, and explain what is in its way.",
    ),
    "completion": ("odradek.cli.completion", "completion", "Print the completion script of a shell."),
}
"""Command name to its module, the object there, and its line in the help."""

FAILED: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 128 + 2


class LazyGroup(click.Group):
    """A group that imports a command only when it is run or asked for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(lazy(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        say(f"odradek {metadata.version('odradek')}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error. Works anywhere."
)
def cli() -> None:
    """A Kafka-wire-compatible, durable commit log in Python.

    Clients find the broker with --bootstrap HOST:PORT or the variable ODRADEK_BOOTSTRAP; 127.0.0.1:9092 by default.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the process's exit code. An error is one line on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = bool(os.environ.get("ODRADEK_DEBUG")) or "--debug" in words
    words = [word for word in words if word != "--debug"]
    _replace_closed_streams()
    _configure_log(debug=debug)
    try:
        return run(words)
    except Exception as error:
        if debug:
            raise
        code, line = explain(error)
        if line:
            say(f"odradek: {line}", err=True)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _replace_closed_streams() -> None:
    """A process may be started without some of them (`>&-`): then there is nothing to read, and output is
    dropped."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - for as long as the process runs
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _configure_log(*, debug: bool) -> None:
    """Shows clients' logs only with --debug: their errors have the same information. `serve` has a log of its own."""
    logger = logging.getLogger("odradek")
    if debug:
        events.configure(level="DEBUG")
    elif not logger.handlers:
        logger.addHandler(logging.NullHandler())


def run(words: Sequence[str]) -> int:
    """Run one command and let its errors through."""
    try:
        code = cli.main(list(words), prog_name="odradek", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        say_lines(error.format_message())
        return 0
    except BrokenPipeError:
        # What Python flushes at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def explain(error: Exception) -> tuple[int, str]:
    """Returns the exit code and the line for an error."""
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "odradek"
        return WRONG_USE, f"{_one_line(error.format_message())} (see {where} --help)"
    if isinstance(error, click.ClickException):
        return error.exit_code, _one_line(error.format_message())
    if isinstance(error, click.Abort):
        return INTERRUPTED, ""
    if isinstance(error, OdradekError):
        return FAILED, _one_line(str(error))
    if isinstance(error, OSError):
        return FAILED, _one_line(_os_error(error))
    return FAILED, f"unexpected {type(error).__name__}: {_one_line(str(error))} (--debug shows where)"


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
