"""Writes the source of a decoder: one straight-line function for one (message, version).

Neighbouring fixed-width fields, the length of the variable field that follows them, and the byte that opens
the tagged section are unpacked in one call. `MetadataRequest` version 4, without the reading of a topic:

    def codec(buf, p, end, left):
        if type(buf) is not bytes: buf = bytes(buf)
        x1 = new(MetadataRequest)
        x1.include_cluster_authorized_operations = False
        x1.include_topic_authorized_operations = False
        n2, = unpack_i(buf, p)
        p += 4
        if n2 < 0:
            x1.topics = None
        else:
            if n2 * 2 > end - p: raise Fault(...)
            left -= n2
            if left < 0: raise TooManyElements
            x1.topics = a3 = []
            for i4 in range(n2):
                ...
                a3.append(x5)
        x1.allow_auto_topic_creation, = unpack_t(buf, p)
        p += 1
        return x1, p

Bounds. `p` only grows. Reading a fixed-width value past the end of `buf` raises by itself (IndexError,
struct.error); slices do not, so each variable field compares its end with `end` first. An array's count is
compared with the bytes that are left before anything is allocated for it, and taken from `left`, the elements
that the caller allows in all arrays together; so is the count of tagged fields, except the struct's own.
Structs nest as deep as they are declared, in one function.

Steps. Of the same declaration comes a generator that yields every `STEP_ELEMENTS` elements, for large messages.
"""

from __future__ import annotations

from struct import Struct as Layout

from odradek.protocol.codegen import Place, Writer, holds_records, shape_of, size_min
from odradek.protocol.errors import Fault, TooManyElements
from odradek.protocol.schema import FRESH_LIST, ArrayKind, Field, Kind, Message, Struct, StructKind
from odradek.protocol.wire import TAGS_MAX, ArrayReaders, UuidCache, read_uvarint, skip_tags

_READERS = {
    (character, compact): ArrayReaders(character, compact)
    for character in "bhHiqd?"
    for compact in (False, True)
}
_UUIDS = UuidCache()
STRING_BYTES_MAX = 32767
"""The longest string, in every version as in Kafka, though a compact length could be larger."""
STEP_ELEMENTS = 64


