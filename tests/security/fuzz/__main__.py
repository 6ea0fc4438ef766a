"""Fuzz what peers send before and right after a login: `python -m tests.security.fuzz [TARGET...] [--executions N] [--seed N]`.

With `atheris` (`pip install atheris`) the mutations follow the coverage, one process for each target; without it they are
random, from the same seeds. `--executions` counts for each target. What fails is printed as a line of `seeds.json`: put it
there, so that `test_fuzz.py` keeps it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random

from tests.security.fuzz.mutations import mutated, seeds_of

ONE_TARGET = "--one-target-with-atheris"


def main(arguments: list[str]) -> int:
    logging.disable(logging.CRITICAL)  # a refused connection is no news here
    if arguments[:1] == [ONE_TARGET]:
        return guided(arguments[1], int(arguments[2]), int(arguments[3]))
    parser = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    known = seeds_of()
    for name in options.targets:
        if name not in known:
            parser.error(f"there is no target {name}: expected some of {', '.join(known)}")
    is_guided = find_spec("atheris") is not None
    if not is_guided:
        sys.stdout.write("atheris is absent: mutations are random, not guided by coverage\n")
    failed = 0
    for name in options.targets or known:
        begin_s = time.monotonic()
        if is_guided:
            own = [sys.executable, "-m", "tests.security.fuzz", ONE_TARGET]
            code = subprocess.run(
                [*own, name, str(options.executions), str(options.seed)], check=False
            ).returncode
        else:
            code = unguided(name, options.executions, options.seed)
        failed += code != 0
        rate = options.executions / (time.monotonic() - begin_s)
        verdict = "FAILED" if code else "holds"
        sys.stdout.write(f"{name:16} {options.executions:>10,} executions  {rate:>8,.0f}/s  {verdict}\n")
        sys.stdout.flush()
    return 1 if failed else 0


def unguided(name: str, executions: int, seed: int) -> int:
    target = importlib.import_module("tests.security.fuzz.targets").TARGETS[name]
    random = Random(seed)
    corpus = seeds_of()[name]
    for number in range(executions):
        data = corpus[number] if number < len(corpus) else mutated(random, corpus)
        try:
            target(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            sys.stdout.write(f"{name}: {json.dumps(data.decode('latin-1'))}: {error!r}\n")
            return 1
    return 0


def guided(name: str, executions: int, seed: int) -> int:
    """Does not return: the fuzzer ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["odradek"]):
        target = importlib.import_module("tests.security.fuzz.targets").TARGETS[name]

    def run(data: bytes) -> None:
        try:
            target(data)
        except Exception as error:
            sys.stdout.write(f"{name}: {json.dumps(data.decode('latin-1'))}: {error!r}\n")
            sys.stdout.flush()
            raise

    with tempfile.TemporaryDirectory(prefix="odradek-fuzz-") as corpus:
        for number, data in enumerate(seeds_of()[name]):
            (Path(corpus) / str(number)).write_bytes(data)
        flags = [f"-atheris_runs={executions}", f"-seed={seed}", "-max_len=4096", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={corpus}/", corpus], run)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
