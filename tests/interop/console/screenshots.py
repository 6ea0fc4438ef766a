"""Draws the pictures of docs/console.md: `make screenshots`. The cluster exists in answers alone, so they stay the same."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from tests.interop.console.conftest import CHROMIUM, console_process

DOCS: Final = Path(__file__).parents[3] / "docs"
COLOURS: Final = 128
TOPICS: Final = 1_200


class Picture(NamedTuple):
    """One file of docs/, and how the page looks there. `height` 0: the whole page."""

    name: str
    path: str
    width: int = 1180
    height: int = 0
    scheme: str = "light"
    locale: str = "en-US"


PICTURES: Final = (
    Picture("console-overview", "/"),
    Picture("console-topics", "/topics?search=orders&sort=size", height=640, scheme="dark"),
    Picture("console-topic", "/topics/orders.team-0.v0", height=700),
    Picture("console-phone", "/", width=390, height=844, locale="ru-RU"),
)


def draw(browser: Browser, address: str, picture: Picture) -> None:
    """Writes one picture, with few colours so that it is small."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height or 800},
        color_scheme=picture.scheme,  # type: ignore[arg-type]
        locale=picture.locale,
    )
    page = context.new_page()
    page.goto(address + picture.path)
    page.locator("#figures, #list").first.wait_for()
    content = page.screenshot(full_page=not picture.height)
    context.close()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(COLOURS).save(
        DOCS / f"{picture.name}.png", optimize=True
    )


def main() -> None:
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
            with console_process("--bootstrap", bootstrap) as address, sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                first = browser.new_page()
                first.goto(address)
                first.locator("#sizes svg").wait_for(timeout=60_000)  # live: everything was read once
                for picture in PICTURES:
                    draw(browser, address, picture)
                browser.close()
        finally:
            cluster.terminate()


if __name__ == "__main__":
    main()
