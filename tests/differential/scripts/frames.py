"""Frames made by hand: what lies about its length, ends too early or goes on, and what a reader must step over.

An answer is noted as its first bytes, so that the id of the cluster and the like stay out.
"""

from tests.differential.asker import Asker

API_VERSIONS_2 = "0012 0002 00000007"
METADATA_0 = "0003 0000 00000007"
METADATA_12 = "0003 000c 00000007"
LIST_GROUPS_0 = "0010 0000 00000007"
HEARTBEAT_0 = "000c 0000 00000007"
CLIENT = "0001 78"
BIG = "7fffffff"


def script(peer: Asker) -> None:
    def ask(step: str, *parts: str, head: int = 6) -> None:
        peer.ask_raw(step, bytes.fromhex("".join(parts)), head=head)

    ask("nothing", "")
    ask("one byte", "00")
    ask("half a header", "0012 0002")
    ask("a header without a client", API_VERSIONS_2)
    ask("a null client", API_VERSIONS_2, "ffff")
    ask("an empty client", API_VERSIONS_2, "0000")
    ask("a client that is longer than the frame", API_VERSIONS_2, "0064 78")
    ask("a client of a negative length", API_VERSIONS_2, "fffe")
    ask("a client that is no text", API_VERSIONS_2, "0002 c328")
    ask("a negative correlation id", "0012 0002 ffffffff", CLIENT)
    ask("more than the request", API_VERSIONS_2, CLIENT, "00112233")
    ask("a request that ends too early", METADATA_0, CLIENT, "0000")
    ask("a request that is missing", METADATA_0, CLIENT)
    ask("an array longer than the frame", METADATA_0, CLIENT, BIG)
    ask("an array of a negative length", METADATA_0, CLIENT, "fffffffe")
    ask("a null array where none may be", METADATA_0, CLIENT, "ffffffff")
    ask("a null text where none may be", METADATA_0, CLIENT, "00000001 ffff")
    ask("a null text as a group", HEARTBEAT_0, CLIENT, "ffff 00000000 0000", head=4)
    ask("a text longer than the frame", METADATA_0, CLIENT, "00000001 0064 78")
    ask("a negative key", "ffff 0000 00000007", CLIENT)
    ask("a negative version", "0003 ffff 00000007", CLIENT)
    ask("a version to come", "0003 0063 00000007", CLIENT)
    _tags(peer)


def _tags(peer: Asker) -> None:
    none, unknown, twice = "00", "01 63 02 aabb", "02 63 00 63 00"
    no_topics = "01 00 00"

    def ask(step: str, header_tags: str, body: str) -> None:
        peer.ask_raw(step, bytes.fromhex(METADATA_12 + CLIENT + header_tags + body), head=5)

    ask("no tags", none, no_topics + none)
    ask("an unknown tag in the header", unknown, no_topics + none)
    ask("an unknown tag in the body", none, no_topics + unknown)
    ask("a tag twice", none, no_topics + twice)
    ask("tags in falling order", none, no_topics + "02 64 00 63 00")
    ask("a tag that is longer than the frame", none, no_topics + "01 63 7f aa")
    ask("more tags than there are", none, no_topics + "05 63 00")
    ask("a number of tags without end", none, no_topics + "ff ff ff ff ff ff")
    ask("a compact array longer than the frame", none, "ff ff ff ff 07")
    ask("a boolean that is neither", none, "01 02 00" + none)
