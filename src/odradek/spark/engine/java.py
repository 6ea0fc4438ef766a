"""Is there a Java that Spark can run on? Asked before anything heavy starts, answered in one sentence.

Looks where PySpark itself looks: `$JAVA_HOME/bin/java` if JAVA_HOME is set, else `java` on the PATH. Imports
no PySpark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST_JAVA: Final = 17
"""The oldest version of Java that Spark 4 runs on."""
_ANSWER_TIMEOUT_S: Final = 30
_ADVICE: Final = (
    f"install Java {OLDEST_JAVA} or newer"
    " (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """The Java that was found. `problem` is None when Spark can use it, else one sentence for people."""

    path: str | None
    version: int | None
    problem: str | None


def java_program(environment: Mapping[str, str]) -> str | None:
    """Returns the path of the Java that PySpark would use; it may not exist, or not run. None: PySpark would find none."""
    home = environment.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Finds Java as PySpark would, and asks for its version."""
    environment = os.environ if environment is None else environment
    path = java_program(environment)
    if path is None:
        return _unusable(f"Spark needs Java, and there is none on this machine: {_ADVICE}.")
    home = environment.get("JAVA_HOME")
    if home and not os.access(path, os.X_OK):
        return _unusable(
            f"JAVA_HOME is {home}, but there is no program bin/java in it: correct it, or {_ADVICE}."
        )
    return _probe(path)


def _unusable(problem: str, path: str | None = None, version: int | None = None) -> Java:
    return Java(path=path, version=version, problem=problem)


def _probe(path: str) -> Java:
    try:
        finished = subprocess.run(  # -version prints to standard error, whatever the vendor
            [path, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _unusable(f"{path} does not run ({error}): {_ADVICE}.", path)
    version = java_version(finished.stderr + finished.stdout)
    if version is None:
        return _unusable(f"{path} did not print its version: {_ADVICE}.", path)
    if version < OLDEST_JAVA:
        return _unusable(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {path} is Java {version}: {_ADVICE}.",
            path,
            version,
        )
    return Java(path=path, version=version, problem=None)


def java_version(output: str) -> int | None:
    """Returns the major version in what `java -version` printed: 8 for "1.8.0_292", 17 for "17.0.15", 22 for
    "22-ea".
    """
    match = re.search(r'version "(?:1\.)?([0-9]+)', output)
    return int(match.group(1)) if match else None
