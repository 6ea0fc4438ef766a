"""ApiVersions: which APIs in which versions, and what a broker says to a client newer than itself."""

from tests.differential.asker import Asker

from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest

NAMED = {"client_software_name": "differential", "client_software_version": "1.0"}
API_VERSIONS_99 = bytes.fromhex("0012 0063 00000007 0001 78 00")
UNKNOWN_API = bytes.fromhex("03e7 0000 00000007 0001 78")
PRODUCE_2 = bytes.fromhex("0000 0002 00000007 0001 78 ffff 00001388 00000000")


def script(peer: Asker) -> None:
    peer.ask("newest", ApiVersionsRequest(**NAMED))
    for version in (0, 1, 2):
        peer.ask(
            f"version {version}",
            ApiVersionsRequest(),
            version,
            only=lambda response: response.replace(api_keys=[]),
        )
    peer.ask("no software name", ApiVersionsRequest(client_software_version="1"), 3, only=_without_apis)
    peer.ask(
        "software name with spaces",
        ApiVersionsRequest(**NAMED | {"client_software_name": "a b"}),
        only=_without_apis,
    )
    peer.ask(
        "software name with dots",
        ApiVersionsRequest(**NAMED | {"client_software_name": "a.b-c"}),
        only=_without_apis,
    )
    peer.ask(
        "software name that ends in a dot",
        ApiVersionsRequest(**NAMED | {"client_software_name": "a."}),
        only=_without_apis,
    )
    peer.ask_raw("version 99", API_VERSIONS_99, head=14)
    peer.ask_raw("an API that does not exist", UNKNOWN_API)
    peer.ask_raw("a version that is no longer served", PRODUCE_2)


def _without_apis(response: object) -> object:
    return response.replace(api_keys=[])
