"""Reads dead letters back and masks them for display.

A letter may hold anything, receivers and codes included, and under any name: it is poison. Receivers are
masked; values of contents and parameters are hidden. Elsewhere everything that looks like a long number or
an address is masked, at any depth; the envelope's ids, account and times stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
_KNOWN: Final = frozenset({"v", "id", "biz_id", "resend_of", "account", "created_at", "ttl_ms"})
"""Fields of an envelope that name no receiver, and may be long numbers."""
_SIZE: Final = re.compile(rb"[0-9]{1,15}")
_LONG_NUMBER: Final = 10_000
"""The least number that is masked, as in a text."""


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
        named = header_text(self.headers, "hongyan-id") or self.fields().get("id") or ""
        return str(named)[:64] if isinstance(named, str | int) else ""

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
        text = self.masked_json()
        if text is None:
            text = impersonal((self.value or b"").decode("utf-8", "replace"))
        more = len(text) - SHOWN
        return f"{text[:SHOWN]}… ({more:,} more characters)" if more > 0 else text

    def masked_json(self) -> str | None:
        """Returns its value as JSON, masked; None where it is none."""
        try:
            return msgspec.json.encode(_masked(msgspec.json.decode(self.value or b""))).decode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None

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
        truncated=_truncated(headers),
        stub=stub_in(headers),
    )


def _truncated(headers: Headers) -> int:
    """Returns the bytes of the whole value if the last header tells them, else 0: an earlier one of that
    name is the producer's, and may hold anything."""
    name, value = headers[-1] if headers else ("", None)
    return int(value) if name == TRUNCATED and value and _SIZE.fullmatch(value) else 0


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


def _masked(value: Any) -> Any:
    """Returns a JSON value with masked receivers, and without the values of its contents."""
    if not isinstance(value, dict):
        return _mapped(value, _impersonal)
    channel = str(value.get("channel") or "")

    def field(name: str, one: Any) -> Any:
        if name in _HIDDEN:
            return _hidden(one, keep_id=name == "template")
        if name == "receivers":
            return _mapped(one, lambda leaf: _receiver(channel, leaf))
        return _known(one) if name in _KNOWN else _mapped(one, _impersonal)

    return _named((name, field(name, one)) for name, one in value.items())


def _mapped(value: Any, masked: Callable[[Any], Any]) -> Any:
    """Returns the value, each text, number, bool and null in it masked."""
    if isinstance(value, dict):
        return _named((name, _mapped(one, masked)) for name, one in value.items())
    if isinstance(value, list):
        return [_mapped(one, masked) for one in value]
    return masked(value)


def _named(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of the fields with masked names; none of them is lost."""
    shown: dict[str, Any] = {}
    for name, value in fields:
        masked = impersonal(name)
        shown[f"{masked} {len(shown)}" if masked in shown else masked] = value
    return shown


def _hidden(value: Any, *, keep_id: bool) -> Any:
    """Returns its shape without its values; `keep_id`: a template's id is no secret."""
    shown = _mapped(value, lambda leaf: MASK if _is_number(leaf) or isinstance(leaf, str) else leaf)
    if keep_id and isinstance(value, dict) and isinstance(value.get("id"), str):
        shown["id"] = value["id"]
    return shown


def _known(value: Any) -> Any:
    """Returns an id, account or time as it is, unless it holds an address or is of no such type."""
    if isinstance(value, str):
        return impersonal(value) if "@" in value else value
    return value if _is_number(value) else _mapped(value, _impersonal)


def _receiver(channel: str, value: Any) -> Any:
    return mask(channel, str(value)) if isinstance(value, str) or _is_number(value) else value


def _impersonal(value: Any) -> Any:
    if isinstance(value, str):
        return impersonal(value)
    return MASK if _is_number(value) and abs(value) >= _LONG_NUMBER else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
