"""The contract of parsers: a provider's push in, receipts and the answer that it expects out. No I/O.

    RefusedPush
     ├─ Unauthentic   401: no signature, a wrong one, or one of another time
     └─ Malformed     400: signed, but not what the provider documents; the text is one sentence

A push may carry many receipts. An unreadable one is counted and left out: a refusal of the push would lose
the others, or have all of them repeated.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from channels.secret import Secret
from idempotency.receipts.rules import Receipt

SECRET_FIELD: Final = "x-hongyan-secret"  # noqa: S105 (a header's name)
MOST_FIELDS: Final = 200
"""Fields of a form, and parameters of a query; every documented push has far fewer."""
LONGEST_FORM: Final = 64 << 10
"""Bytes of a form."""
_CHINA: Final = timedelta(hours=8)
_LOCAL: Final = "%Y-%m-%d %H:%M:%S"
T = TypeVar("T")


class RefusedPush(Exception):
    """Base of the ladder; the text holds no secret and no receiver."""


class Unauthentic(RefusedPush):
    """The sender did not prove to be the provider."""


class Malformed(RefusedPush):
    """The push cannot be read."""


class Push(msgspec.Struct, frozen=True):
    """One request of a provider, read to its end."""

    account: str
    method: str
    query: str
    """As it came, without its question mark."""
    fields: Mapping[str, str]
    """Header fields by lower-case name."""
    body: bytes
    now_s: float
    """Epoch seconds: signatures have a time."""

    @property
    def parameters(self) -> dict[str, str]:
        """The query's parameters; the first of several of one name. Raises Malformed for too many."""
        try:
            pairs = parse_qsl(self.query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError as exc:
            raise Malformed(f"a query of at most {MOST_FIELDS} parameters is expected") from exc
        return dict(reversed(pairs))

    def form(self) -> list[tuple[str, str]]:
        """Returns the fields of a body that is a form. Raises Malformed. The bounds are checked first:
        some providers sign the fields, so that a stranger's are read, too."""
        try:
            if len(self.body) > LONGEST_FORM:
                raise ValueError("too long")
            text = self.body.decode("utf-8")
            return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError as exc:  # a UnicodeDecodeError is one
            raise Malformed(
                f"a form in UTF-8 of at most {MOST_FIELDS} fields and {LONGEST_FORM >> 10} KiB is expected"
            ) from exc


class Parsed(msgspec.Struct, frozen=True):
    """The receipts of a push, and the answer that the provider takes for "received"."""

    receipts: Sequence[Receipt] = ()
    answer: bytes = b""
    media_type: str = "application/json"
    unreadable: int = 0
    """Receipts left out."""


class Parser(Protocol):
    """One provider's pushes."""

    provider: ClassVar[str]
    options: ClassVar[type[msgspec.Struct]]
    """The keys of `[receipts.accounts.NAME]`."""

    def parse(self, push: Push, options: Any) -> Parsed:
        """Checks, then reads. Raises Unauthentic or Malformed. Called for POST, and for GET where the
        provider tests an address that way."""


class SharedSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For providers that do not sign: a secret that only they have."""

    secret: Secret
    """In the callback's address as `?secret=…`, or in the field `X-Hongyan-Secret` if a proxy adds it."""


def check_secret(push: Push, options: SharedSecret) -> None:
    """Raises Unauthentic. Takes as long for a wrong secret as for a right one."""
    given = push.fields.get(SECRET_FIELD) or push.parameters.get("secret", "")
    if not same(given, options.secret.reveal()):
        raise Unauthentic("the secret is missing or wrong")


def same(given: str, wanted: str) -> bool:
    """Returns True for equal texts, in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def check_age(push: Push, timestamp: str, tolerance_s: float) -> None:
    """Raises Unauthentic for a signature made too long ago or in the future."""
    sane = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 13
    if not sane or abs(push.now_s - int(timestamp)) > tolerance_s:
        raise Unauthentic("the signature is of another time: compare the clocks")


def read_list(
    body: bytes, kind: type[T], receipt: Callable[[T], Receipt]
) -> tuple[list[Receipt], int]:
    """Returns the receipts in a JSON list, and how many entries could not be read.

    Raises Malformed where it is no list, or no entry can be read.
    """
    try:
        entries = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"a JSON list is expected: {exc}") from exc
    read = list(read_each(entries, kind, receipt))
    if entries and not read:
        raise Malformed(f"none of the {len(entries)} entries has the documented fields")
    return read, len(entries) - len(read)


def read_each(
    entries: Iterable[msgspec.Raw], kind: type[T], receipt: Callable[[T], Receipt]
) -> Iterable[Receipt]:
    """Yields the receipts of readable entries."""
    for entry in entries:
        try:
            yield receipt(msgspec.json.decode(entry, type=kind))
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
            continue


def china_ms(text: str) -> int:
    """Returns `2017-01-01 00:00:00` in China as epoch milliseconds; 0 for any other text."""
    try:
        moment = datetime.strptime(text, _LOCAL).replace(tzinfo=UTC) - _CHINA
    except (ValueError, OverflowError):  # the year 1, which stands for no time
        return 0
    return int(moment.timestamp() * 1_000)
