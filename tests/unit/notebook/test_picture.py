"""Pictures of `odradek.show`: one piece of HTML that nothing can break out of, and the same as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from operator import methodcaller

import pytest

from odradek.notebook.picture import ROWS_MAX, TEXT_CHARS_MAX, Picture, PictureRow

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><b>',
    "' onmouseover='x",
    "&lt;b&gt;",
    "</td></table><h1>",
    "javascript:alert(1)",
    "\x1b[31mred",
    "a\u202eb",
    "\ud800",
]


class Tags(HTMLParser):
    """Collects tags, attributes and texts; each tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(picture: Picture) -> Tags:
    tags = Tags()
    tags.feed(picture.html)
    tags.close()
    assert tags.open == []
    return tags


def picture_of(text: str) -> Picture:
    return Picture(
        title=text,
        facts=((text, text),),
        problems=(text,),
        columns=(text, "n"),
        rows=(PictureRow(cells=(text, 1_234), share=0.5), PictureRow(cells=(text, None))),
        bar=text,
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup_or_a_control_character(text: str) -> None:
    tags = parsed(picture_of(text))
    assert tags.names <= {"div", "span", "table", "thead", "tbody", "tr", "th", "td"}
    assert tags.attributes <= {"style", "scope", "role", "aria-label"}
    html = picture_of(text).html
    assert "http" not in html
    for shown in (html, str(picture_of(text))):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", shown)
        shown.encode()


def test_html_and_text_show_the_same() -> None:
    picture = picture_of("orders")
    texts = parsed(picture).texts
    for word in ("orders", "1,234", "–"):
        assert word in texts
        assert word in str(picture)
    assert "width:60px" in picture.html
    assert "##########" in str(picture)
    assert repr(picture) == str(picture)
    assert methodcaller("_repr_html_")(picture) == picture.html, "Jupyter looks for this name"


def test_many_rows_and_long_texts_are_cut_and_counted() -> None:
    rows = tuple(PictureRow(cells=(number,)) for number in range(ROWS_MAX + 7))
    picture = Picture(title="x" * 10_000, columns=("n",), rows=rows)
    assert "… and 7 more" in parsed(picture).texts
    assert str(picture).endswith("… and 7 more")
    assert len(parsed(picture).texts[0]) == TEXT_CHARS_MAX + 1


def test_a_share_beyond_its_bounds_is_drawn_within_them() -> None:
    picture = Picture(
        title="t",
        columns=("n",),
        rows=(PictureRow(cells=(1,), share=7.0), PictureRow(cells=(2,), share=-1.0)),
        bar="b",
    )
    assert re.findall(r"width:(\d+)px", picture.html) == ["120", "0"]
