"""Pages of dead letters: who sees which, what is shown of one, replay and discard."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.pages.dead.rendering import shown_value
from admin.parts import ConsoleParts
from admin.web.foreign_text import visible
from backends.kafka.clients import producer
from backends.kafka.topic_reader import read_topic
from backends.settings import KafkaSettings
from idempotency.dead_letters.rows import LetterEntry
from sending.dead_letters.reader import letter_of
from tests.admin.conftest import Browser, served_with

BODY = b'{"id":"m-1","channel":"sms","receivers":["+8613800000001"],"content":{"text":"4711"}}'
AWAY = KafkaSettings(bootstrap="127.0.0.1:9")
LIN = {Role.OPERATOR: ("sms.*",)}
OpenPage = Callable[[ConsoleParts], Browser]


class Stored:
    """A record as a consumer gives it."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def headers(self) -> list[tuple[str, bytes]]:
        return [("hongyan-dead-origin", b"t/0/1")]

    def topic(self) -> str:
        return "dead"

    def partition(self) -> int:
        return 0

    offset = partition

    def timestamp(self) -> tuple[int, int]:
        return 0, 1

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value


def entry(number: int, lane: str = "sms.notice", **more: Any) -> LetterEntry:
    topic = f"hongyan.dispatch.{lane}" if lane else "elsewhere"
    fields: dict[str, Any] = {
        "origin": f"{topic}/0/{number}",
        "partition": 0,
        "place": number,
        "at": 1_790_000_000_000 + number,
        "reason": "bad_ttl",
        "detail": "$.ttl_ms: above 0",
        "lane": lane,
        "message_id": f"m-{number}",
        "size": 80,
        "form": "WHOLE",
        "digest": "0" * 32,
    }
    return LetterEntry(**fields | more)


def enter(parts: ConsoleParts, *entries: LetterEntry) -> None:
    index = parts.ledger.letter_index()
    index.look("topic-1", {0: (0, 1_000)})
    index.enter("topic-1", entries, {})


@pytest.fixture
def away(parts: ConsoleParts) -> ConsoleParts:
    """A console without Kafka."""
    return replace(parts, settings=msgspec.structs.replace(parts.settings, kafka=AWAY))


@pytest.fixture
def with_kafka(parts: ConsoleParts, kafka_bootstrap: str, topic_prefix: str) -> ConsoleParts:
    kafka = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    return replace(parts, settings=msgspec.structs.replace(parts.settings, kafka=kafka))


@pytest.fixture
def lin(user: Callable[..., int]) -> Any:
    """Opens a console as lin, an operator of sms.*."""
    user("lin", LIN)
    opened: list[TestClient[Litestar]] = []

    def open_as(parts: ConsoleParts, name: str = "lin") -> Browser:
        client = TestClient(served_with(parts, len(opened)))
        client.__enter__()
        opened.append(client)
        one = Browser(client)
        one.sign_in(name)
        return one

    yield open_as
    for client in opened:
        client.__exit__(None, None, None)


def bury(parts: ConsoleParts, *origins: int, value: bytes = BODY) -> list[str]:
    """Writes letters as a worker does and indexes them; their origins."""
    kafka = parts.settings.kafka
    lane = f"{kafka.topic_prefix}.dispatch.sms.notice"
    client, dead = producer(kafka), f"{kafka.topic_prefix}.dead"
    for origin in origins:
        headers: list[tuple[str, str | bytes | None]] = [
            ("theirs", b"\xffkept"),
            ("hongyan-dead-reason", b"bad_ttl"),
            ("hongyan-dead-origin", f"{lane}/0/{origin}".encode()),
        ]
        client.produce(dead, value=value, headers=headers, partition=0)
    assert client.flush(30) == 0
    named = {f"{lane}/0/{origin}": place for place, origin in enumerate(origins)}
    enter(parts, *(entry(place, origin=name) for name, place in named.items()))
    return list(named)


def topics(parts: ConsoleParts) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    kafka = parts.settings.kafka
    names = (f"{kafka.topic_prefix}.dead", f"{kafka.topic_prefix}.dispatch.sms.notice")
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in client.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(30)


def arrived(parts: ConsoleParts) -> list[bytes | None]:
    kafka = parts.settings.kafka
    return [m.value() for m in read_topic(kafka, f"{kafka.topic_prefix}.dispatch.sms.notice")]


def states(parts: ConsoleParts) -> dict[str, tuple[str, str | None]]:
    with parts.databases.primary.begin() as connection:
        rows = connection.execute(text("SELECT origin, state, ended_by FROM dead_letters"))
        return {row.origin: (row.state, row.ended_by) for row in rows}


