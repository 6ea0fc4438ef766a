"""The package in which Spark finds tables of the SQL server's doors: only in the JVM of the doors, which says so by its
environment.

Spark imports every top-level package named `pyspark_*` and takes its `DefaultSource`, for every session and every format. So
this module costs nothing until it is asked, and never raises.
"""

import os


def __getattr__(name: str) -> object:
    if name == "DefaultSource" and "ODRADEK_SQL_DOORS" in os.environ:
        # late-import: Spark loads this module for every format
        from odradek.sql.doors.source import OdradekSqlSource

        return OdradekSqlSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
