"""Searches find rows by every field, page by page, in the ledger and in days that left it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.settings import OutcomeSettings
from backends.sql.database import Database
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import LedgerUnavailable
from idempotency.partitions import ensure_partitions
from idempotency.recovery.contract import Transition
from idempotency.search.language import QueryError, parse
from idempotency.search.statements import COLUMNS, Cursor
from idempotency.search.store import Search, SearchPage, SearchRow, _Look
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery, Origin
from message.envelope import Template
from message.receiver_hash import hasher, no_hash
from message.states import Event, State
from tests.idempotency.making import World, claimed, delivery, settle

KEY = "k" * 32


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    settings = msgspec.structs.replace(world.settings, outcomes=OutcomeSettings(hash_key=KEY))
    ledger = open_ledger(settings, lambda: world.now)
    world._opened.append(ledger)
    return ledger


@pytest.fixture
def search(ledger: SqlLedger) -> Search:
    return Search(ledger.database, hasher(KEY))


def found(search: Search, world: World, line: str, after: Cursor | None = None) -> SearchPage:
    return search.page(parse(line, world.now), after)


def keys(page: SearchPage) -> list[str]:
    return [row.delivery_key for row in page.rows]


def met_by_pages(search: Search, world: World, line: str) -> list[str]:
    """Returns the keys of all pages of five rows."""
    terms, after, met = parse(line, world.now), None, list[str]()
    while True:
        page = search.page(terms, after, 5)
        met += keys(page)
        after = page.next
        if after is None:
            return met


def sent(
    ledger: SqlLedger, item: Delivery, event: Event = Event.ACCEPTED, **fields: Any
) -> Delivery:
    (one,) = claimed(ledger, item)
    assert settle(ledger, one, event, **fields)
    return one


def test_a_delivery_is_found_by_every_field(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    claimed(ledger, delivery(receivers=("+8613900000009",), lane="sms.marketing"))
    item = delivery(biz_id="order-7", template=Template(id="SMS_1"), resend_of="a" * 32)
    item.account = "main"
    one = sent(ledger, item, provider_id="p-77")
    world.advance(1_000)
    for line in (
        f"id:{one.notification.id}",
        f"key:{one.key}",
        "biz:order-7",
        "receiver:+8613800000001",
        'receiver:"+86 138 0000 0001"',
        "receiver:+8613800000001 lane:sms.*",
        "provider:p-77",
        "place:hongyan.dispatch.sms.notice/1/42",
        f"copy_of:{'a' * 32}",
        "template:SMS_1",
        "lane:sms.notice",
        "account:main",
        "state:SENT",
        "state:sent lane:sms.* since:1h",
        one.key,
        one.notification.id,
        "order-7",
        "+8613800000001",
        "p-77",
    ):
        assert keys(found(search, world, line)) == [one.key], line
    for line in ("receiver:+8613800000002", "template:SMS_2", "key:" + "0" * 32, "nothing"):
        assert keys(found(search, world, line)) == [], line
    assert keys(found(search, world, "biz:order-7 state:PARKED")) == []
    (row,) = found(search, world, one.key).rows
    assert str(row.origin) == "hongyan.dispatch.sms.notice/1/42"
    assert (row.template, row.account, row.provider_id) == ("SMS_1", "main", "p-77")


def test_every_term_beside_a_name_holds(world: World, ledger: SqlLedger, search: Search) -> None:
    item = delivery(biz_id="order-7", template=Template(id="SMS_1"), resend_of="a" * 32)
    item.account = "main"
    one = sent(ledger, item, Event.REJECTED, provider_id="p-77", reason="bad_number:isv.MOBILE")
    (flying,) = claimed(ledger, delivery(biz_id="order-8", template=Template(id="SMS_1")))
    world.advance(1_000)
    place = "hongyan.dispatch.sms.notice/1/42"
    names = (
        *(f"key:{one.key}", f"id:{one.notification.id}", "biz:order-7", "provider:p-77"),
        *(f"copy_of:{'a' * 32}", "receiver:+8613800000001", "template:SMS_1"),
        *(one.key, one.notification.id, "order-7", "p-77", "a" * 32, "+8613800000001", place),
    )
    right = (
        *(f"key:{one.key}", f"id:{one.notification.id}", "biz:order-7", "provider:p-77"),
        *(f"copy_of:{'a' * 32}", "receiver:+8613800000001", "template:SMS_1", "account:main"),
        *("lane:sms.notice", "state:REJECTED", "error:bad_number", f"place:{place}", "since:1h"),
    )
    wrong = (
        *(f"key:{'0' * 32}", "id:none", "biz:order-9", "provider:nobody", f"copy_of:{'b' * 32}"),
        *("receiver:+8613899999999", "template:SMS_2", "account:other", "lane:email.*"),
        *("state:SENT", "error:bad", "place:t/1/1", "until:2020-01-01 since:2019-12-01"),
    )
    for name in names:
        field = name.partition(":")[0] + ":"
        for term in right:
            if not term.startswith(field):
                line = term if term.startswith("state:") else f"{term} state:REJECTED"
                assert keys(found(search, world, f"{name} {line}")) == [one.key], (name, term)
        for term in wrong:
            if not term.startswith(field):
                assert keys(found(search, world, f"{name} {term}")) == [], (name, term)
    assert keys(found(search, world, "order-8 template:SMS_1")) == [flying.key]
    assert keys(found(search, world, "order-8 template:SMS_2")) == []


def test_a_bare_receiver_and_another_receiver_find_nothing(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    items = [delivery(receivers=(f"+861380000000{number}",)) for number in (1, 2)]
    one, _other = claimed(ledger, *items)
    for settled in (False, True):
        if settled:
            assert settle(ledger, one, Event.ACCEPTED)
        line = "+8613800000001 receiver:"
        assert keys(found(search, world, line + "+8613800000001")) == [one.key]
        assert keys(found(search, world, line + "+8613800000002")) == []


UNDER_WAY = ("receiver:+8613800000001 since:2d", "template:SMS_1 since:2d", "account:main since:2d")


def test_rows_under_way_are_found_by_receiver_template_and_account(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    item = delivery(template=Template(id="SMS_1"))
    item.account = "main"
    (one,) = claimed(ledger, item)
    for line in (*UNDER_WAY, "account:main state:IN_FLIGHT,SENT", "account:main,other"):
        assert keys(found(search, world, line)) == [one.key], line
    for line in ("account:main state:SENT", "account:other", "account:main lane:email.*"):
        assert keys(found(search, world, line)) == [], line


def test_rows_under_way_have_their_place_among_the_others(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    made = []
    for number in range(12):
        item = delivery(template=Template(id="SMS_1"))
        item.account = "main"
        (one,) = claimed(ledger, item)
        if number % 3:
            assert settle(ledger, one, Event.ACCEPTED)
        made.append(one.key)
        world.advance(1_800_000 if number % 2 else 3 * 3_600_000)
    for line in UNDER_WAY:
        assert met_by_pages(search, world, line) == made[::-1], line


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_row_that_ends_meanwhile_is_found_once(
    world: World, ledger: SqlLedger, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = _Look._read

    def read_and_settle(look: _Look, *asked: Any, **named: Any) -> Any:
        rows = read(look, *asked, **named)
        if ending:
            assert settle(ledger, ending.pop(), Event.ACCEPTED)
        return rows

    # SQLite has one writer, for which a search waits.
    monkeypatch.setattr(_Look, "_read", read_and_settle)
    for line in UNDER_WAY:
        item = delivery(template=Template(id="SMS_1"))
        item.account = "main"
        ending = claimed(ledger, item)
        key = ending[0].key
        assert keys(found(search, world, line)).count(key) == 1, line


def test_what_ended_unsent_is_found_by_the_time_of_its_end(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    (late,) = claimed(ledger, delivery())
    sent(ledger, delivery(), Event.REJECTED, reason="bad_number:isv.MOBILE")
    world.advance(3 * 3_600_000)
    assert settle(ledger, late, Event.BUDGET_SPENT, reason="attempts_spent:X")
    page = found(search, world, "state:PARKED,REJECTED since:1h")
    assert keys(page) == [late.key]
    assert page.by_end
    assert len(found(search, world, "state:PARKED,REJECTED lane:sms.*").rows) == 2
    assert keys(found(search, world, "error:attempts_spent")) == [late.key]
    assert keys(found(search, world, "error:attempts")) == []


def discarded_late(world: World, ledger: SqlLedger) -> Delivery:
    """A delivery that was parked, and that a person discarded 20 days later."""
    (one,) = claimed(ledger, delivery())
    assert settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent:X")
    world.advance(20 * MS_PER_DAY)
    ensure_partitions(ledger.database)
    ((version,),) = world.rows("SELECT version FROM deliveries WHERE state = 'PARKED'")
    assert one.day is not None
    move = Transition(
        one.key, one.day, version, State.PARKED, Event.OPERATOR_DISCARD, "operator:li"
    )
    assert ledger.recovering().move([move]) == [True]
    return one


def test_an_end_long_after_the_claim_is_found_by_its_time(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    late = discarded_late(world, ledger)
    world.advance(1_000)
    (new,) = claimed(ledger, delivery())
    assert settle(ledger, new, Event.REJECTED, reason="operator:no")
    world.advance(1_000)
    for line in ("state:DROPPED", "state:DROPPED lane:sms.notice", "error:operator:li"):
        assert keys(found(search, world, f"{line} since:1h")) == [late.key], line
    for line in (
        "state:DROPPED,REJECTED",
        "state:PARKED,DROPPED,REJECTED lane:sms.*",
        "error:operator",
    ):
        assert met_by_pages(search, world, f"{line} since:1h") == [new.key, late.key], line


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_end_long_after_the_claim_is_found_in_a_day_that_left(
    world: World, ledger: SqlLedger, search: Search, tmp_path: Path
) -> None:
    late = discarded_late(world, ledger)
    world.advance(5 * MS_PER_DAY)
    ensure_partitions(ledger.database)
    assert late.day is not None
    ledger.archive(str(tmp_path)).archive(late.day)
    for line in ("state:DROPPED since:6d", "error:operator:li since:6d"):
        page = found(search, world, line)
        assert keys(page) == [late.key], line
        assert page.rows[0].where.startswith("archive.deliveries_")


REASONS = (
    ("rejected", "sms.notice"),
    ("rejected:isv.MOBILE", "sms.notice"),
    ("rejected:isv.MOBILE:2", "email.notice"),
    ("rejected:", "wecom.notice"),
    ("rejected_twice", "sms.notice"),
    ("Rejected", "sms.notice"),
    (":rejected", "sms.notice"),
    ("", "sms.notice"),
    (None, "sms.notice"),
    ("拒绝:短信", "sms.marketing"),
)


def test_an_error_finds_reasons_that_are_it_or_begin_with_it_and_a_colon(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    """Both databases have one answer, for every kind of reason."""
    for reason, lane in REASONS:
        sent(ledger, delivery(lane=lane), Event.REJECTED, reason=reason)
        world.advance(1_000)
    sent(ledger, delivery(), reason="rejected")  # SENT

    def reasons(line: str) -> list[str | None]:
        return [row.reason for row in found(search, world, line).rows]

    plain = [reason for reason, _lane in REASONS[3::-1]]
    assert reasons("error:rejected") == plain
    assert reasons("error:rejected lane:sms.*,wecom.*") == [plain[0], *plain[2:]]
    assert reasons("error:rejected lane:email.notice state:REJECTED") == ["rejected:isv.MOBILE:2"]
    assert reasons("error:rejected state:PARKED") == []
    assert reasons("error:rejected:isv.MOBILE") == ["rejected:isv.MOBILE:2", "rejected:isv.MOBILE"]
    assert reasons("error:rejected:isv") == []
    assert reasons('error:"rejected:"') == ["rejected:"]
    assert reasons('error:":rejected"') == [":rejected"]
    assert reasons("error:拒绝") == ["拒绝:短信"]
    assert reasons("error:reject") == []
    for line in ("error:rejected since:2d", "error:rejected:isv.MOBILE"):
        assert len(met_by_pages(search, world, line)) == len(reasons(line))


def test_pages_follow_one_another_without_gap_or_double(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    made = []
    for number in range(12):
        made.append(sent(ledger, delivery(biz_id="b", template=Template(id="T"))).key)
        world.advance(0 if number % 3 else 3_600_000)
    for line in ("lane:sms.notice since:2d", "biz:b", "template:T since:2d", "state:SENT since:2d"):
        met = met_by_pages(search, world, line)
        assert len(met) == len(set(met)) == 12, line
        assert set(met) == set(made), line


def test_a_search_goes_on_where_its_time_was_up(world: World, ledger: SqlLedger) -> None:
    sent(ledger, delivery())
    world.advance(20 * 3_600_000)
    clock = iter(range(1_000))
    search = Search(ledger.database, hasher(KEY), monotonic=lambda: next(clock) * 0.4)
    terms, after = parse("lane:email.notice", world.now), None
    pages = 0
    while (page := search.page(terms, after)).next is not None:
        assert page.rows == []
        assert after is None or page.next.at < after.at
        after, pages = page.next, pages + 1
    assert pages > 2
    assert page.reached == terms.since


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_sqlite_file_that_another_writes_is_no_search_that_took_too_long(
    world: World, ledger: SqlLedger, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.sql.database.BUSY_MS", 50)
    with closing(Database(ledger.database.url)) as database, world.open().database.begin():
        busy = Search(database, hasher(KEY))
        with pytest.raises(LedgerUnavailable, match="took too long: database is locked"):
            found(busy, world, "biz:b")


def test_days_are_searched_back_to_the_begin(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    old = sent(ledger, delivery(biz_id="b"))
    world.advance(30 * MS_PER_DAY)
    ensure_partitions(ledger.database)
    new = sent(ledger, delivery(biz_id="b"))
    assert keys(found(search, world, "biz:b")) == [new.key, old.key]
    assert keys(found(search, world, "biz:b since:7d")) == [new.key]
    assert keys(found(search, world, "receiver:+8613800000001 since:60d")) == [new.key, old.key]


@pytest.mark.parametrize("apart_ms", [1_000, 9 * MS_PER_DAY])
def test_rows_of_an_older_program_are_found_by_receiver_too(
    world: World, ledger: SqlLedger, search: Search, apart_ms: int
) -> None:
    made = []
    for _ in range(6):
        made.append(sent(ledger, delivery()))
        world.advance(apart_ms)
        ensure_partitions(ledger.database)
    old = ", ".join(f"'{one.key}'" for one in made[::2])
    forgotten = f"UPDATE deliveries SET receiver_text_hash = NULL WHERE delivery_key IN ({old})"
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(forgotten)
    newest = [one.key for one in reversed(made)]
    line = "receiver:+8613800000001 since:60d"
    assert keys(found(search, world, line)) == newest
    terms = parse(line, world.now)
    for size in (1, 2, 4):
        pages, after = [search.page(terms, size=size)], None
        while (after := pages[-1].next) is not None:
            pages.append(search.page(terms, after, size))
        assert [key for one in pages for key in keys(one)] == newest, size


def test_a_receiver_of_one_channel_is_not_anothers(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    number = sent(ledger, delivery())
    person = sent(ledger, delivery(receivers=("+8613800000001",), lane="wecom.notice"))
    world.advance(1_000)
    assert set(keys(found(search, world, "receiver:+8613800000001"))) == {number.key, person.key}
    # Only a text message's receiver is written without blanks.
    assert keys(found(search, world, 'receiver:"+86 138 0000 0001"')) == [number.key]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_days_that_left_the_ledger_are_searched_too(
    world: World, ledger: SqlLedger, search: Search, tmp_path: Path
) -> None:
    one = sent(ledger, delivery(biz_id="b", template=Template(id="T")))
    ended = sent(ledger, delivery(), Event.REJECTED, reason="no")
    world.advance(40 * MS_PER_DAY)
    ensure_partitions(ledger.database)
    day = one.day
    ledger.archive(str(tmp_path)).archive(day)
    for line in ("biz:b", f"key:{one.key}", f"{one.key}", "receiver:+8613800000001 template:T"):
        page = found(search, world, f"{line} since:60d")
        assert keys(page) == [one.key], line
        assert page.rows[0].where.startswith("archive.deliveries_")
    for line in ("state:REJECTED since:60d", "error:no since:60d"):
        assert keys(found(search, world, line)) == [ended.key], line


def test_a_receiver_without_a_key_is_an_error(world: World, ledger: SqlLedger) -> None:
    search = Search(ledger.database, no_hash)
    with pytest.raises(QueryError, match="no_hash_key"):
        found(search, world, "receiver:+8613800000001")
    assert found(search, world, "+8613800000001").rows == []


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_statement_that_takes_too_long_is_refused(
    world: World, ledger: SqlLedger, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.search.store.TIMEOUT_MS", 50)
    world.run("CREATE FUNCTION slow() RETURNS text LANGUAGE sql AS 'SELECT pg_sleep(1)::text'")
    sent(ledger, delivery())
    monkeypatch.setattr(
        "idempotency.search.store.filters", lambda _terms: (["slow() IS NOT NULL"], {})
    )
    with pytest.raises(QueryError) as caught:
        found(search, world, "lane:sms.notice")
    assert caught.value.code == "search.timeout"


def test_what_people_type_is_a_value_and_no_sql(world: World, search: Search) -> None:
    for word in ("'; DROP TABLE deliveries; --", "x' OR '1'='1", "%", "\u202e", "a:b"):
        for field in ("biz", "receiver", "provider", "template", "account", "error", "id"):
            quoted = word.replace("\\", "\\\\").replace('"', '\\"')
            assert found(search, world, f'{field}:"{quoted}"').rows == []


def test_views_are_kept_by_person_and_shared(world: World, ledger: SqlLedger) -> None:
    views = ledger.views()
    assert views.save("li", "mine", "state:PARKED")
    assert views.save("li", "mine", "state:UNKNOWN")
    assert views.save("wang", "all", "lane:sms.*", shared=True)
    assert views.save("wang", "own", "lane:email.*")
    assert [(view.name, view.query, view.shared) for view in views.of("li")] == [
        ("mine", "state:UNKNOWN", False),
        ("all", "lane:sms.*", True),
    ]
    shared = views.of("li")[1]
    assert not views.drop("li", shared.id)
    assert views.drop("wang", shared.id)
    assert not views.save("li", " ", "x")


def test_open_deliveries_are_found_by_state_with_their_lane_and_page_by_page(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    unsure = []
    for number in range(3):
        unsure.append(sent(ledger, delivery(biz_id=f"u{number}"), Event.UNKNOWN))
        world.advance(1_000)
    waiting = sent(ledger, delivery(lane="email.notice"), Event.NOT_SENT)
    world.advance(1_000)
    (flying,) = claimed(ledger, delivery())
    sent(ledger, delivery())
    assert keys(found(search, world, "state:UNKNOWN since:7d")) == [d.key for d in unsure[::-1]]
    assert keys(found(search, world, "state:RETRY,IN_FLIGHT")) == [flying.key, waiting.key]
    assert keys(found(search, world, "state:RETRY,UNKNOWN lane:email.*")) == [waiting.key]
    assert keys(found(search, world, "state:RETRY account:nobody")) == []
    terms = parse("state:UNKNOWN,RETRY", world.now)
    first = search.page(terms, None, 2)
    second = search.page(terms, first.next, 2)
    assert keys(first) + keys(second) == [waiting.key, *(d.key for d in unsure[::-1])]


def test_a_record_is_found_by_its_place_though_it_was_read_late(
    world: World, ledger: SqlLedger, search: Search
) -> None:
    topic, expected = "hongyan.dispatch.sms.notice", {}
    for offset in (10, 11, 12, 4, 13, 14):  # 4 was read again hours later
        item = delivery(lane="sms.notice")
        item.origin = Origin(topic, 3, offset)
        (one,) = claimed(ledger, item)
        if offset % 2:
            assert settle(ledger, one, Event.ACCEPTED)
        expected[offset] = one.key
        world.advance(3_600_000)
    for offset, key in expected.items():
        assert keys(found(search, world, f"place:{topic}/3/{offset} since:1d")) == [key]
    assert keys(found(search, world, f"place:{topic}/3/5 since:1d")) == []
    assert keys(found(search, world, f"place:{topic}/2/10 since:1d")) == []


def test_a_row_has_the_columns_of_its_statement_in_their_order() -> None:
    own = COLUMNS[: COLUMNS.index("kafka_topic")]
    assert SearchRow.__struct_fields__ == (*own, "origin", "where", "day")
