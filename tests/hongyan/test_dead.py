"""hongyan dead: from the topic to the terminal, and back to the lane."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backends.kafka import clients as kafka
from backends.kafka.topic_reader import read_topic
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from idempotency.dead_letters.rows import LetterEntry
from idempotency.sql_ledger import open_ledger
from sending.dead_letters.batches import batches
from sending.dead_letters.reader import DeadLetter
from tests.hongyan.conftest import Run, make_ledger

LANE_TOPIC = "{}.dispatch.sms.notice"


@pytest.fixture
def prefix(kafka: str, folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"d{folder.name.replace('_', '')[-20:]}".replace("-", "")
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", name)
    monkeypatch.setenv("HONGYAN_DATABASE__URL", f"sqlite:///{folder / 'ledger.db'}")
    make_ledger()
    assert hongyan("topics", "apply", "--lanes", "sms.notice").code == 0
    return name


def bury(bootstrap: str, prefix: str, offset: int, reason: str, value: bytes) -> str:
    """A dead letter as a worker writes it; its origin."""
    origin = f"{LANE_TOPIC.format(prefix)}/0/{offset}"
    producer = kafka_producer(bootstrap)
    headers: list[tuple[str, str | bytes | None]] = [
        ("theirs", b"kept"),
        ("receiver", b"+8613800000003"),
        ("hongyan-dead-reason", reason.encode()),
        ("hongyan-dead-detail", b"$.ttl_ms: what was wrong"),
        ("hongyan-dead-origin", origin.encode()),
    ]
    producer.produce(f"{prefix}.dead", key=b"k", value=value, headers=headers)
    assert producer.flush(10) == 0
    return origin


def kafka_producer(bootstrap: str) -> "kafka.Producer":
    return kafka.producer(KafkaSettings(bootstrap=bootstrap))


def test_letters_are_listed_shown_and_replayed_once(hongyan: Run, kafka: str, prefix: str) -> None:
    body = (
        b'{"id":"m-1","channel":"sms","receivers":["+8613800000001"],"content":{"text":"secret"}}'
    )
    one = bury(kafka, prefix, 1, "bad_ttl", body)
    two = bury(kafka, prefix, 2, "not_json", b"call \x1b[8m+8613800000002")
    listed = hongyan("dead", "list", "--json").json
    assert {(x["origin"], x["reason"], x["lane"]) for x in listed} == {
        (one, "bad_ttl", "sms.notice"),
        (two, "not_json", "sms.notice"),
    }
    assert [x["origin"] for x in hongyan("dead", "list", "--reason", "bad_ttl", "--json").json] == [
        one
    ]
    for said in (
        hongyan("dead", "show", one),
        hongyan("dead", "show", two),
        hongyan("dead", "show", two, "--json"),
        hongyan("dead", "list"),
    ):
        assert said.code == 0
        assert "\x1b" not in said.out
        assert "13800000003" not in said.out
        assert "secret" not in said.out
        assert "13800000001" not in said.out
        assert "13800000002" not in said.out
    told = hongyan("dead", "show", two).out
    assert re.search(r"^at +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$", told, re.MULTILINE)
    assert "None" not in told, "what a letter has not is left out"
    dry = hongyan("dead", "replay", one)
    assert (dry.code, "would_replay" in dry.out, "dry run" in dry.err) == (0, True, True)
    done = hongyan("dead", "replay", one, "--yes", "--json")
    assert [x["fate"] for x in done.json["letters"]] == ["replayed"]
    again = hongyan("dead", "replay", "--lane", "sms.notice", "--yes", "--json")
    fates = {x["origin"]: x["fate"] for x in again.json["letters"]}
    assert fates == {one: "replayed_before", two: "replayed"}
    settings = KafkaSettings(bootstrap=kafka)
    arrived = {m.value(): m.headers() for m in read_topic(settings, LANE_TOPIC.format(prefix))}
    theirs = [("theirs", b"kept"), ("receiver", b"+8613800000003")]
    assert arrived[body] == [*theirs, ("hongyan-replay-of", one.encode())]
    assert len(arrived) == 2


def test_what_is_not_there_is_said(hongyan: Run, prefix: str) -> None:
    assert hongyan("dead", "list").out == "no dead letters\n"
    shown = hongyan("dead", "show", "t/0/1")
    assert (shown.code, "there is no dead letter from 't/0/1'" in shown.err) == (1, True)
    assert hongyan("dead", "replay", "t/0/1", "--yes").code == 1
    none = hongyan("dead", "replay", "t/0/1", "--yes", "--json").json
    assert none == {"letters": [], "matched": 0, "left": 0, "dry_run": False}
    assert hongyan("dead", "replay").code == 2
    assert hongyan("dead", "list", "--since", "soon").code == 2
    assert hongyan("dead", "list", "--lane", "pigeon.post").code == 2


def test_all_that_match_are_replayed_however_many_they_are(
    hongyan: Run, kafka: str, prefix: str
) -> None:
    producer = kafka_producer(kafka)
    for number in range(1_250):
        origin = f"{LANE_TOPIC.format(prefix)}/0/{number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [
            ("hongyan-dead-reason", b"bad_ttl"),
            ("hongyan-dead-origin", origin),
        ]
        producer.produce(f"{prefix}.dead", value=b"%d" % number, headers=headers)
    assert producer.flush(30) == 0
    asked = ("dead", "replay", "--reason", "bad_ttl", "--since", "30min")
    dry = hongyan(*asked)
    assert "1,250 match: 1,250 would_replay" in dry.out
    some = hongyan(*asked, "--yes", "--limit", "1100", "--json")
    sums = {name: some.json[name] for name in ("matched", "replayed", "left")}
    assert (some.code, sums) == (1, {"matched": 1_250, "replayed": 1_100, "left": 150})
    assert len(some.json["letters"]) == 1_100
    rest = hongyan(*asked, "--yes")
    assert rest.code == 0
    assert "1,250 match: " in rest.out
    assert "1,100 replayed_before" in rest.out
    assert "150 replayed" in rest.out
    settings = KafkaSettings(bootstrap=kafka)
    arrived = [m.value() or b"" for m in read_topic(settings, LANE_TOPIC.format(prefix))]
    assert sorted(arrived) == sorted(b"%d" % number for number in range(1_250))


def test_a_batch_is_bounded_by_its_bytes_and_names_an_origin_once() -> None:
    def letter(number: int, size: int = 1) -> DeadLetter:
        fields: dict[str, Any] = {
            "reason": "",
            "detail": "",
            "lane": "",
            "key": None,
            "headers": [],
            "truncated": 0,
        }
        place = f"dead/0/{number}"
        return DeadLetter(
            place=place, origin=f"t/0/{number}", at=-number, value=b"x" * size, **fields
        )

    large = [letter(n, 20 << 20) for n in range(3)]
    assert [len(batch) for batch in batches(large)] == [2, 1]
    twice = list(batches([letter(1), letter(2), letter(1)]))
    assert [[one.origin for one in batch] for batch in twice] == [["t/0/2", "t/0/1"]]
    assert [len(batch) for batch in batches(letter(n) for n in range(250))] == [100, 100, 50]


def index_of(folder: Path, *letters: LetterEntry) -> None:
    """Enters letters as a recovery does that has read the whole topic."""
    with closing(
        open_ledger(Settings(database=DatabaseSettings(url=ledger_url(folder))))
    ) as ledger:
        index = ledger.letter_index()
        index.look("t1", {0: (0, len(letters))})
        index.enter("t1", letters, {0: (0, len(letters))})


def ledger_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


def letter(number: int, reason: str = "bad_ttl", lane: str = "sms.notice") -> LetterEntry:
    origin = f"hongyan.dispatch.{lane}/0/{number}"
    at = 1_790_000_000_000 + number
    detail = "$.ttl_ms: above 0"
    sizes = (80, "WHOLE", "0" * 32)
    return LetterEntry(origin, 0, number, at, reason, detail, lane, f"m-{number}", *sizes)


@pytest.fixture
def no_kafka(folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setenv("HONGYAN_DATABASE__URL", ledger_url(folder))
    make_ledger()


@pytest.mark.usefixtures("no_kafka")
def test_the_list_comes_from_the_index_and_needs_no_kafka(hongyan: Run, folder: Path) -> None:
    index_of(folder, letter(0), letter(1, "not_json"), letter(2, lane="email.notice"))
    listed = hongyan("dead", "list", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert [x["id"] for x in listed.json] == ["m-2", "m-1", "m-0"]
    assert listed.json[0]["place"] == "hongyan.dead/0/2"
    assert listed.json[0]["receivers"] is None, "the index holds none"
    for arguments, ids in (
        (("--reason-code", "not_json"), ["m-1"]),
        (("--lane", "email.notice"), ["m-2"]),
        (("--limit", "1"), ["m-2"]),
        (("--since", "1h"), []),
    ):
        assert [x["id"] for x in hongyan("dead", "list", *arguments, "--json").json] == ids
    table = hongyan("dead", "list").out
    assert "OPEN" in table
    assert "hongyan.dispatch.sms.notice/0/1" in table


@pytest.mark.usefixtures("no_kafka")
def test_a_list_of_an_index_that_is_behind_says_so(hongyan: Run, folder: Path) -> None:
    index_of(folder, letter(0))
    with closing(
        open_ledger(Settings(database=DatabaseSettings(url=ledger_url(folder))))
    ) as ledger:
        ledger.letter_index().look("t1", {0: (0, 7)})
    listed = hongyan("dead", "list", "--json")
    assert [x["id"] for x in listed.json] == ["m-0"]
    assert "6 newer letters are not in the index yet" in listed.err


def test_without_an_index_the_topic_is_read(hongyan: Run, kafka: str, prefix: str) -> None:
    origin = bury(kafka, prefix, 1, "bad_ttl", b"{}")
    listed = hongyan("dead", "list", "--json")
    assert [x["origin"] for x in listed.json] == [origin]
    assert "no recovery has read the topic of dead letters yet" in listed.err


def test_a_person_may_ask_for_the_topic_itself(
    hongyan: Run, kafka: str, prefix: str, folder: Path
) -> None:
    origin = bury(kafka, prefix, 1, "bad_ttl", b"{}")
    index_of(folder, letter(0))
    listed = hongyan("dead", "list", "--from-topic", "--json")
    assert [x["origin"] for x in listed.json] == [origin]
