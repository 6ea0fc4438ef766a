"""`odradek acl` against a broker with an authorizer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.scenarios.one_broker import Scene

from odradek.cli.main import main

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS;User:ops",
}
Run = Callable[..., Awaitable[str]]


@pytest.fixture
async def run(scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """One command against the scene's broker; what it printed."""
    broker = await scene.start(**SETTINGS)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", broker.address)

    async def command(*words: str, code: int = 0) -> str:
        left = await asyncio.to_thread(main, ("acl", *words))
        out, error = capfd.readouterr()
        assert left == code, error
        return out if code == 0 else error

    return command


async def test_rules_are_added_listed_explained_and_removed(run: Run) -> None:
    assert "There are no access rules." in await run("list")
    await run("add", "alice", "read,describe", "topic:orders-", "--prefix")
    await run("add", "User:*", "all", "topic:orders-secret", "--deny")
    rows = json.loads(await run("list", "topic:orders-1", "--json"))
    assert {(row["principal"], row["operation"]) for row in rows} == {
        ("User:alice", "READ"),
        ("User:alice", "DESCRIBE"),
    }
    assert "topic:orders-..." in await run("list", "--user", "alice")
    allowed = await run("explain", "alice", "read", "topic:orders-1")
    assert "User:alice may read topic:orders-1" in allowed
    assert "User:alice may READ TOPIC orders- and longer" in allowed
    refused = await run("explain", "alice", "read", "topic:orders-secret")
    assert "may not read" in refused
    assert "User:* may not ALL TOPIC orders-secret" in refused
    assert "no rule is about it" in await run("explain", "alice", "read", "group:g")
    assert "there are rules about it, and none allows it" in await run(
        "explain", "bob", "read", "topic:orders-1"
    )
    assert "super user" in await run("explain", "ops", "alter", "cluster")
    await run("remove", "alice", "read,describe", "topic:orders-", "--prefix")
    assert json.loads(await run("list", "topic:orders-1", "--json")) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "alice", "read", "topik:orders"), "did you mean topic"),
        (("add", "alice", "read", "topic"), "write topic:NAME"),
        (("add", "alice", "reed", "topic:orders"), "cannot be done to a topic"),
        (("add", "alice", "write", "group:g"), "cannot be done to a group"),
        (("add", "alice", "read", "topic:orders", "--host", "db.example.org"), "IP address"),
        (("explain", "alice", "read", "topic:orders", "--host", "here"), "no address"),
    ],
)
async def test_a_mistake_is_named(run: Run, words: tuple[str, ...], reason: str) -> None:
    assert reason in await run(*words, code=2)
