"""The differences between Kafka's facts and ours, and the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.contract.parity.declared import declared, normal
from tests.contract.parity.reasons import REASONS, REASONS_OF_UNSUPPORTED, Reason
from tests.contract.parity.recording import Facts

ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where we differ. `place`: section/item, or section/item: attribute."""

    place: str
    kafka: Any
    here: Any

    @property
    def section(self) -> str:
        return self.place.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.place}: Kafka has {self.kafka}, here is {self.here}"


def differences(kafka: Facts) -> list[Difference]:
    """Compares the facts of one release of Kafka with what is declared here."""
    theirs = normal(kafka)
    ours = declared(kafka)
    return [
        difference
        for section in sorted(theirs)
        for difference in _section(section, theirs[section], ours.get(section, {}))
    ]


def _section(section: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Difference]:
    absent: list[str] = []
    for name in sorted(theirs.keys() | ours.keys()):
        if name.startswith(tuple(f"{path}." for path in absent)) and section == "message":
            continue  # the message or the struct around it is absent already
        place = f"{section}/{name}"
        if name not in ours or ours[name].get("effective") is False:
            absent.append(name)
            yield Difference(place=place, kafka="it", here=ABSENT if name not in ours else "without effect")
        elif name not in theirs:
            absent.append(name)
            yield Difference(place=place, kafka=ABSENT, here="our own")
        else:
            yield from _attributes(place, theirs[name], ours[name])


def _attributes(place: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Difference]:
    for attribute in sorted(theirs.keys() | ours.keys()):
        kafka, here = theirs.get(attribute), ours.get(attribute)
        if attribute == "accepts" and here is not None and kafka is not None:
            for text in kafka:
                if kafka[text] != here[text]:
                    yield Difference(
                        place=f"{place}: accepts {text!r}", kafka=_yes(kafka[text]), here=_yes(here[text])
                    )
        elif attribute not in ("accepts", "required") and kafka != here:
            yield Difference(place=f"{place}: {attribute}", kafka=kafka, here=here)


def _yes(is_accepted: bool) -> str:
    return "yes" if is_accepted else "no"


def without_effect() -> set[str]:
    """Returns the keys of brokers' settings that `odradek.config.unsupported` explains, of whatever release."""
    return {place.partition("/")[2] for reason in REASONS_OF_UNSUPPORTED for place in reason.places}


def reason_for(difference: Difference) -> Reason | None:
    reasons = (*REASONS, *REASONS_OF_UNSUPPORTED)
    return next((reason for reason in reasons if reason.explains(difference.place)), None)


def unexplained(differing: Iterable[Difference]) -> list[Difference]:
    return [difference for difference in differing if reason_for(difference) is None]


def outdated(differing: Iterable[Difference]) -> list[str]:
    """Returns the patterns of the table that no difference needs any more."""
    places = [difference.place for difference in differing]
    return [
        pattern
        for reason in REASONS
        for pattern in reason.places
        if not any(fnmatchcase(place, pattern) for place in places)
    ]
