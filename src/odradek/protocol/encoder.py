"""Writes the source of an encoder: one straight-line function for one (message, version).

The function appends to a bytearray and returns the chunks of the message: that bytearray alone or, when there
are large records, pieces of it with the caller's own record buffers between them, uncopied.

What the elements of its arrays cost is bounded by `left`, as in `decoder.py`; and there is a generator, too.

Neighbouring fixed-width fields, and the length of the variable field that follows them, are packed in one
call. Arrays of numbers are looked up whole, see `wire.EncodedArrays`.
"""

from __future__ import annotations

import dataclasses
from struct import Struct as Layout

from odradek.protocol.codegen import Place, Writer, holds_records, shape_of
from odradek.protocol.decoder import STEP_ELEMENTS
from odradek.protocol.errors import Fault, TooManyElements
from odradek.protocol.schema import FRESH_LIST, ArrayKind, Field, Kind, Message, Struct, StructKind
from odradek.protocol.wire import EncodedArrays, tag_prefix, uvarint

CHUNK_BYTES_MIN = 16 * 1024
"""Records of at least this size stay a chunk of their own; copying smaller ones costs less than a longer writev."""


_ARRAYS = {
    (character, compact): EncodedArrays(character, compact)
    for character in "bhHiqd?"
    for compact in (False, True)
}


@dataclasses.dataclass(slots=True)
class _Run:
    """Fixed-width values that will be packed in one call."""

    layouts: list[str] = dataclasses.field(default_factory=list)
    arguments: list[str] = dataclasses.field(default_factory=list)
    places: list[Place] = dataclasses.field(default_factory=list)

    def copy(self) -> _Run:
        return _Run(self.layouts[:], self.arguments[:], self.places[:])


