"""Files of this machine as Spark's checkpoints have them: permissions, links, renames, without a process for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from odradek.spark.engine import local_files


def test_files_have_permissions_and_links_as_before(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    settings = local_files.settings(jvm, tmp_path / "classes")
    assert len(list((tmp_path / "classes").glob("*/*.class"))) == 4
    assert settings
    assert local_files.settings(jvm, tmp_path / "classes") == settings  # of the next session of this JVM
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    for name, value in settings.items():
        conf.set(name.removeprefix("spark.hadoop."), value)
    hadoop = jvm.org.apache.hadoop.fs
    made, moved, link = (hadoop.Path(f"file:{tmp_path}/{name}") for name in ("made", "moved", "link"))
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    files = hadoop.FileSystem.newInstance(made.toUri(), conf)
    context = hadoop.FileContext.getFileContext(made.toUri(), conf)
    for face in (files, context.getDefaultFileSystem()):
        assert face.getClass().getName() in settings.values()

    files.create(made).close()
    files.setPermission(made, jvm.org.apache.hadoop.fs.permission.FsPermission("640"))
    assert (tmp_path / "made").stat().st_mode & 0o7777 == 0o640
    files.setPermission(made, jvm.org.apache.hadoop.fs.permission.FsPermission("1640"))
    assert (tmp_path / "made").stat().st_mode & 0o7777 == 0o1640

    options = jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
    context.rename(made, moved, jvm.java.lang.reflect.Array.newInstance(options, 0))
    assert not (tmp_path / "made").exists()
    of_hadoop = hadoop.FileContext.getFileContext(made.toUri(), jvm.org.apache.hadoop.conf.Configuration())
    for path in (moved, link):
        ours, theirs = (face.getFileLinkStatus(path) for face in (context, of_hadoop))
        assert (ours.isSymlink(), ours.getPath(), ours.getPermission()) == (
            theirs.isSymlink(),
            theirs.getPath(),
            theirs.getPermission(),
        )


class _RefusingJvm:
    """One that has no Janino, for instance."""

    def __getattr__(self, name: str) -> Any:
        raise Py4JError(f"{name} does not exist in the JVM")


def test_a_jvm_that_cannot_have_them_keeps_hadoops_own() -> None:
    assert local_files.settings(_RefusingJvm(), None) == {}
