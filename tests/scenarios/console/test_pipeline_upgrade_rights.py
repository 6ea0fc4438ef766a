"""A dry run of an upgrade runs code on the console's machine: only those who may write pipelines start it."""

from __future__ import annotations

import asyncio
import html
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.console.conftest import Browser, browser_of, login_options

from odradek.client import Admin
from odradek.client.admin.users import NewPassword
from odradek.client.settings.settings import AdminSettings
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument, PipelineVersion
from odradek.pipelines.status import STATUS_TOPIC
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.tables import make_topics
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclPattern
from odradek.testing import LocalBroker

HERE = "/pipelines/upgrade?name=copy"


def settings_of(broker: LocalBroker) -> dict[str, Any]:
    settings = AdminSettings.arguments({"bootstrap.servers": "", **broker.client_settings})
    settings.pop("bootstrap_servers", None)
    return settings


def fill(broker: LocalBroker, program: Path) -> None:
    """Makes a pipeline, and two users: one may read it, the other may write it, too."""
    with PipelineStore(broker.address, **settings_of(broker)) as store:
        make_topics(store.admin)
        version = PipelineVersion(number=1, program=str(program), checkpoint="copy/v1", made_ms=1)
        document = PipelineDocument(name="copy", versions=(version,)).changed(5, "ann", "run")
        store.change("copy", lambda _: document)
        rights = {
            "reader": [(topic, AclOperation.READ) for topic in (PIPELINES_TOPIC, STATUS_TOPIC)],
            "writer": [
                (PIPELINES_TOPIC, AclOperation.READ),
                (STATUS_TOPIC, AclOperation.READ),
                (PIPELINES_TOPIC, AclOperation.WRITE),
            ],
        }
        store.admin.alter_users({user: NewPassword(password=f"{user}-secret-1") for user in rights})
        store.admin.create_acls(
            [
                Acl(
                    AclPattern(AclResourceType.TOPIC, topic, PatternType.LITERAL),
                    f"User:{user}",
                    "*",
                    operation,
                    AclPermission.ALLOW,
                )
                for user, operations in rights.items()
                for topic, operation in operations
            ]
        )


async def test_only_those_who_may_write_pipelines_have_a_program_loaded(
    secure_broker: LocalBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark, program = tmp_path / "mark", tmp_path / "copy.py"
    program.write_text(
        f"import sys\nopen({str(mark)!r}, 'a').write(repr(sys.argv[1:]))\ndef pipeline(spark): pass\n"
    )
    await asyncio.to_thread(fill, secure_broker, program)
    caplog.set_level(logging.INFO, "odradek.console")
    options = replace(login_options(secure_broker), programs=(str(tmp_path),))
    async with browser_of(options) as first:
        for user in ("reader", "writer"):
            browser = Browser(first.console)
            await browser.submit("/login", name=user, password=f"{user}-secret-1")
            response = await browser.submit(HERE, "/", file=str(program), args="--wipe /data")
            shown = html.unescape(response.text)
            if user == "reader":
                assert response.status_code == 403
                assert f"it needs the right to write topic {PIPELINES_TOPIC}" in shown
                assert (await browser.get(HERE)).status_code == 403
                assert not mark.exists()
            else:
                assert (response.status_code, 'name="plan"' in shown) == (200, True), shown
                assert mark.read_text() == "['--wipe', '/data']"
            await browser.http.aclose()
    loads = [record.getMessage() for record in caplog.records if "program_loaded" in record.getMessage()]
    assert len(loads) == 1
    for part in ("pipeline_program_loaded", "writer", "pipeline=copy", str(program), "arguments=2"):
        assert part in loads[0]
    assert "--wipe" not in loads[0]


def test_topics_are_described_with_what_the_client_may_do(secure_broker: LocalBroker) -> None:
    with Admin(secure_broker.address, **settings_of(secure_broker)) as admin:
        make_topics(admin)
        described = admin.describe_topics([PIPELINES_TOPIC])[PIPELINES_TOPIC]
        assert described.authorized_operations is None, "it was not asked for"
        described = admin.describe_topics([PIPELINES_TOPIC], operations=True)[PIPELINES_TOPIC]
        assert described.authorized_operations is not None
        assert AclOperation.WRITE in described.authorized_operations