def actions(parts: ConsoleParts) -> list[tuple[str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    return [(row.action, row.subject, row.reason) for row in rows if row.action.startswith("dead")]


def test_the_list_works_without_kafka_and_filters_page_by_page(
    away: ConsoleParts, lin: OpenPage
) -> None:
    enter(away, *(entry(n) for n in range(120)), entry(500, reason="not_json"))
    one = lin(away)
    first = one.get("/dead").text
    assert "m-500" in first
    assert "m-119" in first
    assert "m-60<" not in first
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = one.get(following.replace("&amp;", "&")).text
    assert "m-70<" in second
    assert "m-119" not in second
    only = one.get("/dead?reason=not_json").text
    assert "m-500" in only
    assert "m-119" not in only
    assert "m-1" not in one.get("/dead?show=DISCARDED").text
    assert "m-1" not in one.get("/dead?since=1h").text.replace("m-500", "")
    assert one.get("/dead?after=nonsense").status_code == 422


def test_letters_of_other_lanes_and_of_none_are_not_there(
    away: ConsoleParts, lin: OpenPage
) -> None:
    enter(away, entry(1), entry(2, "email.notice"), entry(3, ""))
    one = lin(away)
    page = one.get("/dead").text
    assert "m-1<" in page
    assert "m-2<" not in page
    assert "m-3<" not in page
    assert one.get("/dead?lane=email.notice").status_code == 403
    missing = {
        one.get("/dead/letter", params={"origin": origin}).text.count("There is nothing here")
        for origin in ("hongyan.dispatch.email.notice/0/2", "elsewhere/0/3", "no/0/1", "")
    }
    assert missing == {1}
    for action in ("replay", "discard", "reveal"):
        answer = one.post(
            f"/dead/letter/{action}", origin="hongyan.dispatch.email.notice/0/2", reason="why"
        )
        assert answer.status_code == 404
    assert states(away)["hongyan.dispatch.email.notice/0/2"] == ("OPEN", None)


def test_a_viewer_may_look_and_not_act(
    away: ConsoleParts, lin: Any, user: Callable[..., int]
) -> None:
    enter(away, entry(1))
    user("vic", {Role.VIEWER: ("sms.*",)})
    vic = lin(away, "vic")
    origin = entry(1).origin
    page = vic.get("/dead/letter", params={"origin": origin}).text
    assert "Kafka is away" in page
    assert "data-dialog" not in page
    for action in ("replay", "discard", "reveal"):
        answer = vic.post(f"/dead/letter/{action}", origin=origin, reason="why")
        assert answer.status_code == 403
    assert vic.get("/dead/many").status_code == 403


def test_without_kafka_a_replay_says_so_and_a_discard_is_done(
    away: ConsoleParts, lin: OpenPage
) -> None:
    enter(away, entry(1))
    one, origin = lin(away), entry(1).origin
    answer = one.post("/dead/letter/replay", origin=origin, reason="mended")
    assert (answer.status_code, "No letter was sent" in answer.text) == (409, True)
    assert states(away)[origin] == ("OPEN", None)
    assert one.post("/dead/letter/discard", origin=origin).status_code == 422, "no reason"
    done = one.post("/dead/letter/discard", origin=origin, reason="a test of theirs")
    assert done.status_code == 303
    assert states(away)[origin] == ("DISCARDED", "lin")
    again = one.post("/dead/letter/discard", origin=origin, reason="once more")
    assert (again.status_code, "DISCARDED, by lin" in again.text) == (409, True)
    assert ("dead.discard", origin, "a test of theirs") in actions(away)


def test_what_a_letter_holds_is_text(away: ConsoleParts, lin: OpenPage) -> None:
    bad = "<script>alert(1)</script>"
    enter(away, entry(1, message_id=bad, detail=bad, reason=bad))
    one = lin(away)
    pages = one.get("/dead").text + one.get("/dead/letter", params={"origin": entry(1).origin}).text
    assert "<script>alert" not in pages
    assert "&lt;script&gt;alert" in pages


def test_all_of_a_filter_are_discarded_by_their_count_and_only_as_they_were_looked_at(
    away: ConsoleParts, lin: OpenPage
) -> None:
    enter(away, *(entry(n) for n in range(3)), entry(9, "email.notice"))
    one = lin(away)
    page = one.get("/dead/many").text
    (digest,) = set(re.findall(r'name="digest" value="(\w+)"', page))
    fields = {"digest": digest, "code": "", "lane": "", "since": "", "reason": "old"}
    wrong = one.post("/dead/many/discard", **fields, typed="4")
    assert (wrong.status_code, "There are 3 letters" in wrong.text) == (422, True)
    enter(away, entry(4))
    moved = one.post("/dead/many/discard", **fields, typed="3")
    assert (moved.status_code, "no longer the same" in moved.text) == (409, True)
    assert {state for state, _ in states(away).values()} == {"OPEN"}
    (digest,) = set(re.findall(r'name="digest" value="(\w+)"', one.get("/dead/many").text))
    done = one.post("/dead/many/discard", **fields | {"digest": digest}, typed="4")
    assert done.status_code == 200
    found = states(away)
    assert found["hongyan.dispatch.email.notice/0/9"] == ("OPEN", None)
    assert sorted(found.values()).count(("DISCARDED", "lin")) == 4
    assert ("dead.discard", "4 letters: state=OPEN", "old") in actions(away)


def test_a_letter_of_a_strange_time_costs_no_list(away: ConsoleParts, lin: OpenPage) -> None:
    """A producer writes the time of a record, and a broker may keep any."""
    enter(away, entry(1, at=1 << 60), entry(2))
    one = lin(away)
    page = one.get("/dead").text
    assert "9999-12-31" in page
    assert "m-2" in page


def test_a_list_that_is_behind_says_so(away: ConsoleParts, lin: OpenPage) -> None:
    one = lin(away)
    assert "No recovery has read" in one.get("/dead").text
    enter(away, entry(1))
    assert "may lack up to 1000 newer" in one.get("/dead").text


def test_a_letter_is_read_masked_and_revealed_with_a_reason(
    with_kafka: ConsoleParts, lin: OpenPage
) -> None:
    topics(with_kafka)
    (origin,) = bury(with_kafka, 7)
    one = lin(with_kafka)
    page = one.get("/dead/letter", params={"origin": origin}).text
    assert "4711" not in page
    assert "13800000001" not in page
    assert "\\xffkept" in page
    assert one.post("/dead/letter/reveal", origin=origin).status_code == 422
    assert actions(with_kafka) == []
    shown = one.post("/dead/letter/reveal", origin=origin, reason="ticket 12").text
    assert "4711" in shown
    assert "+8613800000001" in shown
    assert actions(with_kafka) == [("dead.reveal", origin, "ticket 12")]


def test_a_letter_is_replayed_once_and_unchanged(with_kafka: ConsoleParts, lin: OpenPage) -> None:
    topics(with_kafka)
    (origin,) = bury(with_kafka, 7)
    one = lin(with_kafka)
    done = one.post("/dead/letter/replay", origin=origin, reason="mended")
    assert done.status_code == 303
    assert "Kafka has the record again" in one.get(done.headers["location"]).text
    assert arrived(with_kafka) == [BODY]
    assert states(with_kafka)[origin] == ("REPLAYED", "lin")
    again = one.post("/dead/letter/replay", origin=origin, reason="mended")
    assert again.status_code == 409
    assert arrived(with_kafka) == [BODY]
    assert actions(with_kafka) == [("dead.replay", origin, "mended")]


def test_all_of_a_filter_are_replayed_each_once_and_each_end_is_shown(
    with_kafka: ConsoleParts, lin: OpenPage
) -> None:
    topics(with_kafka)
    origins = bury(with_kafka, *range(60))
    lane = origins[0].rpartition("/")[0].rpartition("/")[0]
    with_kafka.ledger.replays().begin([(origins[3], lane)], again=False)  # by a command just now
    enter(with_kafka, entry(900, origin=f"{lane}/0/900"))  # no longer in Kafka
    one = lin(with_kafka)
    page = one.get("/dead/many").text
    (digest,) = set(re.findall(r'name="digest" value="(\w+)"', page))
    done = one.post(
        "/dead/many/replay", digest=digest, code="", lane="", since="", typed="61", reason="mended"
    )
    assert "59 · Replayed" in done.text
    assert "1 · It was replayed before" in done.text
    assert "1 · Kafka no longer has" in done.text
    assert len(arrived(with_kafka)) == 59
    found = states(with_kafka)
    assert found[origins[3]] == ("OPEN", None)
    assert [state for state, _ in found.values()].count("REPLAYED") == 59


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff\x00abc", "\\xff⟨U+0000⟩abc"),
        ("a\u202eb\u200b".encode(), "a⟨U+202E⟩b⟨U+200B⟩"),
        (b"[1, 2]", "[\n  1,\n  2\n]"),
        (b'{"a":"\\u202e"}', '{\n  "a": "\\u202e"\n}'),
        (b"[" * 100_000, "[" * (64 << 10)),
        (None, ""),
        (b"\r\n\t<b>", "⟨U+000D⟩\n\t<b>"),
    ],
)
def test_any_bytes_are_shown_as_bounded_text(value: bytes | None, shown: str) -> None:
    letter = letter_of(Stored(value), "hongyan")
    assert shown_value(letter, revealed=True).text == shown
    masked = shown_value(letter, revealed=False)
    assert len(masked.text) <= 64 << 10
    assert visible(masked.text, 64 << 10) == masked.text


@pytest.mark.parametrize(
    "value",
    [
        b'{"channel":"sms","receivers":"+8613800000001"}',
        b'{"to":[{"mail":"ann\\u0040example.com"}],"ordering_key":"+8613800000001"}',
        b'["+8613800000001"]',
    ],
)
def test_the_page_masks_a_value_as_the_command_does(value: bytes) -> None:
    letter = letter_of(Stored(value), "hongyan")
    shown = shown_value(letter, revealed=False)
    assert msgspec.json.decode(shown.text) == msgspec.json.decode(letter.body())
    assert "13800000001" not in shown.text
    assert "example.com" not in shown.text


def test_a_mebibyte_is_cut_and_its_numbers_are_masked() -> None:
    value = b"call +8613800000001 " * 52_000
    shown = shown_value(letter_of(Stored(value), "hongyan"), revealed=False)
    assert len(shown.text) <= 64 << 10
    assert "13800000001" not in shown.text
    assert shown.cut
