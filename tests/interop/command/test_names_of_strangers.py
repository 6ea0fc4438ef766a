"""Every command of the command line, on a broker whose names and records strangers chose: nothing of them steers the terminal.

A command that is new has to be named here, with words that make it print such a name; if it prints none, with the reason.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from odradek.cli.main import cli, main
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument, PipelineVersion
from odradek.pipelines.status import STATUS_TOPIC, Phase, PipelineStatus, RunFailure
from odradek.testing import LocalBroker

EVIL: Final = "x\x1b]0;owned\x07\x1b[2J\r\nFORGED  Dead\tconsumer\x85\u202e\u2066y  z\u200b"
"""A title of the terminal, an empty screen, lines of a table, controls of C1, turned text, invisible letters."""
TOPIC, LETTERS, CONFIG = "topic-of-strangers", "topic-of-strangers.dlq", "client.properties"
Words = tuple[str, ...]

COMMANDS: Final[Mapping[str, tuple[Words, ...]]] = {
    "topic create": ((EVIL,),),
    "topic alter": ((EVIL, "--partitions", "3"),),
    "topic delete": ((EVIL, "--yes"),),
    "topic describe": ((TOPIC,), (TOPIC, "--json"), (EVIL,)),
    "topic list": ((), ("--json",)),
    "produce": ((EVIL,), (TOPIC, "--json")),
    "consume": tuple(
        (TOPIC, "--exit-at-end", *more)
        for more in (
            ("-k", "-H", "-T", "-O"),
            *(("-k", "-H", "--format", kind) for kind in ("line", "json", "raw", "hex", "base64")),
            ("--template", "{topic} {key} {value} {headers}\\n"),
        )
    ),
    "group list": ((), ("--json",)),
    "group describe": ((EVIL,), (EVIL, "--json"), (f"{EVIL}-none",)),
    "group reset-offsets": (
        (EVIL, "--topic", TOPIC, "--to-earliest"),
        (EVIL, "--topic", EVIL, "--to-latest"),
        (EVIL, "--topic", TOPIC, "--to-current", "--json"),
        (EVIL, "--topic", TOPIC, "--to-current", "--share"),
        (f"{EVIL}-share", "--topic", TOPIC, "--to-earliest", "--share"),
    ),
    "group delete-offsets": (
        (EVIL, "--topic", EVIL, "--yes"),
        (EVIL, "--topic", TOPIC, "--yes"),
        (EVIL, "--topic", f"{TOPIC}:0", "--yes", "--json"),
        (f"{EVIL}-none", "--topic", TOPIC, "--yes"),
    ),
    "group remove-members": (
        (EVIL, "--instance", EVIL, "--reason", EVIL, "--yes"),
        (f"{EVIL}-none", "--all", "--yes"),
    ),
    "group delete": ((f"{EVIL}-none", "--yes"), (EVIL, "--yes")),
    "dlq list": ((), (LETTERS,), (LETTERS, "--json"), (EVIL,)),
    "dlq show": ((LETTERS,), (LETTERS, "--json"), (f"{LETTERS}:0:0",), (EVIL,)),
    "dlq redrive": ((LETTERS, "--dry-run"), (LETTERS,), (EVIL,)),
    "txn list": ((), ("--json",)),
    "txn describe": ((EVIL,), (EVIL, "--json"), (f"{EVIL}-none",)),
    "txn find-hanging": ((), ("--json",)),
    "txn abort": (("--topic", EVIL, "--partition", "0", "--start-offset", "0", "--yes"),),
    "txn terminate": ((f"{EVIL}-none", "--yes"), (EVIL, "--yes")),
    "table get": ((TOPIC,), (TOPIC, EVIL), (EVIL,)),
    "pipeline list": ((), ("--json",)),
    "pipeline describe": (("strange",), ("strange", "--json"), (EVIL,)),
    "pipeline logs": (("strange",), ("strange", "--json"), (EVIL,)),
    "pipeline lag": (("strange",), (EVIL,)),
    "pipeline forget": ((EVIL,),),
    "pipeline run": ((EVIL,),),
    "pipeline start": ((EVIL,), ("strange",)),
    "pipeline stop": ((EVIL,), ("strange",)),
    "pipeline pause": ((EVIL,), ("strange",)),
    "pipeline resume": ((EVIL,), ("strange",)),
    "pipeline reset": ((EVIL,), ("strange",)),
    "pipeline repartition": ((EVIL, "2"), ("strange", "2")),
    "pipeline upgrade": ((EVIL, "--dry-run"), ("strange", "--dry-run")),
    "pipeline state show": ((EVIL,), ("strange",)),
    "pipeline state export": ((EVIL, "--to", "none.jsonl"), ("strange", "--to", "none.jsonl")),
    "pipeline delete": ((EVIL, "--yes"), ("strange", "--yes")),
    "acl add": ((f"User:{EVIL}", "read", f"topic:{EVIL}"),),
    "acl list": ((), ("--json",)),
    "acl explain": ((f"User:{EVIL}", "read", f"group:{EVIL}"),),
    "acl remove": (
        (f"User:{EVIL}", "write", f"topic:{EVIL}"),
        (f"User:{EVIL}", "read", f"topic:{EVIL}"),
    ),
    "audit search": (("--file", "audit.log"), ("--file", "audit.log", "--json")),
    "audit tail": (("--file", "audit.log"),),
    "quota set": (("--user", EVIL, "producer_byte_rate=5"), ("--client", EVIL, "nothing=5")),
    "quota list": ((), ("--json",)),
    "quota delete": (("--user", f"{EVIL}-none"), ("--user", EVIL)),
    "user list": ((), ("--json",)),
    "user add": ((EVIL, "--generate"), ("a,b=c" + EVIL, "--generate")),
    "user remove": ((f"{EVIL}-none",), (EVIL,)),
    "token create": (("--renewer", f"User:{EVIL}"),),
    "token list": ((), ("--json",), ("--owner", f"User:{EVIL}")),
    "token renew": ((EVIL,),),
    "token expire": ((EVIL,),),
    "cert show": ((EVIL,), ("audit.log",)),
    "cert issue": ((EVIL, "--dir", "keys"),),
    "config describe": ((EVIL,), ("--topic", EVIL)),
    "config show": ((EVIL,), ("--topic", EVIL)),
    "config set": ((f"{EVIL}=1",), ("--topic", EVIL, f"{EVIL}=1")),
    "config unset": ((EVIL,), ("--topic", EVIL, EVIL)),
    "broker slow": (("--metrics", EVIL), ("--metrics", "127.0.0.1:1")),
    "top": (("--metrics", EVIL), ("--metrics", "127.0.0.1:1", "--rounds", "1")),
    "broker clients": (("--metrics", EVIL), ("--metrics", "127.0.0.1:1", "--client", EVIL)),
    "client-metrics alter": (
        (EVIL, "--metrics", "a"),
        (EVIL, "--match", EVIL),
        ("strange", "--metrics", EVIL),
    ),
    "client-metrics list": ((), ("--json",)),
    "client-metrics describe": ((EVIL,), (EVIL, "--json"), ()),
    "client-metrics delete": ((EVIL,), ("strange",)),
    "cluster describe": ((), ("--json",)),
    "cluster status": ((), ("--json",)),
    "cluster drain": ((EVIL,),),
    "cluster elect": ((EVIL,), ("--topic", EVIL)),
    "cluster plan": ((EVIL,),),
    "cluster rebalance": ((EVIL,), ()),
    "cluster quorum": ((), ("--json",)),
    "cluster unregister": ((EVIL,), ("77", "--yes")),
    "log dump": (("records.log",), (EVIL,)),
    "doctor": ((EVIL,), ("strange.properties",)),
    "completion": ((EVIL,),),
    "sql": (("--server", EVIL, "-e", "x"), ("-f", EVIL), ("--define", EVIL, "-e", "x")),
    # These go on until they are ended, so they are shown what they refuse; what they log is tested with telemetry.
    "serve": (("--listen", EVIL, "--data", "d"),),
    "sql serve": (("--set", f"{EVIL}=1"),),
    "console": (("--listen", EVIL), ("--bootstrap", EVIL), ("--sql", EVIL)),
    "bench produce": (("--topic", EVIL, "--records", "1"),),
    "bench consume": (("--topic", EVIL),),
    "bench end-to-end": (("--topic", EVIL, "--seconds", "0.1"),),
    "table serve": (("--listen", EVIL, "t"), (EVIL, "--bootstrap", EVIL)),
    "pipelines serve": (("--bootstrap", EVIL), ("--programs", EVIL)),
    "archive run": ((EVIL, EVIL),),
    "sandbox": ((EVIL,),),
    "archive compact": ((EVIL,),),
    "archive expire": ((EVIL,),),
    "archive manifest": ((EVIL, "--for", "athena"),),
    "archive status": ((EVIL,),),
    "archive verify": ((EVIL,),),
}
TABLES: Final = frozenset(
    (
        "topic list", "topic describe", "consume", "group list", "group describe", "dlq list", "dlq show", "txn list",
        "txn describe", "pipeline list", "pipeline describe", "pipeline logs", "acl list", "audit search", "quota list",
        "user list", "token list", "table get", "config show",
    )
)  # fmt: skip
"""Commands that print tables: these look different in a pipe."""
SAYS_NO_NAME: Final[Mapping[str, str]] = {
    "topic list": "brokers refuse topics of such names",
    "txn find-hanging": "as topic list: it prints topics and numbers",
    "token create": "what it prints is the broker's, and who asked is logged in",
    "cluster describe": "brokers, racks and directories are the operator's",
    "cluster status": "as cluster describe, and topics",
    "cluster quorum": "as cluster describe",
}
"""Commands that print no name of strangers, and why."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def leaves(command: click.Command, context: click.Context, path: Words = ()) -> Iterator[str]:
    if not isinstance(command, click.Group) or (command.invoke_without_command and path):
        yield " ".join(path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, click.Context(below, parent=context, info_name=name), (*path, name))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, Path]]:
    directory = tmp_path_factory.mktemp("strange")
    settings = {"delegation.token.secret.key": "planted"}
    with LocalBroker(settings, secure=True, data=directory / "data") as broker:
        (directory / CONFIG).write_text(format_properties(broker.client_settings))
        (directory / CONFIG).chmod(0o600)
        event = {
            "time_ms": 1,
            "kind": "refusal",
            "client": EVIL,
            "resources": [f"GROUP:{EVIL}"],
            "detail": EVIL,
        }
        (directory / "audit.log").write_text(json.dumps(event) + "\n")
        (directory / "strange.properties").write_text(format_properties({EVIL: "1", "listeners": EVIL}))
        fill({"bootstrap.servers": broker.address, **broker.client_settings})
        [log] = (directory / "data").rglob(f"{TOPIC}-0/00000000000000000000.log")
        (directory / "records.log").write_bytes(log.read_bytes())
        yield broker, directory


