"""Reads dead letters back and masks them for display.

A letter may hold anything, receivers and codes included. Receivers are masked; values of contents and
parameters are hidden. In a value that is not JSON, everything that looks like a number or an address is
masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any, Final

import msgspec

from backends.kafka.message_headers import headers_of
from message.vocabulary import lane_of_topic
from sending.dead_letters.headers import (
    DETAIL,
    ORIGIN,
    OURS,
    REASON,
    TRUNCATED,
    Headers,
    header_text,
    last_header_text,
)
from sending.dead_letters.stub import StubFacts, stub_in
from tracing.masks import MASK, impersonal, mask

SHOWN: Final = 2_000
"""Characters of a body that are shown."""
_SHOWN_RECEIVERS: Final = 3
_HIDDEN: Final = ("template", "content", "attributes")


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the dead letters' topic."""

    place: str
    """topic/partition/offset among the dead letters."""
    origin: str
    """topic/partition/offset where it was poison; repeats share it."""
    at: int
    """Time of the letter, epoch milliseconds by the broker's or the worker's clock."""
    reason: str
    detail: str
    lane: str
    """Empty where the origin's topic belongs to no lane."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    truncated: int
    """Bytes of the whole value, where only its beginning was kept; else 0."""
    stub: StubFacts | None = None
    """Facts of the record, where the letter is a stub."""

    @property
    def message_id(self) -> str:
        """The id in its producer's header, else in its body; empty without either."""
        named = header_text(self.headers, "hongyan-id") or str(self.fields().get("id") or "")
        return named[:64]

    @property
    def topic(self) -> str:
        """The topic of its origin."""
        return self.origin.rpartition("/")[0].rpartition("/")[0]

    def theirs(self) -> Headers:
        """Returns the producer's headers."""
        return [(name, value) for name, value in self.headers if not name.startswith(OURS)]

    def receivers(self) -> list[str]:
        """Returns the first few receivers, masked."""
        fields = self.fields()
        found = fields.get("receivers")
        if not isinstance(found, list):
            return []
        channel = str(fields.get("channel") or "")
        return [mask(channel, str(one)) for one in found[:_SHOWN_RECEIVERS]]

    def body(self) -> str:
        """Returns its value, masked and cut to SHOWN characters."""
        fields = self.fields()
        if fields:
            text = msgspec.json.encode(masked_fields(fields)).decode()
        else:
            text = impersonal((self.value or b"").decode("utf-8", "replace"))
        more = len(text) - SHOWN
        return f"{text[:SHOWN]}… ({more:,} more characters)" if more > 0 else text

    def fields(self) -> dict[str, Any]:
        """Returns the fields of its body; none where it is no JSON object."""
        try:
            value = msgspec.json.decode(self.value or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on letters; an empty one holds for each."""

    origins: frozenset[str] = frozenset()
    reason: str = ""
    lane: str = ""
    since_ms: int = 0

    def fits(self, letter: DeadLetter) -> bool:
        """Returns whether the letter meets all conditions."""
        return (
            (not self.origins or letter.origin in self.origins)
            and self.reason in ("", letter.reason)
            and self.lane in ("", letter.lane)
            and letter.at >= self.since_ms
        )


def letter_of(message: Any, topic_prefix: str) -> DeadLetter:
    """Returns the letter in a record; a foreign one has neither reason nor origin, and maybe headers that
    cannot be read."""
    headers: Headers = headers_of(message) or []
    origin = last_header_text(headers, ORIGIN)
    lane = lane_of_topic(origin.rpartition("/")[0].rpartition("/")[0], topic_prefix)
    truncated = last_header_text(headers, TRUNCATED)
    return DeadLetter(
        place=f"{message.topic()}/{message.partition()}/{message.offset()}",
        origin=origin,
        at=max(message.timestamp()[1], 0),
        reason=last_header_text(headers, REASON),
        detail=last_header_text(headers, DETAIL),
        lane=lane.name if lane else "",
        key=message.key(),
        value=message.value(),
        headers=headers,
        truncated=int(truncated) if truncated.isdigit() else 0,
        stub=stub_in(headers),
    )


def newest(letters: Iterable[DeadLetter], wanted: DeadLetterFilter, limit: int) -> list[DeadLetter]:
    """Returns the matching letters, newest first, each origin once: a worker that died may have written
    two."""
    chosen = nlargest(limit, _once(one for one in letters if wanted.fits(one)), key=_age)
    return sorted(chosen, key=_age, reverse=True)


def _age(letter: DeadLetter) -> tuple[int, str]:
    return letter.at, letter.place


def _once(letters: Iterable[DeadLetter]) -> Iterable[DeadLetter]:
    seen: set[str] = set()
    for letter in letters:
        if letter.origin not in seen or not letter.origin:
            seen.add(letter.origin)
            yield letter


def masked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a body with masked receivers, and without the values of its contents."""
    channel = str(fields.get("channel") or "")
    shown = {name: _hidden(v) if name in _HIDDEN else _plain(v) for name, v in fields.items()}
    if isinstance(fields.get("receivers"), list):
        shown["receivers"] = [mask(channel, str(one)) for one in fields["receivers"]]
    return shown


def _hidden(value: Any) -> Any:
    """Returns its shape without its values; a template's id is no secret."""
    if isinstance(value, dict):
        return {name: one if name == "id" else _hidden(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    return MASK if isinstance(value, str | int | float) and not isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    return impersonal(value) if isinstance(value, str) and "@" in value else value
