"""Exchanges as people may see them: secrets, tokens and receivers masked, bodies readable.

Two rules, since each has gaps. A known secret is masked wherever it occurs and however it is quoted. A
value under a telling name is masked, known or not.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus

import httpx
import msgspec
import phonenumbers

from channels.channel import Account, Failure
from channels.judging.foreign_json import UNREADABLE
from channels.probe.probe import ShownExchange
from channels.secret import Secret
from message.receivers import GROUP

MASK: Final = "***"
_TELLING = re.compile(
    r"(?:^|[^a-z])(?:authorization|cookie|password|passwd|pwd|signature|sign|sig|assertion|private_key)"
    r"(?:$|[^a-z])|secret|token|apikey|api-key|api_key|access_key|accesskey",
    re.IGNORECASE,
)
_HARMLESS: Final = frozenset({"sign_name", "signname", "expires_in", "token_type"})
_KEY_ONLY: Final = frozenset({"key"})
"""Names of secrets in a query (WeCom's robots), and of anything in JSON."""
_QUERY: Final = re.compile(r"[?&](?:[^?=&]*=)?")
"""Splits a secret that is an address into its path and each value of its query."""
_MIN_SECRET: Final = 4
_MIN_INSIDE: Final = 6
"""A known text of so many characters is also masked inside of words."""
_MAX_TEXT: Final = 8_000
"""Characters of a body that is no JSON and no form; the rest is counted."""
_FORM: Final = "application/x-www-form-urlencoded"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange, masked."""

    purpose: str
    method: str
    url: str
    headers: list[tuple[str, str]]
    body: Any
    """JSON as it is; a form as a list of names and values; else a text, or None for nothing."""
    took_ms: float
    status: int | None = None
    """The answer's status; None: there was none."""
    reason: str = ""
    answer_headers: list[tuple[str, str]] = []
    answer_body: Any = None
    failure: str = ""
    """The reason why there was no answer, and whether the request had been written."""


class Masks:
    """The texts to hide of one account, its tokens and one receiver."""

    def __init__(self, account: Account, tokens: Iterable[str], receiver: str, shown: str) -> None:
        """`shown` replaces the receiver."""
        secrets = [*_secrets(account.options), *tokens]
        self._hidden = {form: MASK for text in secrets for form in _forms(text)}
        self._hidden |= dict.fromkeys(_receiver_forms(receiver), shown)
        # The longest first: one may hold another.
        known = sorted(self._hidden, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern, known)) or "(?!)")

    def exchange(self, exchange: ShownExchange) -> Shown:
        """Returns all of it, masked."""
        answer = exchange.answer
        shown = msgspec.structs.replace(
            self.request(exchange.request),
            purpose=exchange.purpose,
            took_ms=round(exchange.took_ms, 1),
        )
        if isinstance(answer, Failure):
            failure = self.text(f"{answer.code} ({answer.phase}): {answer.detail}")
            return msgspec.structs.replace(shown, failure=failure)
        return msgspec.structs.replace(
            shown,
            status=answer.status_code,
            reason=answer.reason_phrase,
            answer_headers=self._fields(answer.headers),
            answer_body=self.body(answer.content, answer.headers.get("Content-Type", "")),
        )

    def request(self, request: httpx.Request) -> Shown:
        """Returns a request that was not made, masked."""
        return Shown(
            purpose="send",
            method=request.method,
            url=self.url(request.url),
            headers=self._fields(request.headers),
            body=self.body(request.read(), request.headers.get("Content-Type", "")),
            took_ms=0.0,
        )

    def url(self, url: httpx.URL) -> str:
        """Returns the URL with every query value masked that is secret or has a telling name."""
        path, mark, query = url.raw_path.decode("ascii").partition("?")
        pairs = [self._pair(pair) for pair in query.split("&")] if query else []
        head = self.text(f"{url.scheme}://{url.netloc.decode('ascii')}{path}")
        return f"{head}{mark}{'&'.join(pairs)}"

    def text(self, text: str) -> str:
        """Returns the text with known secrets and the receiver masked."""
        return self._known.sub(lambda found: self._hidden[found[0]], text)

    def body(self, content: bytes, content_type: str) -> Any:
        """Returns the body, readable and masked; None for an empty one."""
        if not content:
            return None
        if content_type.partition(";")[0].strip() == _FORM:
            pairs = parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True)
            return [(name, self._value(name, value)) for name, value in pairs]
        try:
            return self.tree(msgspec.json.decode(content))
        except UNREADABLE:
            text = self.text(content.decode("utf-8", "replace"))
        more = len(text) - _MAX_TEXT
        return f"{text[:_MAX_TEXT]}… ({more:,} more characters)" if more > 0 else text

    def _pair(self, pair: str) -> str:
        name, equals, value = pair.partition("=")
        if name.lower() in _KEY_ONLY or telling(name):
            return f"{name}{equals}{MASK}"
        return f"{self.text(name)}{equals}{self.text(value)}"

    def _fields(self, headers: httpx.Headers) -> list[tuple[str, str]]:
        """Returns the fields, masked, with their names as they went over the wire."""
        pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw)
        return [(name, self._value(name, value)) for name, value in pairs]

    def tree(self, value: Any) -> Any:
        """Returns a JSON value, or a struct made one, masked."""
        if isinstance(value, msgspec.Struct):
            return self.tree(msgspec.to_builtins(value))
        if isinstance(value, dict):
            return {self.text(key): self._leaf(key, one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.tree(one) for one in value]
        return self.text(value) if isinstance(value, str) else value

    def _leaf(self, key: str, value: Any) -> Any:
        return self._value(key, value) if isinstance(value, str) else self.tree(value)

    def _value(self, name: str, value: str) -> str:
        """Returns the value masked. A telling name hides all but the first word of `Bearer …`; a known
        text, such as a push receiver's `token`, keeps its own mask."""
        if not telling(name) or not value:
            return self.text(value)
        if value in self._hidden:
            return self._hidden[value]
        scheme, blank, _ = value.partition(" ")
        return f"{self.text(scheme)} {MASK}" if blank else MASK


def telling(name: str) -> bool:
    """Returns whether a value under this name is hidden, known or not."""
    return name.lower() not in _HARMLESS and _TELLING.search(name) is not None


def _secrets(options: Any) -> Iterator[str]:
    """Yields every secret of an account's options, and its parts: the lines of a key, the path and the
    query values of an address."""
    for name in getattr(options, "__struct_fields__", ()):
        value = getattr(options, name)
        if isinstance(value, Secret):
            yield value.reveal()
            yield from (line for line in value.reveal().splitlines() if line)
            yield from _QUERY.split(value.reveal())


def _forms(text: str) -> Iterator[str]:
    """Yields the spellings of a secret: as it is, quoted in a URL or in JSON, in a Basic login."""
    if len(text) < _MIN_SECRET:
        return
    yield from (text, quote(text, safe=""), quote_plus(text))
    yield msgspec.json.encode(text).decode()[1:-1]
    yield b64encode(text.encode()).decode()


def _pattern(text: str) -> str:
    """Returns the pattern of a text; a short one, such as a member's `li`, matches whole words only."""
    escaped = re.escape(text)
    return escaped if len(text) >= _MIN_INSIDE else rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"


def _receiver_forms(receiver: str) -> Iterator[str]:
    """Yields a receiver as providers spell it: a number without its plus sign or its country's code too, a
    group by its name alone."""
    yield from (receiver, quote(receiver, safe=""), quote_plus(receiver))
    if receiver.startswith(GROUP) and receiver != GROUP:
        yield receiver[len(GROUP) :]
    if receiver.startswith("+"):
        yield receiver[1:]
        national = _national(receiver)
        if len(national) >= _MIN_SECRET:
            yield national


def _national(number: str) -> str:
    try:
        return str(phonenumbers.parse(number, None).national_number)
    except phonenumbers.NumberParseException:
        return ""
