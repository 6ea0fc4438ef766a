"""Which upgrades are possible, and why the others are not: outlines of programs, compared."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outline import ProgramKind, ProgramOutline
from odradek.pipelines.outlining import outline_of_streams
from odradek.pipelines.program_file import WrongProgram, outline_of_file
from odradek.pipelines.serving import runner_command
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode, verdicts
from odradek.streams import Streams

Build = Callable[[Streams], None]
PYSPARK = ProgramOutline(kind=ProgramKind.PYSPARK)


def totals(aggregate: str = "count(*) AS n", name: str = "totals") -> Build:
    def build(app: Streams) -> None:
        orders = app.stream("orders", key="STRING", value="amount DOUBLE")
        orders.group_by_key().agg(aggregate, name=name).to("totals", name="out")

    return build


def outline(build: Build, name: str = "shop", partitions: int = 1) -> ProgramOutline:
    app = Streams(name, partitions=partitions)
    build(app)
    return outline_of_streams(app.program)


def judged(
    before: ProgramOutline | None,
    after: ProgramOutline,
    delivery: str = "exactly_once",
    rebuilding: int | None = None,
) -> dict[UpgradeMode, ModeVerdict]:
    every = verdicts(before, after, delivery=delivery, rebuilding=rebuilding)
    return {verdict.mode: verdict for verdict in every}


def reason(verdict: ModeVerdict) -> str:
    assert len(verdict.reasons) == 1, verdict.reasons
    return verdict.reasons[0]


def test_the_same_program_goes_every_way() -> None:
    modes = judged(outline(totals()), outline(totals()))
    assert [verdict.reasons for verdict in modes.values()] == [(), (), ()]


def merged(*topics: str) -> Build:
    def build(app: Streams) -> None:
        first, *others = (app.stream(topic, key="STRING", value="amount DOUBLE") for topic in topics)
        streams = first.merge(*others) if others else first
        streams.group_by_key().agg("count(*) AS n", name="totals").to("totals", name="out")

    return build


SOURCES = [merged("a", "b", "c"), merged("b", "a"), merged("b")]


@pytest.mark.parametrize("after", SOURCES)
def test_sources_without_names_stay_as_they_are(after: Build) -> None:
    plan = outline(merged("a", "b"))
    nameless = replace(plan, outputs=tuple(replace(output, sources_named=False) for output in plan.outputs))
    kept = judged(nameless, outline(after))[UpgradeMode.KEEP]
    assert reason(kept) == "out: its sources come, go or move, and have no names in its checkpoint"


@pytest.mark.parametrize("after", SOURCES)
@pytest.mark.parametrize("mode", [UpgradeMode.KEEP, UpgradeMode.CARRY])
def test_sources_with_names_come_go_and_move(after: Build, mode: UpgradeMode) -> None:
    assert judged(outline(merged("a", "b")), outline(after))[mode].is_possible


def test_a_stream_that_is_read_in_two_ways_has_no_name_in_a_checkpoint() -> None:
    def twice(app: Streams) -> None:
        orders = app.stream("orders", key="STRING", value="amount DOUBLE")
        orders.filter("amount > 1").merge(orders.filter("amount < 0")).to("totals", name="out")

    assert [output.sources_named for output in outline(twice).outputs] == [False]


def test_decisions_must_know_a_source() -> None:
    carried = judged(outline(merged("a", "b")), outline(merged("c")))[UpgradeMode.CARRY]
    assert reason(carried) == "out reads other topics only: its decisions do not contain where to begin"


def test_what_comes_and_goes_is_in_the_notes() -> None:
    carried = judged(outline(merged("a", "b")), outline(merged("a", "c")))[UpgradeMode.CARRY]
    assert carried.notes == (
        "out: c is read from its first record, or from where an earlier version stopped",
        "out: b is not read any more; its rows stay in the state",
    )


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (outline(totals("sum(amount) AS n")), "the state of 'totals' changes: it was (key="),
        (outline(totals(name="sums")), "the operator 'sums' with state is new"),
        (outline(totals(), partitions=2), "partitions was 1, and is 2: keys would be in other tasks"),
        (outline(totals(), name="store"), "the app was called 'shop', and is 'store'"),
        (PYSPARK, "it was a streams program, and is a pyspark one"),
    ],
)
def test_why_a_checkpoint_cannot_be_kept(after: ProgramOutline, why: str) -> None:
    kept = judged(outline(totals()), after)[UpgradeMode.KEEP]
    assert not kept.is_possible
    assert why in kept.reasons[0]


def test_stateless_changes_keep_the_checkpoint() -> None:
    def filtered(app: Streams) -> None:
        orders = app.stream("orders", key="STRING", value="amount DOUBLE").filter("amount > 0")
        orders.group_by_key().agg("count(*) AS n", name="totals", emit="every").to("sums", name="out")

    kept = judged(outline(totals()), outline(filtered))[UpgradeMode.KEEP]
    assert kept.is_possible
    assert kept.notes == ("out continues in topic sums; what it wrote stays in totals",)


def test_joined_rows_that_look_different_are_another_state() -> None:
    def joined(*columns: str) -> Build:
        def build(app: Streams) -> None:
            users = app.table("users", key="STRING", value="name STRING, city STRING").select(*columns)
            orders = app.stream("orders", key="STRING", value="amount DOUBLE")
            orders.join(users, name="named").to("named", name="out")

        return build

    kept = judged(outline(joined("name")), outline(joined("name", "city")))[UpgradeMode.KEEP]
    assert "the state of 'named' changes" in reason(kept)


def test_new_state_begins_empty_when_it_is_carried() -> None:
    carried = judged(outline(totals()), outline(totals(name="sums")))[UpgradeMode.CARRY]
    assert carried.is_possible
    assert "the operator 'sums' with state is new, and begins empty" in carried.notes[0]


@pytest.mark.parametrize(
    ("before", "after", "delivery", "why"),
    [
        (outline(totals()), outline(totals()), "at_least_once", "delivery is at_least_once"),
        (PYSPARK, PYSPARK, "exactly_once", "only programs of odradek.streams"),
        (None, outline(totals()), "exactly_once", "start the pipeline once"),
        (
            outline(totals()),
            outline(totals("sum(amount) AS n")),
            "exactly_once",
            "the state of 'totals' changes",
        ),
        (outline(totals()), outline(totals(), partitions=2), "exactly_once", "partitions was 1, and is 2"),
    ],
)
def test_why_state_cannot_be_carried(
    before: ProgramOutline | None, after: ProgramOutline, delivery: str, why: str
) -> None:
    assert why in reason(judged(before, after, delivery)[UpgradeMode.CARRY])


def test_a_function_is_not_called_for_all_records_again() -> None:
    def called(app: Streams) -> None:
        app.stream("orders").foreach(print, name="show")

    modes = judged(outline(called), outline(called))
    assert "it would be called for all records again" in reason(modes[UpgradeMode.REBUILD])
    assert "no decision contains how far" in reason(modes[UpgradeMode.CARRY])


def test_one_upgrade_at_a_time() -> None:
    for verdict in judged(outline(totals()), outline(totals()), rebuilding=3).values():
        assert "version 3 is being rebuilt" in reason(verdict)


def test_an_outline_survives_its_json() -> None:
    before = outline(totals())
    assert ProgramOutline.from_json(before.as_json()) == before


def test_a_version_that_was_rebuilt_goes_on_under_its_own_names(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "from odradek.streams import Streams\napp = Streams('shop')\n"
        "app.stream('a', key='STRING').to('b', name='out')\n"
    )
    continued = outline_of_file(file, [], {"ODRADEK_BOOTSTRAP": "127.0.0.1:1"}, ".v2")
    assert (continued.app, continued.outputs[0].topic) == ("shop.v2", "b.v2")


@pytest.mark.parametrize(
    ("checkpoint", "following"),
    [
        ("shop/v1", "shop/v2"),
        ("s3a://bucket/shop", "s3a://bucket/shop/v2"),
        ("s3a://bucket/shop/v1/", "s3a://bucket/shop/v2"),
    ],
)
def test_the_next_checkpoint_is_beside_the_last_one(checkpoint: str, following: str) -> None:
    version = PipelineVersion(number=1, program="shop.py", checkpoint=checkpoint)
    assert PipelineDocument(name="shop", versions=(version,)).next_checkpoint == following


def test_a_file_says_its_outline_or_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import sys\nfrom odradek.streams import Streams\nprint('chatter')\n"
        "app = Streams(sys.argv[1])\napp.stream('a').to('b')\n"
    )
    assert outline_of_file(file, ["shop"], {"ODRADEK_BOOTSTRAP": "127.0.0.1:1"}).app == "shop"
    file.write_text("app = (")
    with pytest.raises(WrongProgram, match=r"program\.py, line 1: '\(' was never closed"):
        outline_of_file(file, [], {"ODRADEK_BOOTSTRAP": "127.0.0.1:1"})


def test_the_working_directory_lends_no_modules_to_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console or a supervisor may be started in a directory that others can write to."""
    file, mark = tmp_path / "program.py", tmp_path / "mark"
    file.write_text("def pipeline(spark): pass")
    work = tmp_path / "work"
    (work / "odradek").mkdir(parents=True)
    for name in ("ipaddress.py", "odradek/__init__.py"):
        (work / name).write_text(f"open({str(mark)!r}, 'w')")
    monkeypatch.chdir(work)
    assert outline_of_file(file, [], {}).kind is ProgramKind.PYSPARK
    version = PipelineVersion(number=1, program=str(file), checkpoint="c", made_ms=1)
    words = runner_command(PipelineDocument(name="p", versions=(version,)))(0, 1)
    asks_for_help = [*words[: words.index("--name")], "--help"]
    subprocess.run(asks_for_help, check=True, capture_output=True, timeout=100)
    assert not mark.exists()
