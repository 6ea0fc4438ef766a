"""A pipeline is upgraded in the console: a dry run of a program of the operator's, and the mode that is chosen after it."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of
from tests.scenarios.console.test_pages import seen
from tests.scenarios.console.test_pipeline_pages import publish

from odradek.client import Admin, NewTopic, Producer
from odradek.console.web.console import ConsoleOptions
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument, PipelineVersion
from odradek.pipelines.outline import OutputOutline, ProgramKind, ProgramOutline, SourceOutline
from odradek.pipelines.status import STATUS_TOPIC, Phase, PipelineStatus
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.tables import make_topics
from odradek.testing import LocalBroker

PATH = "/pipelines/upgrade"
HERE = f"{PATH}?name=copy"
PROGRAM = """
from odradek.streams import Streams
app = Streams("copy")
app.stream("flights", key="STRING").to({target!r}, name="out")
"""
RUNNING = ProgramOutline(
    kind=ProgramKind.STREAMS,
    app="copy",
    outputs=(
        OutputOutline(
            name="out",
            topic="copies",
            is_topic=True,
            sources=(SourceOutline(name="flights", topic="flights"),),
            states=(),
            sources_named=True,
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrading:
    """A console that offers the programs of a directory, for a pipeline that runs the first of them."""

    broker: LocalBroker
    browser: Browser
    programs: Path

    async def document(self) -> PipelineDocument:
        def read() -> PipelineDocument:
            with PipelineStore(self.broker.address) as store:
                return store.document("copy")

        return await asyncio.to_thread(read)

    async def dry_run(self, file: Path | str, args: str = "") -> str:
        response = await self.browser.submit(HERE, file=str(file), args=args)
        return html.unescape(response.text)

    def plan_in(self, page: str) -> dict[str, str]:
        """Returns the hidden fields of a dry run, as the form sends them back."""
        return dict(re.findall(r'type="hidden" name="(file|args|plan)" value="([^"]*)"', page))


@pytest.fixture
async def upgrading(broker: LocalBroker, admin: Admin, tmp_path: Path) -> AsyncIterator[Upgrading]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "copy.py").write_text(PROGRAM.format(target="copies"))
    (programs / "notes.txt").write_text("no program")
    version = PipelineVersion(
        number=1, program=str(programs / "copy.py"), checkpoint="copy/v1", made_ms=1_000
    )

    def fill() -> None:
        admin.create_topics([NewTopic("flights", 2), NewTopic("copies", 1)])
        with PipelineStore(broker.address) as store:
            make_topics(store.admin)
            document = PipelineDocument(name="copy", versions=(version,)).changed(5_000, "ann", "run")
            store.change("copy", lambda _: document)
        with Producer(broker.address) as producer:
            for number in range(30):
                producer.send("flights", b"x", partition=number % 2)
        running = PipelineStatus(
            name="copy",
            phase=Phase.RUNNING,
            revision=1,
            version=1,
            since_ms=1_000,
            supervisor="host",
            outline=RUNNING,
        )
        publish(broker, "copy", running)

    await asyncio.to_thread(fill)
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, programs=(str(programs),))
    async with browser_of(options) as browser:
        await seen(browser, "copies")
        yield Upgrading(broker=broker, browser=browser, programs=programs)
    topics = await asyncio.to_thread(admin.list_topics)
    wanted = {PIPELINES_TOPIC, STATUS_TOPIC, "flights", "copies", "copies.v2"}
    await asyncio.to_thread(admin.delete_topics, [PIPELINES_TOPIC, STATUS_TOPIC, *(wanted & set(topics))])


async def test_a_dry_run_is_shown_then_carried_out_as_it_was_shown(upgrading: Upgrading) -> None:
    page = (await upgrading.browser.get("/pipelines/pipeline?name=copy")).text
    assert HERE in page
    form = (await upgrading.browser.get(HERE)).text
    assert f'<option value="{upgrading.programs / "copy.py"}">' in form
    assert "notes.txt" not in form
    following = upgrading.programs / "next.py"
    following.write_text(PROGRAM.format(target="copies"))
    shown = await upgrading.dry_run(following)
    assert "it reads 30 records again, of flights" in shown
    assert re.search(r'value="keep" required(?! disabled)', shown)
    plan = upgrading.plan_in(shown)
    assert (await upgrading.document()).revision == 1, "a dry run changes nothing"

    following.write_text(PROGRAM.format(target="elsewhere"))
    refused = await upgrading.browser.submit(HERE, **plan, mode="keep")
    assert (refused.status_code, "has changed since the dry run" in refused.text) == (400, True)
    assert (await upgrading.document()).revision == 1

    following.write_text(f"{PROGRAM.format(target='copies')}other = 'code'")
    refused = await upgrading.browser.submit(HERE, **plan, mode="keep")
    assert (refused.status_code, "has changed since the dry run" in refused.text) == (400, True)
    assert (await upgrading.document()).revision == 1

    following.write_text(PROGRAM.format(target="copies"))
    made = await upgrading.browser.submit(HERE, **plan, mode="rebuild", swap_lag="7")
    assert made.status_code == 303, made.text
    document = await upgrading.document()
    assert document.candidate is not None
    assert (document.candidate.number, document.candidate.program) == (2, str(following))
    assert (document.swap_lag, document.history[-1].by) == (7, "anyone in the console")
    again = await upgrading.dry_run(following)
    assert "version 2 is being rebuilt" in again
    assert re.search(r'value="keep" required disabled', again)


async def test_a_change_that_is_late_says_that_it_may_still_follow(
    upgrading: Upgrading, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = upgrading.plan_in(await upgrading.dry_run(upgrading.programs / "copy.py"))
    monkeypatch.setattr("odradek.console.pages.pipeline_upgrade.CHANGE_WAIT_S", 0.0)
    late = await upgrading.browser.submit(HERE, **plan, mode="keep")
    assert (late.status_code, "The upgrade may still be carried out" in late.text) == (400, True)


@pytest.mark.parametrize("place", ["outside", "link", "relative", "nul", "world"])
async def test_only_programs_of_the_operator_are_loaded(
    upgrading: Upgrading, tmp_path: Path, place: str
) -> None:
    """A user of the console must not choose what code this machine runs."""
    mark, evil = tmp_path / "mark", tmp_path / "evil.py"
    evil.write_text(f"open({str(mark)!r}, 'w')\ndef pipeline(spark): pass\n")
    link, world = upgrading.programs / "link.py", upgrading.programs / "world.py"
    link.symlink_to(evil)
    world.write_text(evil.read_text())
    world.chmod(0o666)
    file = {
        "outside": str(evil),
        "link": str(link),
        "relative": "programs/copy.py",
        "nul": f"{upgrading.programs / 'copy.py'}\0",
        "world": str(world),
    }[place]
    page = await upgrading.dry_run(file)
    assert "every user of this machine can change it" in page if place == "world" else "--programs" in page
    assert 'name="mode"' not in page
    assert not mark.exists()


async def test_what_is_wrong_is_one_line_above_the_form(upgrading: Upgrading) -> None:
    broken = upgrading.programs / "broken.py"
    broken.write_text("(\n")
    assert "broken.py, line 1: '(' was never closed" in await upgrading.dry_run(broken)
    assert "The arguments cannot be split" in await upgrading.dry_run(broken, args='"')
    wrong = await upgrading.browser.submit(HERE, file=str(broken), mode="erase")
    assert (wrong.status_code, "There is no such mode." in wrong.text) == (400, True)
    lag = await upgrading.browser.submit(HERE, file=str(broken), mode="keep", swap_lag="1e9")
    assert (lag.status_code, "is a whole number" in lag.text) == (400, True)
    assert (await upgrading.browser.get(f"{PATH}?name=none")).status_code == 404


async def test_forged_forms_read_only_consoles_and_those_without_programs_upgrade_nothing(
    upgrading: Upgrading,
) -> None:
    file = str(upgrading.programs / "copy.py")
    forged = await upgrading.browser.post(HERE, token="0" * 64, file=file)
    assert forged.status_code == 403
    address = upgrading.broker.address
    programs = (str(upgrading.programs),)
    async with browser_of(
        ConsoleOptions(bootstrap=address, hosts=HOSTS, programs=programs, read_only=True)
    ) as reader:
        await seen(reader, "copies")
        assert "Upgrade to another" not in (await reader.get("/pipelines/pipeline?name=copy")).text
        assert 'name="file"' not in (await reader.get(HERE)).text
        assert (await reader.submit(HERE, file=file)).status_code == 403
    async with browser_of(ConsoleOptions(bootstrap=address, hosts=HOSTS)) as plain:
        await seen(plain, "copies")
        assert "--programs DIR" in (await plain.get(HERE)).text
        assert "odradek pipeline upgrade copy" in (await plain.get("/pipelines/pipeline?name=copy")).text
    assert (await upgrading.document()).revision == 1
