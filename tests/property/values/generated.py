"""Types, values and bytes of records, from a seed: limits of types, texts that are almost numbers, bytes almost of a record."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from typing import Any, Final

from odradek.values.types import SqlType, array_of, decimal_of, map_of, struct_of_fields

SIMPLE: Final = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")
_NUMBERS: Final = (
    *(
        "0",
        "-0",
        "1",
        "+7",
        "007",
        "1.5",
        "5.555",
        "-0.0",
        "1e3",
        "1E-3",
        "1e400",
        "-1e400",
        "5e-324",
        "0x10",
    ),
    *(
        "2147483647",
        "2147483648",
        "-2147483649",
        "9223372036854775807",
        "9223372036854775808",
        "1e18",
        "1e19",
    ),
    *("99.99", "999.99", "1000.00", "0.005", "12345678901234567890123456789012345678", "1_000", "1.5f", "1d"),
)
_ODD_NUMBERS: Final = (
    "NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "١",
    ".5",
    "5.",
    "1e999999999",
    "--1",
    "1 2",
)
_TEXTS: Final = (
    *(
        "",
        " ",
        "x",
        "é",
        "\U0001f600",
        "\x00",
        "\x85",
        "\u2028",
        "a,b",
        '"',
        '""',
        "a\nb",
        "a\r\n",
        "\t",
        "|",
        "\\",
        "'",
    ),
    *(
        "true",
        "TRUE",
        " true ",
        "yes",
        "null",
        "2020-01-02",
        "10:11:12",
        "2020-01-02T03:04:05Z",
        "AQI=",
        "A Q I=",
    ),
    *("#x", "=1", "-x", "_x", "1x", "x" * 300, "\ufeffx", " 7 ", "[1]", "{}"),
)
_FRAGMENTS: Final = (
    *(
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[null]",
        '[1,"2"]',
        '[true,"true"]',
        '{"k":1}',
        '{"K":1,"k":2}',
        '{"1":2}',
    ),
    *(
        '{"":null}',
        '"\\ud800"',
        '{"\\ud800":1}',
        '"\\u0000"',
        "NaN",
        "Infinity",
        "01",
        "+1",
        ".5",
        "1.",
        "'x'",
        "[1,]",
    ),
    *('{"k":{"k":{"k":1}}}', "[" * 40 + "]" * 40, "[" * 3000, '{"a":1}}', "1 2", "/**/1", "tru", '"open'),
)


class Generated:
    """Everything that one seed makes."""

    def __init__(self, seed: int) -> None:
        self.random: Final = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # ---- types

    def kind(self, depth: int = 0, *, is_nested: bool = True) -> SqlType:
        if not is_nested or depth > 2 or self.chance(0.6):
            if self.chance(0.2):
                precision = self.random.choice((1, 5, 18, 28, 38))
                return decimal_of(precision, self.random.randint(0, precision))
            return SqlType(kind=self.random.choice(SIMPLE))
        match self.random.randrange(3):
            case 0:
                return array_of(self.kind(depth + 1))
            case 1:
                return map_of(SqlType(kind="STRING"), self.kind(depth + 1))
        names = ("K", "x", "é")[: self.random.randint(1, 3)]
        return struct_of_fields([(name, self.kind(depth + 1)) for name in names])

    # ---- values, as rows have them

    def value(self, kind: SqlType) -> Any:  # noqa: C901 - a case for each type
        if self.chance(0.1):
            return None
        pick = self.random.choice
        match kind.kind:
            case "BOOLEAN":
                return pick((True, False))
            case "INTEGER":
                return pick((0, -1, (1 << 31) - 1, -(1 << 31), self.random.randint(-1000, 1000)))
            case "BIGINT":
                return pick((0, (1 << 63) - 1, -(1 << 63), 1 << 53, self.random.randint(-(1 << 40), 1 << 40)))
            case "DOUBLE":
                odd = (
                    0.0,
                    -0.0,
                    math.nan,
                    math.inf,
                    -math.inf,
                    5e-324,
                    1.7976931348623157e308,
                    1e7,
                    9999999.0,
                    1e-3,
                )
                return pick((*odd, self.random.uniform(-10, 10), self.random.random() * 1e22))
            case "STRING":
                return self.text()
            case "BYTES":
                return pick((b"", b"\0\xff", self.random.randbytes(self.random.randint(1, 9))))
            case "DATE":
                return pick((0, -1, -719162, 2932896, self.random.randint(-100_000, 100_000)))
            case "TIME":
                return pick((0, 86_399_999, self.random.randrange(86_400_000)))
            case "TIMESTAMP":
                return pick(
                    (0, -1, -62135596800000, 253402300799999, self.random.randint(-(1 << 44), 1 << 44))
                )
            case "DECIMAL":
                most = 10**kind.precision - 1
                unscaled = pick((0, 1, -1, most, -most, self.random.randint(-most, most)))
                return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
            case "ARRAY":
                return [self.value(kind.element) for _ in range(self.random.randint(0, 3))]
            case "MAP":
                return {self.text(): self.value(kind.element) for _ in range(self.random.randint(0, 3))}
        return {name: self.value(part) for name, part in kind.fields}

    def text(self) -> str:
        known: tuple[str, ...] = self.random.choice((_TEXTS, _NUMBERS, _ODD_NUMBERS))
        return self.random.choice(known)

    # ---- bytes

    def json(self, kind: SqlType, depth: int = 0) -> str:
        """JSON that nearly fits a type."""
        if self.chance(0.25):
            return self.random.choice((*_FRAGMENTS, *_NUMBERS, *(json.dumps(self.text()) for _ in range(9))))
        match kind.kind:
            case "ARRAY":
                return f"[{','.join(self.json(kind.element, depth + 1) for _ in range(self.random.randint(0, 3)))}]"
            case "MAP":
                count = self.random.randint(0, 3)
                return f"{{{','.join(f'{json.dumps(self.text())}:{self.json(kind.element)}' for _ in range(count))}}}"
            case "STRUCT":
                members = [
                    f"{json.dumps(self.cased(name))}:{self.json(part, depth + 1)}"
                    for name, part in kind.fields
                    if self.chance(0.9)
                ]
                self.random.shuffle(members)
                return f"{{{','.join(members)}}}"
            case "BOOLEAN":
                return self.random.choice(("true", "false", "null"))
            case "STRING" | "BYTES":
                return json.dumps(self.text(), ensure_ascii=self.chance(0.5))
        return self.random.choice((*_NUMBERS, json.dumps(self.random.choice(_NUMBERS))))

    def cased(self, name: str) -> str:
        return self.random.choice((name, name, name.lower(), name.upper(), f"{name}?"))

    def delimited(self, count: int, delimiter: str) -> str:
        fields = [
            self.random.choice((self.text(), self.random.choice(_NUMBERS), f'"{self.text()}"'))
            for _ in range(count + self.random.choice((0, 0, 0, 0, 1, -1)))
        ]
        return delimiter.join(fields)

    def spoiled(self, data: bytes) -> bytes:
        """The bytes with something wrong in them: some are cut, some have other bytes, some go on."""
        spot = self.random.randrange(len(data) + 1)
        match self.random.randrange(5):
            case 0:
                return data[:spot]
            case 1:
                return data + self.random.randbytes(self.random.randint(1, 4))
            case 2:
                return (
                    data[:spot] + self.random.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0")) + data[spot:]
                )
            case 3:
                return data[:spot] + self.random.randbytes(1) + data[spot + 1 :]
        return self.random.randbytes(self.random.randint(0, 12))
