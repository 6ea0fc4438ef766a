"""A server without queries is small: what runs queries is imported with the first one."""

import subprocess
import sys

HEAVY = {"deltalake", "numpy", "pandas", "pyarrow", "pyspark"}


def test_a_server_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; import odradek.sql.server.serving, odradek.sql.server.sql_server;"
        f"print(*sorted({HEAVY!r} & sys.modules.keys()))"
    )
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []
