"""A runner without Spark, as a process: `fake_runner.py COMMANDS REPORTS PLAY...`. Each PLAY is something it does in turn."""

import json
import os
import subprocess
import sys
import time
from typing import Any

commands, reports = int(sys.argv[1]), int(sys.argv[2])


def report(**content: Any) -> None:
    os.write(reports, json.dumps(content).encode() + b"\n")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


for play in sys.argv[3:]:
    name, _, value = play.partition("=")
    if name == "run":
        report(state="running")
    elif name == "outline":
        report(state="running", outline=json.loads(value))
    elif name == "rows":
        report(rows=int(value), batch_ms=5.0, inputs={"in": {"0": int(value)}})
    elif name == "say":
        say(value)
    elif name == "lines":
        for number in range(int(value)):
            say(f"line {number}")
    elif name == "fail":
        report(failed=value, final=False, place=["in", 0, 7])
    elif name == "final":
        report(failed=value, final=True, place=None)
    elif name == "garbage":
        os.write(reports, b"no report\n{}\n[1]\n")
    elif name == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        say(f"child {child.pid}")
    elif name == "exit":
        sys.exit(int(value))
    elif name == "deaf":
        time.sleep(600)

with os.fdopen(commands, "rb") as lines:
    for line in lines:
        command = json.loads(line)["do"]
        say(f"command {command}")
        if command == "stop":
            sys.exit(0)
        report(state={"pause": "paused", "resume": "running"}[command])
