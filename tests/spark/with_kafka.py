"""`python -m tests.spark.with_kafka [PYTEST'S WORDS]`: the tests of Spark against Apache Kafka, which is started for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peer import KafkaNode, PeerAbsentError

_HERE = Path(__file__).parent


def main() -> int:
    words = sys.argv[1:] or [str(_HERE)]
    try:
        with KafkaNode() as node:
            environment = {**os.environ, "ODRADEK_SPARK_SERVERS": node.bootstrap}
            command = [sys.executable, "-m", "pytest", "-q", "-n0", *words]
            return subprocess.run(command, env=environment, cwd=_HERE.parents[1], check=False).returncode
    except PeerAbsentError as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 0


if __name__ == "__main__":
    sys.exit(main())
