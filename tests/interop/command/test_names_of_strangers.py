"""Commands on a broker whose names and records strangers chose: nothing of them steers the terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.cli.main import cli
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
    "topic list": ((), ("--json",)),
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
    "dlq list": ((), (LETTERS,), (LETTERS, "--json"), (EVIL,)),
    "dlq show": ((LETTERS,), (LETTERS, "--json"), (f"{LETTERS}:0:0",), (EVIL,)),
    "txn list": ((), ("--json",)),
    "txn describe": ((EVIL,), (EVIL, "--json"), (f"{EVIL}-none",)),
    "pipeline list": ((), ("--json",)),
    "pipeline describe": (("strange",), ("strange", "--json"), (EVIL,)),
    "pipeline logs": (("strange",), ("strange", "--json"), (EVIL,)),
    "pipeline start": ((EVIL,), ("strange",)),
    "acl list": ((), ("--json",)),
    "acl explain": ((f"User:{EVIL}", "read", f"group:{EVIL}"),),
    "audit search": (("--file", "audit.log"), ("--file", "audit.log", "--json")),
    "quota list": ((), ("--json",)),
    "user list": ((), ("--json",)),
}


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


@pytest.mark.parametrize("command", list(COMMANDS))
def test_nothing_of_strangers_steers_the_terminal(
    ground: tuple[LocalBroker, Path], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, directory = ground
    monkeypatch.chdir(directory)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", broker.address)
    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(directory / CONFIG))
    monkeypatch.setenv("XDG_DATA_HOME", str(directory / "home"))
    monkeypatch.setenv("TERM", "dumb")
    for is_terminal in (False, True):
        monkeypatch.setattr(
            "click.testing._NamedTextIOWrapper.isatty", lambda _, is_terminal=is_terminal: is_terminal
        )
        for words in COMMANDS[command]:
            if command == "consume" and not is_terminal and "json" not in words:
                continue  # into a file or a pipe, records go as they are
            done = CliRunner().invoke(cli, [*command.split(), *words], input="", color=True)
            shown = done.output
            assert unsafe(shown.replace("\t", "") if command == "consume" else shown) == set(), (words, shown)
            assert "\nFORGED" not in shown or "raw" in words, (words, shown)  # raw keeps lines
            assert "Traceback" not in shown, (words, shown)