class EncoderSource:
    """Source for one version of one message, in one go or `in_steps`."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.version = version
        self.flexible = version in cls.FLEXIBLE
        self.chunked = holds_records(cls, version)
        self.writer = Writer()
        self.writer.scope |= {
            "Fault": Fault,
            "TooManyElements": TooManyElements,
            "uvarint": uvarint,
            "tag_prefix": tag_prefix,
        }
        self._run = _Run()

    def write(self) -> Writer:
        writer = self.writer
        with writer.block("def codec(x, out, left):"):
            if self.in_steps:
                writer.line("yield; done = 0")
            if self.chunked:
                writer.line("chunks = []")
            self._struct(self.cls, "x")
            self._flush()
            if self.chunked:
                writer.line("if out or not chunks: chunks.append(out)")
                writer.line("return chunks")
            else:
                writer.line("return [out]")
        return writer

    # Structs

    def _struct(self, cls: type[Struct], source: str) -> None:
        """Writes code that writes one struct. The last run may still be open."""
        shape = shape_of(cls, self.version)
        for field in shape.absent:
            if not field.ignorable:
                with self.writer.at(f".{field.name}"):
                    differs = self._differs(field, f"{source}.{field.name}")
                    self.writer.line(f'if {differs}: raise Fault("not in this version")')
        for field in shape.plain:
            with self.writer.at(f".{field.name}"):
                self._field(field, f"{source}.{field.name}")
        if not self.flexible:
            return
        if shape.tagged:
            self._flush()
            self._tagged(shape.tagged, source)
        else:
            self._pack("x", None)

    def _differs(self, field: Field, value: str) -> str:
        """Returns an expression that tests whether the field differs from its default."""
        if field.default is FRESH_LIST:
            return f"{value} or {value} is None" if field.nullable else value
        if field.default is None:
            return f"{value} is not None"
        if field.default is False:
            return value
        if isinstance(field.default, bool | int | str):
            return f"{value} != {field.default!r}"
        default = self.writer.constant("default", id(field.default), field.default)
        return f"{value} is not {default} and {value} != {default}"

    def _tagged(self, fields: list[Field], source: str) -> None:
        writer = self.writer
        start, begin, number = writer.fresh("s"), writer.fresh("s"), writer.fresh("k")
        differs = [self._differs(field, f"{source}.{field.name}") for field in fields]
        with writer.block(
            "if " + " or ".join(f"({test})" if " " in test else test for test in differs) + ":"
        ):
            writer.line(f"{start} = len(out); {number} = 0")
            for field, test in zip(fields, differs, strict=True):
                with writer.block(f"if {test}:"), writer.at(f".{field.name}"):
                    writer.line(f"{number} += 1; {begin} = len(out)")
                    self._field(field, f"{source}.{field.name}")
                    self._flush()
                    writer.line(f"out[{begin}:{begin}] = tag_prefix({field.tag}, len(out) - {begin})")
            writer.line(f"out[{start}:{start}] = uvarint({number})")
        with writer.block("else:"):
            writer.line("out.append(0)")

    # Fields

    def _field(self, field: Field, value: str) -> None:
        nullable = self.version in field.nullable
        kind = field.kind
        if isinstance(kind, StructKind):
            null = (0 if self.version in field.tagged else 255) if nullable else None
            self._nested(kind, value, null)
        elif isinstance(kind, ArrayKind):
            self._array(kind, value, nullable)
        else:
            self._plain(kind, value, nullable)

    def _plain(self, kind: Kind[object], value: str, nullable: bool) -> None:
        if kind.name == "uuid":
            self._pack("16s", f"{value}.bytes")
        elif kind.size:
            self._pack(kind.format, value)
        else:
            self._bytes(kind, value, nullable)

    def _nested(self, kind: StructKind[Struct], value: str, null: int | None) -> None:
        """Writes code that writes a struct; where it may be null, with a byte before it. Tagged, that is 0 for null, else
        -1."""
        writer = self.writer
        inner = writer.fresh("x")
        self._flush()
        writer.line(f"{inner} = {value}")
        if null is None:
            self._struct(kind.cls, inner)
            return
        with writer.block(f"if {inner} is None:"):
            writer.line(f"out.append({null})")
        with writer.block("else:"):
            self._pack("b", "1")
            self._struct(kind.cls, inner)
            self._flush()

    def _bytes(self, kind: Kind[object], value: str, nullable: bool) -> None:
        writer = self.writer
        content, length = writer.fresh("v"), writer.fresh("n")
        text = kind.name == "string"
        if nullable:
            writer.line(f"{content} = {value}")
            with writer.block(f"if {content} is None:"):
                writer.line(f'{content} = b""; {length} = -1')
            with writer.block("else:"):
                if text:
                    writer.line(f"{content} = {content}.encode()")
                writer.line(f"{length} = len({content})")
        else:
            writer.line(f"{content} = {value}.encode()" if text else f"{content} = {value}")
            writer.line(f"{length} = len({content})")
        self._length(length, "h" if text else "i")
        if kind.name == "records":
            with writer.block(f"if {length} < {CHUNK_BYTES_MIN}:"):
                writer.line(f"out += {content}")
            with writer.block("else:"):
                writer.line(f"chunks.append(out); chunks.append({content}); out = bytearray()")
        else:
            writer.line(f"out += {content}")

    def _length(self, length: str, wide: str) -> None:
        """Writes code for a length (-1 for null) as the last part of the open run."""
        writer = self.writer
        if not self.flexible:
            self._pack(wide, length)
            self._flush()
            return
        before = self._run.copy()
        with writer.block(f"if {length} < 127:"):
            self._pack("B", f"{length} + 1")
            self._flush()
        with writer.block("else:"):
            self._run = before
            self._flush()
            writer.line(f"out += uvarint({length} + 1)")

    def _array(self, kind: ArrayKind[object], value: str, nullable: bool) -> None:
        element = kind.element
        if element.format and element.name != "uuid":
            self._numbers(element, value, nullable)
            return
        writer = self.writer
        items, count = writer.fresh("a"), writer.fresh("n")
        writer.line(f"{items} = {value}")
        if nullable:
            with writer.block(f"if {items} is None:"):
                writer.line(f"{items} = (); {count} = -1")
            with writer.block("else:"):
                writer.line(f"{count} = len({items})")
        else:
            writer.line(f"{count} = len({items})")
        self._length(count, "i")
        writer.line(f"left -= {count}")
        writer.line("if left < 0: raise TooManyElements")
        element_name = writer.fresh("x")
        with writer.block(f"for {element_name} in {items}:"), writer.at(f"[{{{items}:{element_name}}}]"):
            if self.in_steps:
                writer.line("done += 1")
                writer.line(f"if not done % {STEP_ELEMENTS}: yield")
            if isinstance(element, StructKind):
                self._struct(element.cls, element_name)
            else:
                self._plain(element, element_name, nullable=False)
            self._flush()

    def _numbers(self, kind: Kind[object], value: str, nullable: bool) -> None:
        writer = self.writer
        self._flush()
        key = (kind.format, self.flexible)
        arrays = writer.constant("arrays", key, _ARRAYS[key])
        if nullable:
            items = writer.fresh("a")
            writer.line(f"{items} = {value}")
            writer.line(f"out += {arrays}[None if {items} is None else tuple({items})]")
        else:
            writer.line(f"out += {arrays}[tuple({value})]")

    # Runs of fixed-width fields

    def _pack(self, layout: str, argument: str | None) -> None:
        """Adds one fixed-width value to the run that `_flush` will write. The layout x is a zero without argument."""
        self._run.layouts.append(layout)
        if argument is not None:
            self._run.arguments.append(argument)
            self._run.places.append(Place(self.writer.path, check=(layout, argument)))

    def _flush(self) -> None:
        """Writes code that writes the open run, if there is one."""
        run, writer = self._run, self.writer
        self._run = _Run()
        arguments, places = ", ".join(run.arguments), tuple(run.places)
        if run.layouts == ["B"]:
            writer.line(f"out.append({arguments})", places)
        elif run.layouts and not arguments:
            writer.line(f"out += {bytes(len(run.layouts))!r}")
        elif run.layouts:
            layout = "".join(run.layouts)
            stem = "pack_" + layout.replace("?", "t")
            pack = writer.constant(stem, layout, Layout(">" + layout).pack)
            writer.line(f"out += {pack}({arguments})", places)
