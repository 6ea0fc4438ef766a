"""Write `acls.txt` beside this file: which operations on which kinds of resource Kafka's handlers ask its authorizer about.

    jars=$(.venv/bin/python -m benchmarks.peer --fetch-only)
    .venv/bin/python tests/golden/protocol/kafka-4.4.0/record_acls.py $jars

Needs a JDK: it is read from the compiled handlers, by the constants that each of their methods uses.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from odradek.protocol import APIS

CLASSES = (
    "kafka.server.KafkaApis",
    "kafka.server.ControllerApis",
    "kafka.server.AclApis",
    "kafka.server.ConfigHelper",
    "kafka.server.handlers.DescribeTopicPartitionsRequestHandler",
)
METHODS = {
    "AddPartitionsToTxn": ("handleAddPartitionsToTxnRequest",),
    "AlterConfigs": ("authorizeAlterResource",),
    "ConsumerGroupDescribe": ("handleConsumerGroupDescribe",),
    "CreatePartitions": ("filterAlterAuthorizedTopics",),
    "DescribeDelegationToken": ("handleDescribeTokensRequest", "authorizeToken", "authorizeRequester"),
    "DescribeShareGroupOffsets": (
        "handleDescribeShareGroupOffsetsRequest",
        "describeShareGroupOffsetsForGroup",
        "describeShareGroupAllOffsetsForGroup",
    ),
    "FindCoordinator": ("getCoordinator",),
    "IncrementalAlterConfigs": ("authorizeAlterResource", "handleIncrementalAlterConfigs"),
    "ListOffsets": ("handleListOffsetRequest",),
    "Metadata": ("handleTopicMetadataRequest",),
    "OffsetFetch": ("handleOffsetFetchRequest", "fetchOffsetsForGroup", "fetchAllOffsetsForGroup"),
}
"""Where a handler is not named after its API alone."""
BY_ANOTHER_HANDLER = {("Fetch", "handleFetch")}
"""KRaft controllers' own."""
_METHOD = re.compile(r"  (?:public|private|protected|static).*? (\S+)\(")
_CONSTANT = re.compile(r"(AclOperation|ResourceType)\.([A-Z_]+):")


def main(jars: Path) -> None:
    results = list(_constants(jars))
    lines = []
    for api in APIS.values():
        names = METHODS.get(api.name) or (f"handle{api.name}", f"handle{api.name}Request")
        asked: set[str] = set()
        for method, constants in results:
            plain = re.sub(r"^(\$anonfun\$|lambda\$)|\$.*$", "", method)
            if plain in names and (api.name, plain) not in BY_ANOTHER_HANDLER:
                asked |= set(_pairs(constants))
        if asked:
            lines.append(f"{api.name}: {', '.join(sorted(asked))}\n")
    Path(__file__).with_name("acls.txt").write_text("".join(lines))


def _constants(jars: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each method with the constants that it uses, in order."""
    for cls in CLASSES:
        code = subprocess.run(
            ["javap", "-p", "-c", "-cp", f"{jars}/*", cls], capture_output=True, text=True, check=True
        ).stdout
        method = ""
        constants: list[tuple[str, str]] = []
        for line in code.splitlines():
            if begins := _METHOD.match(line):
                yield method, constants
                method, constants = begins[1], []
            elif constant := _CONSTANT.search(line):
                constants.append((constant[1], constant[2]))
        yield method, constants


def _pairs(constants: list[tuple[str, str]]) -> Iterator[str]:
    """An operation and the resource after it. Without one it is the cluster: `authorizeClusterOperation` names that itself."""
    for at, (kind, name) in enumerate(constants):
        if kind == "AclOperation":
            following = constants[at + 1] if at + 1 < len(constants) else ("", "")
            yield f"{name} {following[1] if following[0] == 'ResourceType' else 'CLUSTER'}"


main(Path(sys.argv[1]))
