"""Two thousand records of fourteen families of bad input through one worker: every one ends somewhere.

Seeded: the same records in every run. A record ends as a dead letter with its origin, or as ledger rows
under its id; the worker lives, its lag is nothing, and no log line or detail repeats a secret.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from message.envelope import decode
from message.foreign_text import MAX_SHOWN
from tests.conformance.samples.resend import ACCOUNT, PATH
from tests.harness import Fleet, now_ms

MakeFleet = Callable[..., Fleet]
Value = bytes | None
SEED = 20_261_122
OF_EACH = 143
"""Of fourteen families: about 2,000."""
MAIL, HOOK = "email.notice", "webhook.notice"
UNHURT = {"rate_per_s": 10_000.0, "burst": 10_000}
"""Resend takes two mails a second; what this test counts are ends."""
SECRET = "geheim.person@example.org"
MARK = "geheim.person"


def fields(number: int, family: str, lane: str = HOOK, **changes: Any) -> dict[str, Any]:
    channel, _, kind = lane.partition(".")
    content = {"subject": "s", "text": f"t {SECRET}"} if lane == MAIL else {"text": SECRET}
    return {
        "v": 1,
        "id": f"{family}-{number}",
        "channel": channel,
        "kind": kind,
        "receivers": [f"{MARK}.{number}@example.org"],
        "content": content,
        "created_at": now_ms(),
        **changes,
    }


def written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def cut(rng: random.Random, n: int) -> Value:
    whole = written(fields(n, "cut"))
    return whole[: rng.randrange(len(whole))]


def not_utf8(rng: random.Random, n: int) -> Value:
    whole = bytearray(written(fields(n, "utf8", x="xxxxxxxx")))
    place = rng.randrange(len(whole))
    whole[place : place + 1] = rng.choice(
        [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
    )
    return bytes(whole)


def deep(rng: random.Random, n: int) -> Value:
    depth = rng.choice([10, 100, 900, 1_100, 50_000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    nested = opening * depth + "1" + closing * depth * rng.randrange(2)
    where = rng.choice(["x", "attributes", "content"])
    return written(fields(n, "deep"))[:-1] + f',"{where}":{nested}}}'.encode()


def numbers(rng: random.Random, n: int) -> Value:
    number = rng.choice(
        ["9" * 5_000, "9" * 400, "1e999", "-1e999", "NaN", "-0.0", "1e-999", "0x1", "1_0"]
    )
    where = rng.choice(["x", "created_at", "ttl_ms", "v", "attributes"])
    tail = f',"{where}":{{"a":{number}}}}}' if where == "attributes" else f',"{where}":{number}}}'
    return written(fields(n, "number"))[:-1] + tail.encode()


def types(rng: random.Random, n: int) -> Value:
    value = rng.choice([None, 0, -1, 1.5, True, "", SECRET, [], [SECRET], {}, {SECRET: SECRET}])
    return written(fields(n, "type") | {rng.choice(list(fields(n, "type"))): value})


def nothing(rng: random.Random, n: int) -> Value:
    return rng.choice([None, b"", b" ", b"null", b"{}", b"[]", b'""', SECRET.encode()])


def versions(rng: random.Random, n: int) -> Value:
    return written(fields(n, "version", v=rng.choice([0, -1, 2, 1 << 40, 1.0, "1", None])))


def lengths(rng: random.Random, n: int) -> Value:
    size = rng.choice([65, 257, 5_000])
    field = rng.choice(["id", "biz_id", "account", "ordering_key", "resend_of"])
    changes = {field: "x" * size} if n % 3 else {"receivers": ["r"] * rng.choice([0, 1_001, 5_000])}
    return written(fields(n, "length", **changes))


def surrogates(rng: random.Random, n: int) -> Value:
    escape = rng.choice([r"\ud800", r"\udfff", r"\ud83d\ude00", r"\ude00\ud83d", r"\ud800A"])
    where = rng.choice(["x", "biz_id", "content"])
    value = f'{{"text":"{escape}"}}' if where == "content" else f'"{escape}"'
    return written(fields(n, "surrogate"))[:-1] + f',"{where}":{value}}}'.encode()


def controls(rng: random.Random, n: int) -> Value:
    char = rng.choice(
        ["\0", "\x1b[31m", "\r\nX-Injected: 1", "\u202e", "\u2066", "\ufeff", "\u0085"]
    )
    field = rng.choice(["biz_id", "ordering_key", "receiver", "subject", "text", "header"])
    if field == "receiver":
        return written(fields(n, "control", receivers=[f"a{char}@example.org"]))
    if field in ("subject", "text", "header"):
        content = {"subject": "s", "text": "t", "headers": {"X-A": "v"}}
        content |= {"headers": {"X-A": char}} if field == "header" else {field: f"a{char}b"}
        return written(fields(n, "control", MAIL, content=content))
    return written(fields(n, "control", **{field: f"a{char}b"}))


def templates(rng: random.Random, n: int) -> Value:
    params = rng.choice(
        [
            {"n": 10**300},
            {"n": 1e308},
            {"n": "x"},
            {"rows": ["x" * 100] * 5_000},
            {"rows": [[["x"] * 50] * 50]},
            {"n": 1, "rows": ["{{ 9**9 }}", "{% for i in rows %}"]},
            {SECRET: SECRET},
            {},
        ]
    )
    name = rng.choice(["bomb", "bomb", SECRET, "nobody", "../../etc/passwd"])
    return written(
        fields(n, "template", MAIL, content=None, template={"id": name, "params": params})
    )


def addresses(rng: random.Random, n: int) -> Value:
    many = rng.choice([1_000, 100_000])
    bomb = rng.choice(
        ["a" + " " * many + "b", "<" * many, "a@" + "b." * many, '"' + "\\" * many + '" <a@b.c>']
    )
    content = {"subject": "s", "text": "t", rng.choice(["cc", "bcc", "reply_to"]): [bomb]}
    return written(fields(n, "address", MAIL, content=content))


def lists(rng: random.Random, n: int) -> Value:
    content: dict[str, Any] = {"subject": "s", "text": "t"}
    content |= rng.choice(
        [
            {"reply_to": ["a@example.org"] * 10_000},
            {"headers": {f"X-{i}": "v" for i in range(10_000)}},
            {"attachments": [{"filename": "a", "content": ""}] * 5_000},
            {"cc": ["a@example.org"] * 51},
            {"to": SECRET},
        ]
    )
    return written(fields(n, "list", MAIL, content=content))


def noise(rng: random.Random, n: int) -> Value:
    return rng.randbytes(rng.randrange(1, 2_000))


FAMILIES = (
    *(cut, not_utf8, deep, numbers, types, nothing, versions),
    *(lengths, surrogates, controls, templates, addresses, lists, noise),
)
HEADERS: tuple[list[tuple[str, Any]], ...] = (
    [],
    [("hongyan-id", None)],
    [("hongyan-id", b"\xff" * 500), ("traceparent", b"\xff\xfe")],
    [("traceparent", b"00-" + b"0" * 1_000)],
    [("hongyan-dead-reason", SECRET.encode()), ("", b""), ("\u202e", b"x" * 1_000)],
)
TEMPLATES = """
[templates.bomb]
channel = "email"
subject = "s"
text = "{% for row in rows %}{% for i in range(9999) %}{{ row }}{% endfor %}{% endfor %}{{ n * 2 }}"
[templates.bomb.variables]
n = "number"
rows = { type = "list", optional = true }
"""


def records() -> Iterator[tuple[str, Value]]:
    rng = random.Random(SEED)
    for number in range(OF_EACH):
        for family in FAMILIES:
            value = family(rng, number)
            mails = family in (templates, addresses, lists) or (value and b'"email"' in value[:200])
            yield (MAIL if mails else HOOK), value


@pytest.mark.timeout(400)
@pytest.mark.soak(
    small="tests/integration/test_poison.py::test_poison_is_kept_whole_with_its_reason_and_holds_up_nobody"
)
def test_no_record_ends_the_worker_or_is_passed_over(fleet: MakeFleet) -> None:
    one = fleet(lanes=[HOOK, MAIL], partitions=2)
    url = one.provider.url
    one._accounts = {
        "hook": {"provider": "webhook", "endpoint": f"{url}/send"},
        "mail": {**ACCOUNT, "provider": "resend", "endpoint": url + PATH, **UNHURT},
    }
    one.configure()
    (one.folder / "templates.toml").write_text(TEMPLATES)
    worker = one.worker().wait_ready()
    places: dict[str, Value] = {}
    whole = list(records())
    for turn, headers in enumerate(HEADERS):
        for lane in (HOOK, MAIL):
            values = [value for to, value in whole[turn :: len(HEADERS)] if to == lane]
            key = None if turn % 2 else b"\xff\x00key"
            for sent in one.wire.send(values, lane=lane, key=key, headers=headers):
                origin = f"{sent.place.topic}/{sent.place.partition}/{sent.offset}"
                places[origin] = sent.value
    one.await_committed(300)
    assert worker.running
    letters = {letter.origin: letter for letter in one.dead_letters()}
    rows = one.books.rows().values()
    kept = {row.message_id for row in rows}
    taken = [value for origin, value in places.items() if origin not in letters]
    lost = [value for value in taken if decode(value).id not in kept]
    assert lost == []
    assert len(letters) > len(FAMILIES) * OF_EACH / 3
    assert len(kept) > OF_EACH
    told = [letter.headers["hongyan-dead-detail"] for letter in letters.values()]
    assert max(map(len, told)) <= MAX_SHOWN
    for text in (*told, *(row.reason or "" for row in rows), worker.log_text()):
        assert MARK not in text
        assert "Traceback" not in text
