"""What Spark imports by itself costs nothing and breaks nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from odradek.model.errors import ConfigError


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_it_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import pyspark_odradek; print(sorted(set(sys.modules) - before))"
    assert run(program).strip() == "['pyspark_odradek']"


def test_it_exposes_the_data_source() -> None:
    pytest.importorskip("pyspark", reason="PySpark is absent")
    assert (
        run("import pyspark_odradek as p; print(p.DefaultSource.name(), hasattr(p, 'other'))").strip()
        == "odradek False"
    )


def test_without_what_it_needs_it_exposes_nothing_and_does_not_raise() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_odradek as p; print(hasattr(p, 'DefaultSource'))"
    assert run(program).strip() == "False"


def test_the_source_needs_neither_pyarrow_nor_the_client_to_be_found() -> None:
    pytest.importorskip("pyspark", reason="PySpark is absent")
    program = (
        "import sys, pyspark.sql.datasource, pyspark.sql.streaming.datasource; before = set(sys.modules);"
        "import odradek.spark.source; new = set(sys.modules) - before;"
        "print([m for m in new if m.startswith(('pyarrow', 'odradek.client', 'odradek.protocol', 'asyncio'))])"
    )
    assert run(program).strip() == "[]"


def test_a_stream_that_cannot_be_says_why_when_it_is_first_asked_and_not_while_it_is_made() -> None:
    source = pytest.importorskip("odradek.spark.source", reason="PySpark is absent")
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingOffsets": "latest"}
    data_source = source.OdradekDataSource(options)
    schema = pytest.importorskip("pyspark.sql.types").StructType([])
    reader = pickle.loads(pickle.dumps(data_source.streamReader(schema)))
    for ask in (reader.initialOffset, reader.getDefaultReadLimit, lambda: reader.partitions({}, {})):
        with pytest.raises(ConfigError, match="endingOffsets does not apply to a streaming read"):
            ask()
