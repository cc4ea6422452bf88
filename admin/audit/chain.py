"""The chain of the audit: its digests under a key, and the check of its rows. Pure.

A row's digest covers the row and the digest before it, and a seal covers the last row's number and digest.
With `console.secret` both are HMAC-SHA256, which nobody without the secret can make anew.

A key row begins the rows under another secret. It names the SHA-256 of all rows before, and it is under the
new secret itself. So somebody without the secret can make neither a key row nor another past for it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

import msgspec

KEY_ACTION: Final = "console.rekey"
"""The action of a key row; its subject is `past_of` of the rows before it."""
_PAST: Final = "sha256:"


class JournalRow(NamedTuple):
    """One action. The time is epoch milliseconds."""

    number: int
    at: int
    person: str
    action: str
    """A code, as `reveal` or `user.role`."""
    subject: str
    lane: str
    reason: str
    address: str
    digest: str


class AuditCheck(NamedTuple):
    """The result of a check of the whole chain."""

    rows: int
    faults: tuple[str, ...]
    """Sentences; none: the chain is whole."""
    key_row: JournalRow | None = None
    """The newest key row. The rows before it are as they were when it was written, and the check cannot
    tell whether they were changed before. None: every row is under this key."""


class AuditKey:
    """Signs under `console.secret`; without one the digests are plain SHA-256, which anybody can make."""

    def __init__(self, secret: str = "") -> None:
        self.has_secret = bool(secret)
        self._key = hashlib.sha256(b"hongyan audit\0" + secret.encode()).digest() if secret else b""

    def digest(self, row: JournalRow, before: str) -> str:
        """Returns the digest of a row; `before` is that of the row before it, empty for the first one."""
        return self._signed(msgspec.json.encode([before, *row[:-1]]))

    def seal(self, number: int, digest: str) -> str:
        """Returns the seal of the last row; that of no row is empty."""
        return self._signed(msgspec.json.encode(["head", number, digest])) if number else ""

    def fits(self, number: int, digest: str, seal: str) -> bool:
        """Returns whether the last row is sealed under this key."""
        return hmac.compare_digest(seal.encode(), self.seal(number, digest).encode())

    def _signed(self, content: bytes) -> str:
        if not self._key:
            return hashlib.sha256(content).hexdigest()
        return hmac.new(self._key, content, "sha256").hexdigest()


class ChainCheck:
    """Reads all rows in order, then the head. Each row is `add`ed once."""

    def __init__(self, key: AuditKey) -> None:
        self._key = key
        self._faults: list[str] = []
        self._bad: tuple[int, int] | None = None
        """The first and the last of the newest rows if their digests are wrong."""
        self._key_row: JournalRow | None = None
        self._rows = 0
        self.number, self.digest = 0, ""
        """Of the newest row; `add` writes both."""
        self._past = hashlib.sha256()

    @property
    def past(self) -> str:
        """The subject of a key row that comes now."""
        return _PAST + self._past.hexdigest()

    def add(self, row: JournalRow) -> None:
        """Checks the next row."""
        wanted = self._key.digest(row, self.digest)
        good = hmac.compare_digest(row.digest.encode(), wanted.encode())
        if row.number != self.number + 1:
            self._tell_bad()
            self._faults.append(f"removed: {_span(self.number + 1, row.number - 1)}")
        elif not good:
            self._bad = (self._bad[0] if self._bad else row.number, row.number)
        if good:
            self._tell_bad()
            if row.action == KEY_ACTION:
                self._begin(row)
        self._past.update(msgspec.json.encode(row))
        self._rows, self.number, self.digest = self._rows + 1, row.number, row.digest

    def result(self, number: int, digest: str, seal: str) -> AuditCheck:
        """Returns the result for this head."""
        self._tell_bad()
        faults = list(self._faults)
        if self.number < number:
            faults.append(f"removed: {_span(self.number + 1, number)}, at the end")
        elif self.digest != digest:
            faults.append(f"changed: {self.number}")
        if not self._key.fits(number, digest, seal):
            faults.append("the seal of the last row is wrong, or not under this console.secret")
        return AuditCheck(self._rows, tuple(faults), self._key_row)

    def _begin(self, row: JournalRow) -> None:
        """Begins anew if the past is the one that the key row names: its reason has the faults of then."""
        if row.subject == self.past:
            self._faults.clear()
            self._key_row = row
        else:
            self._faults.append(f"changed: rows before {row.number}, since it was written")

    def _tell_bad(self) -> None:
        if self._bad is not None:
            rows = _span(*self._bad)
            self._faults.append(f"changed, or not written under this console.secret: {rows}")
            self._bad = None


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"
