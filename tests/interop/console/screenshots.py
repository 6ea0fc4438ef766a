"""Draws the pictures of docs/console.md: `make screenshots`. Most are of a cluster that exists in answers alone, and stay the
same; those of SQL and pipelines are of a broker.
"""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import numpy
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from tests.interop.console.conftest import CHROMIUM, console_process
from tests.interop.console.flowing import FLIGHTS, LIVE_QUERY, flowing_console

DOCS: Final = Path(__file__).parents[3] / "docs"
COLOURS: Final = 128
TOPICS: Final = 1_200


class Picture(NamedTuple):
    """One file of docs/, how the page looks there, and a text that it must show. `height` 0: the whole page."""

    name: str
    path: str
    width: int = 1180
    height: int = 0
    text: str = ""
    scheme: str = "light"
    locale: str = "en-US"


PICTURES: Final = (
    Picture("console-overview", "/"),
    Picture("console-topics", "/topics?search=orders&sort=size", height=640, scheme="dark"),
    Picture("console-topic", "/topics/orders.team-0.v0", height=700),
    Picture("console-phone", "/", width=390, height=844, locale="ru-RU"),
    Picture("console-people", "/people/rules", height=560),
    Picture("console-cluster", "/cluster", height=780, text="Partitions that are being moved: 3"),
)


_BOTTOM_OF_WHOLE_ROWS: Final = """height => Math.min(height, document.documentElement.scrollHeight, ...
[...document.querySelectorAll("tr, li, dl, h2, p, pre, figcaption, svg, form, .broker")]
.map(part => part.getBoundingClientRect())
.filter(box => box.height && box.top < height && box.bottom > height).map(box => box.top))"""


def shot(page: Page, height: int) -> bytes:
    """Returns the page from its top, at most so high, and without a row that would be cut."""
    whole = math.floor(page.evaluate(_BOTTOM_OF_WHOLE_ROWS, height))
    width = page.viewport_size["width"] if page.viewport_size else 0
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": whole})


def draw(browser: Browser, address: str, picture: Picture) -> None:
    """Writes one picture, with few colours so that it is small."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height or 800},
        color_scheme=picture.scheme,  # type: ignore[arg-type]
        locale=picture.locale,
    )
    page = context.new_page()
    page.goto(address + picture.path)
    page.locator("#figures, #list, #time-line").first.wait_for()
    page.get_by_text(picture.text).first.wait_for()
    content = shot(page, picture.height) if picture.height else page.screenshot(full_page=True)
    context.close()
    save(content, picture.name)


def save(content: bytes, name: str) -> None:
    """Writes a picture of docs/ with its most frequent colours: small marks keep theirs, shades of letters do not."""
    pixels = numpy.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    colours, where, counts = numpy.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = colours[numpy.argsort(-counts, kind="stable")[:COLOURS]].astype(int)
    nearest = [int(numpy.argmin(((palette - colour) ** 2).sum(axis=1))) for colour in colours.astype(int)]
    indices = numpy.array(nearest, dtype=numpy.uint8)[where.reshape(pixels.shape[:2])]
    image = Image.fromarray(indices, "P")
    image.putpalette(palette.astype(numpy.uint8).tobytes())
    path = DOCS / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    image.save(path, optimize=True)


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        draw_cluster(browser)
        with flowing_console() as address:
            draw_flow(browser, address)
        browser.close()


def draw_flow(browser: Browser, address: str) -> None:
    """Draws the editor with rows and their chart, and a pipeline."""
    context = browser.new_context(viewport={"width": 1180, "height": 900}, locale="en-US")
    page = context.new_page()
    page.goto(f"{address}/sql/editor")
    page.get_by_label("Statements").fill(LIVE_QUERY)
    page.get_by_label("from the first record on").check()
    page.get_by_role("button", name="Run").click()
    page.get_by_text(f"Running: {FLIGHTS} rows so far.").wait_for()
    page.get_by_label("Chart").select_option("bars")
    page.get_by_role("button", name="Draw").click()
    page.locator(".value-bars li").nth(FLIGHTS - 1).wait_for()
    save(shot(page, 972), "console-sql")
    page.goto(f"{address}/pipelines/pipeline?name=totals")
    page.locator("#troubles .problem").wait_for(state="detached")  # live: the supervisor has joined
    page.locator(".graph-rate").first.wait_for(timeout=60_000)  # live: two moments were seen
    save(shot(page, 1000), "console-pipeline")
    context.close()


def draw_cluster(browser: Browser) -> None:
    """Draws the pages of a cluster that exists in answers alone."""
    command = [
        sys.executable,
        "-m",
        "tests.interop.console.scripted_cluster",
        "--topics",
        str(TOPICS),
        "--dead",
        "4",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            bootstrap = cluster.stdout.readline().split()[1]
            with console_process("--bootstrap", bootstrap) as address:
                first = browser.new_page()
                first.goto(address)
                first.locator("#sizes svg").wait_for(timeout=60_000)  # live: everything was read once
                first.close()
                for picture in PICTURES:
                    draw(browser, address, picture)
        finally:
            cluster.terminate()


if __name__ == "__main__":
    main()
