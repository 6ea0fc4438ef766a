"""What was collected before the first test stays to the end: full collections, of which a hunt for a planted bug makes one for
each seed, need not walk through ten thousand tests again and again.
"""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
