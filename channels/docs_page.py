"""docs/channels.md, made from the adapters themselves: `python -m channels.docs_page > docs/channels.md`.

The page holds only what the code says; a test compares the two.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, get_args, get_type_hints

import msgspec

from channels.channel import Channel
from channels.judging.error_table import HOUR, MINUTE, ErrorRow
from channels.registry import PROVIDERS
from channels.secret import Secret
from message.outcomes import Limit
from message.vocabulary import CHANNELS

_HEAD: Final = """\
# Channels: what each provider's adapter can and cannot promise

Made from the code by `hongyan accounts catalogue`; a change belongs into the adapter. How a call is made,
and what all HTTP providers share, is told in [channels-transport.md](channels-transport.md).

**A call**: receivers that one call may carry; deliveries are joined up to it, and each keeps an outcome of
its own. **Reaches**: persons, groups, or one group; nothing else is ever sent through it
([accounts.md](accounts.md#person-or-group)). **Repeat**: what the provider itself does with the same call
made twice. **In doubt**: how an attempt without an answer is settled; where nothing helps, the lane's
guarantee decides. **To switch on**: what this needs at the provider or in the account;
`hongyan accounts test NAME --to … --resolve` tries it.

**What a query proves.** A list says "not sent" only if it is whole (every page answered, as many rows as it
counts itself), has no row that might be the call's, and was asked later than the provider's lag after the
last call. Rows that are redacted, missing, or not provably ours mean: ask later; in the end the lane's
policy decides
([decision 093](decisions/093-what-a-query-proves.md)).
"""
_KINDS: Final = {"rejected": "Rejected", "not_sent": "NotSent", "unknown": "Unknown"}
_SECOND: Final = 1_000
_COMMON: Final = """\
Every account may also say `endpoint` (in place of the provider's own; a path in it is kept in front of the
provider's paths), `ca_file`, `rate_per_s`, `burst` and `counted_as`. Options marked secret are given by
environment or as `KEY_file` ([configuration.md](configuration.md)). A code that is in no table is
Unknown, unless the provider answers errors by HTTP status and the status is a 4xx: that refuses for
sure. Feishu's 400 does not: it comes with nearly every code. 401 then refuses the account's login, and
402, 403 and 407 the account: its breaker opens
([decision 316](decisions/316-an-unlisted-refusal-may-be-the-accounts.md)).
`pace` marks a code that says "later" alone and spends no attempt
([accounts.md](accounts.md#pace)). It names the limit:
the account's, one receiver's, or that of a part of the account's traffic. `login` marks a code by which
the account's login is refused: its breaker opens, and no attempt is spent
([accounts.md](accounts.md#a-refused-login)). `source` is the document that has the code, with the day it
was read: the numbers stand under the table. A row that no document proves says so there, with the reason.
"""


def page() -> str:
    """Returns the whole document."""
    adapters = sorted(PROVIDERS.values(), key=_order)
    sections = (_section(adapter) for adapter in adapters)
    return "\n".join([_HEAD, *_overview(adapters), "", _COMMON, *sections]).rstrip() + "\n"


def _order(adapter: Channel) -> tuple[int, str]:
    known = adapter.channel in CHANNELS
    return CHANNELS.index(adapter.channel) if known else len(CHANNELS), adapter.provider


def _overview(adapters: Iterable[Channel]) -> Iterator[str]:
    yield from _table(
        ("provider", "channel", "a call", "reaches", "repeat", "in doubt", "receipts", "recall"),
        (
            (
                f"[`{one.provider}`](#{one.provider})",
                _channel(one),
                f"{one.max_batch:,}",
                "one group" if one.reach.group is not None else _reaches(one),
                one.promises.idempotency,
                one.promises.resolve,
                one.promises.receipts,
                one.promises.recall,
            )
            for one in adapters
        ),
    )


def _section(adapter: Channel) -> str:
    lines = [
        f"## {adapter.provider}",
        "",
        f"{adapter.promises.title}, channel {_channel(adapter)}.",
    ]
    lines += ["", *(f"- {name}: {text}" for name, text in _facts(adapter) if text)]
    lines += _titled("Options of an account", ("option", "type", "default", ""), _options(adapter))
    lines += _errors(tuple(adapter.errors))
    return "\n".join([*lines, ""])


def _facts(adapter: Channel) -> Iterator[tuple[str, str]]:
    promises = adapter.promises
    yield "endpoint", f"`{adapter.endpoint}`" if adapter.endpoint else "the account's own"
    yield "speaks", "HTTP/2 alone" if adapter.http2 else ""
    yield "limits", promises.limits
    yield "reaches", _reaches(adapter)
    yield "receivers", _kept(adapter.receiver_limits, "each")
    yield "rate by default", _kept(adapter.account_limits, "together")
    yield "kept exactly", _kept(adapter.silencing_limits, "whatever its accounts are called")
    yield "counted by", ", ".join(f"`{field}`" for field in adapter.counted_by)
    window = adapter.dedup_window_ms
    yield "repeat", promises.idempotency + (f"; relied on for {_span(window)}" if window else "")
    yield "in doubt", promises.resolve
    yield "to switch on", promises.needs
    yield "receipts", promises.receipts
    yield "recall", promises.recall
    yield "access token", _token(adapter)
    yield "sources", ", ".join(_link(address) for address in promises.source)


def _reaches(adapter: Channel) -> str:
    if adapter.reach.group is not None:
        return "the one group that its account names: receiver `group:NAME`"
    return "any receiver" if adapter.channel in ("*", "webhook") else str(adapter.reach)


def _token(adapter: Channel) -> str:
    shared = "got once and shared by the fleet"
    if adapter.optional_tokens is not None:
        return f"{shared}, for accounts that name a `token_url`"
    return "" if adapter.tokens is None else shared


def _kept(limits: Sequence[tuple[int, int]], how: str) -> str:
    return ", ".join(f"at most {count:,} in {_span(s * _SECOND)} {how}" for count, s in limits)


def _options(adapter: Channel) -> Iterator[tuple[str, ...]]:
    hints, docs = get_type_hints(adapter.options), _docstrings(adapter.options)
    for field in msgspec.structs.fields(adapter.options):
        yield f"`{field.name}`", _type(hints[field.name]), _default(field), docs.get(field.name, "")


def _docstrings(struct: type) -> dict[str, str]:
    """Returns the docstring below each field, own and inherited."""
    docs: dict[str, str] = {}
    for one in reversed(struct.__mro__):
        if issubclass(one, msgspec.Struct) and one is not msgspec.Struct:
            body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
            docs |= _under_fields(body)
    return docs


def _under_fields(node: ast.stmt) -> Iterable[tuple[str, str]]:
    body = node.body if isinstance(node, ast.ClassDef) else []
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id, inspect.cleandoc(str(text.value.value))


def _type(hint: Any) -> str:
    """Returns `int` for `int | None`, `secret` for a secret."""
    parts = [part for part in get_args(hint) if part is not type(None)] or [hint]
    if Secret in parts:
        return "secret"
    if all(isinstance(part, str) for part in parts):
        return " or ".join(f"`{part}`" for part in parts)
    return " or ".join(getattr(part, "__name__", str(part)) for part in parts)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in (None, "", msgspec.NODEFAULT):
        return ""
    return f"`{msgspec.json.encode(field.default).decode()}`"


def _errors(rows: Sequence[ErrorRow]) -> Iterator[str]:
    """Yields the table of the codes, and below it the proof of each source's number."""
    numbers = {proof: n for n, proof in enumerate(dict.fromkeys(map(_proof, rows)), start=1)}
    yield from _titled(
        "What its errors mean",
        ("code", "outcome", "wait", "about", "meaning", "source"),
        (_row(row, numbers[_proof(row)]) for row in rows),
    )
    if numbers:
        yield ""
        yield from (f"{number}. {proof}" for proof, number in numbers.items())


def _row(row: ErrorRow, source: int) -> tuple[str, ...]:
    wait = "" if row.delay_ms is None else _span(row.delay_ms)
    about = _about(row)
    return f"`{row.code}`", _KINDS[row.kind], wait, about, row.meaning, str(source)


def _proof(row: ErrorRow) -> str:
    """Returns the document that has the row's code, with the day of reading; else why none proves it."""
    if row.source is None:
        return f"unproved: {row.unproved}"
    where = f" (in its place: {row.source.copy})" if row.source.copy else ""
    return f"<{row.source.url}>, read {row.source.read}{where}"


def _about(row: ErrorRow) -> str:
    if row.limit is Limit.LOGIN:
        return "login"
    return f"pace: {row.limit}" if row.limit else "account" if row.account else ""


def _titled(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields a table under its title; nothing where it would have no rows."""
    found = list(rows)
    if found:
        yield from ("", f"{title}:", "", *_table(head, found))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _link(source: str) -> str:
    return f"<{source}>" if source.startswith("https://") else source


def _channel(adapter: Channel) -> str:
    return "any" if adapter.channel == "*" else f"`{adapter.channel}`"


def _span(ms: int) -> str:
    """Returns `9 min` for 540,000: the largest unit that leaves no fraction."""
    for size, unit in ((24 * HOUR, "d"), (HOUR, "h"), (MINUTE, "min"), (_SECOND, "s")):
        if ms and ms % size == 0:
            return f"{ms // size:,} {unit}"
    return f"{ms:,} ms"


if __name__ == "__main__":
    print(page(), end="")
