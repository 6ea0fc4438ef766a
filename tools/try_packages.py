"""Build the source archive and the wheel, and try both as a user would: in environments that have nothing else.

    python -m tools.try_packages [--python PATH ...] [--json FILE]

The wheel, with the compiled engine, is tried with the Python that built it; the source archive with every Python that is
found (3.11 to 3.13), once with a C compiler and once without. In each environment a broker starts, and takes a record.
A Python that is not there says `absent`. Needs the package index. Packages that work everywhere go to `dist/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
DIST: Final = ROOT / "dist"
PYTHONS: Final = ("python3.11", "python3.12", "python3.13")
_NO_COMPILER: Final = {"CC": "/bin/false", "CXX": "/bin/false"}
_JOURNEY: Final = """
import sys
from odradek import Consumer, Producer, TopicPartition
from odradek.records import engine
from odradek.testing import LocalBroker
with LocalBroker() as broker:
    with Producer(broker.address) as producer:
        offset = producer.send("t", b"value").result().offset
    with Consumer(broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        values = [record.value for record in consumer.poll(20)]
assert (offset, values) == (0, [b"value"]), (offset, values)
assert "pyarrow" not in sys.modules and "pyspark" not in sys.modules
print(engine.active.__name__.rpartition(".")[2])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome in one environment. `engine` is the module that decodes records there."""

    artifact: str
    python: str
    compiler: bool
    verdict: str
    engine: str = ""


def build(into: Path) -> tuple[Path, Path]:
    """The source archive and the wheel. Built from what git tracks, so that nothing that lies around gets in."""
    tree = into / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(tree)], input=archive, check=True)
    environment = into / "build-env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build"], check=True)
    subprocess.run(
        [python, "-m", "build", "--outdir", str(into / "dist"), str(tree)], check=True, capture_output=True
    )
    (source,), (wheel,) = (into / "dist").glob("*.tar.gz"), (into / "dist").glob("*.whl")
    return source, wheel


def trials(source: Path, wheel: Path, pythons: list[str], folder: Path) -> Iterator[Trial]:
    """One after another."""
    yield attempt(wheel, sys.executable, folder, compiler=True)
    for python in pythons:
        for compiler in (True, False):
            yield attempt(source, python, folder, compiler=compiler)


def attempt(artifact: Path, python: str, folder: Path, *, compiler: bool) -> Trial:
    """Install the artifact in a new environment, and send a record through a broker there."""
    version = _version(python)
    if version is None:
        return Trial(artifact=artifact.name, python=python, compiler=compiler, verdict="absent")
    trial = partial(Trial, artifact=artifact.name, python=version, compiler=compiler)
    environment = folder / f"try-{version}-{artifact.suffix[1:]}-{compiler}"
    variables = os.environ | ({} if compiler else _NO_COMPILER)
    inside = environment / "bin" / "python"
    steps = (
        [python, "-m", "venv", str(environment)],
        [str(inside), "-m", "pip", "install", "--quiet", str(artifact)],
        [str(inside), "-c", _JOURNEY],
    )
    output = ""
    for step in steps:
        done = subprocess.run(step, env=variables, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return trial(verdict=f"failed: {reason}")
        output = done.stdout.strip()
    shutil.rmtree(environment)
    return trial(verdict="works", engine=output)


def _version(python: str) -> str | None:
    if shutil.which(python) is None:
        return None
    process = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True
    )
    return process.stdout.strip() if process.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", action="append", help=f"a Python to try the source archive with; default: {PYTHONS}"
    )
    parser.add_argument("--json", type=Path, help="write the results here, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-packages-") as name:
        folder = Path(name)
        source, wheel = build(folder)
        sys.stdout.write(
            f"{source.name}: {source.stat().st_size:,} bytes\n{wheel.name}: {wheel.stat().st_size:,} bytes\n\n"
        )
        done = []
        for trial in trials(source, wheel, options.python or list(PYTHONS), folder):
            done.append(trial)
            compiler = "with a compiler" if trial.compiler else "without one"
            sys.stdout.write(
                f"{trial.artifact:48} {trial.python:12} {compiler:16} {trial.engine:8} {trial.verdict}\n"
            )
            sys.stdout.flush()
        has_failed = any(trial.verdict.startswith("failed") for trial in done)
        if not has_failed:
            DIST.mkdir(exist_ok=True)
            for package in (source, wheel):
                shutil.copy2(package, DIST)
            sys.stdout.write(f"\nboth are in {DIST}\n")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(trial) for trial in done], indent=1), encoding="utf-8")
    if has_failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