class DecoderSource:
    """Source code for one version of one message, in one go or `in_steps`."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.version = version
        self.flexible = version in cls.FLEXIBLE
        self.zero_copy = holds_records(cls, version)
        self.writer = Writer()
        self.writer.scope |= {
            "new": object.__new__,
            "Fault": Fault,
            "TooManyElements": TooManyElements,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "uuids": _UUIDS,
        }
        self._reset_run()

    def write(self) -> Writer:
        writer = self.writer
        with writer.block("def codec(buf, p, end, left):"):
            if self.in_steps:
                writer.line("yield")
            # Slices of bytes are far cheaper than slices of a memoryview; only records must stay where they
            # are.
            if self.zero_copy:
                writer.line("if type(buf) is not memoryview: buf = memoryview(buf)")
            else:
                writer.line("if type(buf) is not bytes: buf = bytes(buf)")
            value = self._struct(self.cls)
            self._flush()
            writer.line(f"return {value}, p")
        return writer

    # Structs

    def _struct(self, cls: type[Struct]) -> str:
        """Writes code that reads one struct; returns the variable that holds it. The last run may still be open."""
        writer = self.writer
        target = writer.fresh("x")
        shape = shape_of(cls, self.version)
        writer.line(f"{target} = new({writer.constant(cls.__name__, cls, cls)})")
        for field in (*shape.absent, *shape.tagged):
            writer.line(f"{target}.{field.name} = {self._default(field)}")
        for field in shape.plain:
            with writer.at(f".{field.name}"):
                self._field(field, f"{target}.{field.name}")
        if self.flexible:
            self._tagged(shape.tagged, target)
        return target

    def _default(self, field: Field) -> str:
        if field.default is FRESH_LIST:
            return "[]"
        if field.default is None or isinstance(field.default, bool | int | str):
            return repr(field.default)
        return self.writer.constant("default", id(field.default), field.default)

    def _tagged(self, known: list[Field], target: str) -> None:
        writer = self.writer
        marker = writer.fresh("t")
        self._run("B", marker)
        self._flush()
        with writer.block(f"if {marker}:"):
            if not known:
                writer.line(f"{marker}, _ = read_uvarint(buf, p - 1)")
                writer.line("p = skip_tags(buf, p - 1, end)")
                self._charge(marker)
                return
            number, size, stop = writer.fresh("n"), writer.fresh("n"), writer.fresh("e")
            writer.line(f"{marker}, p = read_uvarint(buf, p - 1)")
            writer.line(f'if {marker} > {TAGS_MAX}: raise Fault(f"{{{marker}}} tagged fields in one place")')
            with writer.block(f"if {marker} > {len(known)}:"):
                self._charge(f"{marker} - {len(known)}")
            with writer.block(f"for _ in range({marker}):"):
                writer.line(f"{number}, p = read_uvarint(buf, p)")
                writer.line(f"{size}, p = read_uvarint(buf, p)")
                writer.line(f"{stop} = p + {size}")
                writer.line(f'if {stop} > end: raise Fault("a tagged field reaches past the end")')
                keyword = "if"
                for field in known:
                    with writer.block(f"{keyword} {number} == {field.tag}:"), writer.at(f".{field.name}"):
                        self._field(field, f"{target}.{field.name}")
                        self._flush()
                        writer.line(f'if p != {stop}: raise Fault("a tagged field does not fill its size")')
                    keyword = "elif"
                with writer.block("else:"):
                    writer.line(f"p = {stop}")

    # Fields

    def _field(self, field: Field, target: str) -> None:
        nullable = self.version in field.nullable
        kind = field.kind
        if isinstance(kind, StructKind):
            null = ("<= 0" if self.version in field.tagged else "< 0") if nullable else None
            self._nested(kind, target, null)
        elif isinstance(kind, ArrayKind):
            self._array(kind, target, nullable)
        else:
            self._plain(kind, target, nullable)

    def _plain(self, kind: Kind[object], target: str, nullable: bool) -> None:
        if kind.name == "uuid":
            raw = self.writer.fresh("u")
            self._run("16s", raw, 16)
            self._after_run.append(f"{target} = uuids[{raw}]")
        elif kind.size:
            self._run(kind.format, target, kind.size)
        else:
            self._bytes(kind, target, nullable)

    def _nested(self, kind: StructKind[Struct], target: str, null: str | None) -> None:
        """Writes code that reads a struct; where it may be null, after a byte for null: 0 in a tagged field, else -1."""
        writer = self.writer
        if null is None:
            writer.line(f"{target} = {self._struct(kind.cls)}")
            return
        marker = writer.fresh("n")
        self._run("b", marker)
        self._flush()
        with writer.block(f"if {marker} {null}:"):
            writer.line(f"{target} = None")
        with writer.block("else:"):
            value = self._struct(kind.cls)
            self._flush()
            writer.line(f"{target} = {value}")

    def _length(self, layout: str) -> tuple[str, str]:
        """Writes code that reads a stored length or count, ending the run; returns (its variable, a test for null).

        Stored compactly it is one more than the length, and 0 for null.
        """
        writer = self.writer
        length = writer.fresh("n")
        if not self.flexible:
            self._run(layout, length, 2 if layout == "h" else 4)
            self._flush()
            return length, f"{length} < 0"
        self._run("B", length)
        self._flush()
        writer.line(f"if {length} > 127: {length}, p = read_uvarint(buf, p - 1)")
        return length, f"not {length}"

    def _bytes(self, kind: Kind[object], target: str, nullable: bool) -> None:
        writer = self.writer
        length, null = self._length("h" if kind.name == "string" else "i")
        stop = writer.fresh("e")
        if self.flexible and kind.name == "string":
            problem = f"a string of {{{length} - 1}} bytes"
            writer.line(f'if {length} > {STRING_BYTES_MAX + 1}: raise Fault(f"{problem}")')
        with writer.block(f"if {null}:"):
            writer.line(f"{target} = None" if nullable else 'raise Fault("null where a value is required")')
        with writer.block("else:"):
            writer.line(f"{stop} = p + {length}{' - 1' if self.flexible else ''}")
            problem = f"{{{stop} - p}} bytes announced, {{end - p}} left"
            writer.line(f'if {stop} > end: raise Fault(f"{problem}")')
            if kind.name == "records":
                value = f"buf[p:{stop}]"
            elif kind.name == "bytes":
                value = f"bytes(buf[p:{stop}])" if self.zero_copy else f"buf[p:{stop}]"
            else:
                value = f'str(buf[p:{stop}], "utf-8")' if self.zero_copy else f"buf[p:{stop}].decode()"
            writer.line(f"{target} = {value}")
            writer.line(f"p = {stop}")

    def _array(self, kind: ArrayKind[object], target: str, nullable: bool) -> None:
        writer = self.writer
        count, null = self._length("i")
        if kind.element.format and kind.element.name != "uuid":
            self._numbers(kind.element, target, count, null if nullable else "")
            return
        with writer.block(f"if {null}:"):
            writer.line(f"{target} = None" if nullable else 'raise Fault("null where an array is required")')
        with writer.block("else:"):
            if self.flexible:
                writer.line(f"{count} -= 1")
            least = max(1, size_min(kind.element, self.version, self.flexible))
            needed = count if least == 1 else f"{count} * {least}"
            problem = f"{{{count}}} elements cannot fit into {{end - p}} bytes"
            writer.line(f'if {needed} > end - p: raise Fault(f"{problem}")')
            self._charge(count)
            self._elements(kind.element, target, count)

    def _numbers(self, kind: Kind[object], target: str, count: str, null: str) -> None:
        """Writes code that reads an array of numbers in one call, which also refuses nulls and counts that are too large."""
        writer = self.writer
        key = (kind.format, self.flexible)
        readers = writer.constant("readers", key, _READERS[key])
        read = f"{target} = list({readers}[{count}](buf, p))"
        size = f"{count} * {kind.size}{f' - {kind.size}' if self.flexible else ''}"
        step = f"p += {size}"
        elements = f"{count} - 1" if self.flexible else count
        fits = f" and {size} <= end - p"  # a count that reaches past the end is malformed, however large
        if not null:
            self._charge(elements, fits)
            writer.line(read)
            writer.line(step)
            return
        with writer.block(f"if {null}:"):
            writer.line(f"{target} = None")
        with writer.block("else:"):
            self._charge(elements, fits)
            writer.line(read)
            writer.line(step)

    def _charge(self, count: str, fits: str = "") -> None:
        """Writes code that subtracts an array's elements, or tagged fields, from the allowed number."""
        self.writer.line(f"left -= {count}")
        self.writer.line(f"if left < 0{fits}: raise TooManyElements")

    def _elements(self, kind: Kind[object], target: str, count: str) -> None:
        writer = self.writer
        items, index = writer.fresh("a"), writer.fresh("i")
        writer.line(f"{target} = {items} = []")
        with writer.block(f"for {index} in range({count}):"), writer.at(f"[{{{index}}}]"):
            if self.in_steps:
                writer.line(f"if not {index} % {STEP_ELEMENTS}: yield")
            if isinstance(kind, StructKind):
                value = self._struct(kind.cls)
            else:
                value = writer.fresh("v")
                self._plain(kind, value, nullable=False)
            self._flush()
            writer.line(f"{items}.append({value})")

    # Runs of fixed-width fields

    def _reset_run(self) -> None:
        self._formats: list[str] = []
        self._targets: list[str] = []
        self._places: list[Place] = []
        self._run_size = 0
        self._after_run: list[str] = []

    def _run(self, layout: str, target: str, size: int = 1) -> None:
        """Adds one fixed-width value to the run that `_flush` will read."""
        self._formats.append(layout)
        self._targets.append(target)
        self._places.append(Place(self.writer.path, self._run_size, size))
        self._run_size += size

    def _flush(self) -> None:
        """Writes code that reads the open run, if there is one."""
        if not self._formats:
            return
        writer = self.writer
        places = tuple(self._places)
        if self._formats == ["B"]:
            writer.line(f"{self._targets[0]} = buf[p]", places)
        else:
            layout = "".join(self._formats)
            stem = "unpack_" + layout.replace("?", "t")
            unpack = writer.constant(stem, layout, Layout(">" + layout).unpack_from)
            comma = "," if len(self._targets) == 1 else ""
            writer.line(f"{', '.join(self._targets)}{comma} = {unpack}(buf, p)", places)
        writer.line(f"p += {self._run_size}")
        for line in self._after_run:
            writer.line(line)
        self._reset_run()