def fill(reach: dict[str, str]) -> None:
    """What strangers write, by every name that they may choose."""
    with Admin.from_config(reach) as admin:
        admin.create_topics([NewTopic(TOPIC, 1), NewTopic(LETTERS, 1)])
        admin.create_topics([NewTopic(name, 1) for name in (PIPELINES_TOPIC, STATUS_TOPIC)])
        admin.alter_users({"x\u202e\u2066FORGED  Dead": NewPassword(password="knows it")})
    strange = {**reach, "client.id": EVIL}
    headers = [(EVIL, EVIL.encode())]
    failure = RecordFailure(exception=EVIL, message=EVIL)
    letter = letter_headers(
        headers,
        Origin(topic=TOPIC, partition=0, offset=0, timestamp_ms=1),
        failure,
        FailedConsumer(group=EVIL),
    )
    version = PipelineVersion(number=1, program=f"/{EVIL}.py", args=(EVIL,), checkpoint=f"/{EVIL}/v1")
    document = PipelineDocument(
        name="strange", versions=(version,), conf=((f"spark.{EVIL}", EVIL),), master=EVIL
    )
    document = document.changed(1, EVIL, EVIL)
    status = PipelineStatus(
        name="strange",
        phase=Phase.FAILED,
        revision=1,
        version=1,
        since_ms=1,
        supervisor=EVIL,
        failure=RunFailure(line=EVIL, at_ms=1),
        log=(EVIL,),
    )
    with Producer.from_config({**strange, "transactional.id": EVIL}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, EVIL.encode(), key=EVIL.encode(), headers=headers)
            producer.send(LETTERS, EVIL.encode(), key=EVIL.encode(), headers=letter)
            producer.send(PIPELINES_TOPIC, document.to_bytes(), key=b"strange")
            producer.send(STATUS_TOPIC, status.to_bytes(), key=b"strange")
    with Consumer.from_config({**strange, "group.id": EVIL, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(1.0):
            pass
        consumer.commit()


def unsafe(text: str) -> set[str]:
    """What a terminal would act on, and not show."""
    return {
        letter
        for letter in text
        if letter != "\n" and (unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    }


def test_every_command_is_tried() -> None:
    assert set(leaves(cli, click.Context(cli))) == COMMANDS.keys()
    assert SAYS_NO_NAME.keys() <= COMMANDS.keys()


def shown_by(words: list[str], text: str) -> str:
    """Everything that a command prints, errors too, to a terminal or not."""
    with CliRunner().isolation(input=text, color=True) as (_, _, both):
        try:
            main(words)
        except SystemExit:
            pass
        return both.getvalue().decode("utf-8", "backslashreplace")


def faults_of(command: str, shown: str, words: Words) -> list[str]:
    bare = _COLOURS.sub("", shown)
    letters = unsafe(bare.replace("\t", "") if command == "consume" else bare)
    faults = [f"prints {letters}"] if letters else []
    if "\nFORGED" in bare and "raw" not in words:  # raw keeps lines
        faults.append("a name makes a line of its own")
    if "Traceback" in bare or "odradek: unexpected " in bare:
        faults.append("an error that is not explained")
    return faults


def test_nothing_of_strangers_steers_the_terminal(
    ground: tuple[LocalBroker, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, in the order of the commands: the last ones change and delete what the others show."""
    broker, directory = ground
    monkeypatch.chdir(directory)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", broker.address)
    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(directory / CONFIG))
    monkeypatch.setenv("XDG_DATA_HOME", str(directory / "home"))
    monkeypatch.setenv("TERM", "dumb")
    doors: list[tuple[str, Words, bool, list[str], str]] = []
    silent = []
    for command, uses in COMMANDS.items():
        names_shown = False
        for is_terminal in (True, False) if command in TABLES else (True,):
            monkeypatch.setattr(
                "click.testing._NamedTextIOWrapper.isatty", lambda _, is_terminal=is_terminal: is_terminal
            )
            for words in uses:
                if command == "consume" and not is_terminal and "json" not in words:
                    continue  # into a file or a pipe, records go as they are
                text = EVIL + "\n" if command == "produce" else "n\n"  # what is typed at a prompt is echoed
                shown = shown_by([*command.split(), *words], text)
                names_shown = names_shown or "FORGED" in shown
                faults = faults_of(command, shown, words)
                if faults:
                    doors.append((command, words, is_terminal, faults, shown))
        if not names_shown and command not in SAYS_NO_NAME:
            silent.append(command)
    assert doors == []
    assert silent == [], "no name of strangers was printed: the words do not reach what the command prints"
