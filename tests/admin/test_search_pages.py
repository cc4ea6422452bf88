"""`/search`: the line goes by POST, no receiver comes into an address, lanes hold, CSV is harmless."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from admin.access import Person, Role
from admin.audit.journal import AuditFilter
from admin.pages.deliveries.export import csv_of, harmless
from admin.pages.deliveries.search_line import is_personal, resend_link
from admin.parts import ConsoleParts, open_parts
from admin.web.foreign_text import visible
from admin.web.languages import texts_of
from admin.web.sealing import SealBroken, sealed, unsealed
from backends.settings import OutcomeSettings
from idempotency.resend_jobs.contract import JobFilter, JobLimits, JobState, ResendMode
from idempotency.search.language import DAY_MS, parse
from idempotency.search.store import Search
from idempotency.search.wording import ENGLISH
from message.receiver_hash import hasher
from message.states import Event
from recovery.resend_jobs.factory import actions_on
from tests.admin.delivering import EVIL, RECEIVER, Stock, made, signed_in, stock
from tests.idempotency.making import World, claimed, delivery, settle, worker

NOW = 1_790_000_000_000


@pytest.fixture
def parts(parts: ConsoleParts) -> Iterator[ConsoleParts]:
    """The console of a ledger whose receivers are found by their hash."""
    outcomes = OutcomeSettings(hash_key="a key of the tests for hashes of receivers")
    settings = msgspec.structs.replace(parts.settings, outcomes=outcomes)
    url = parts.ledger.database.url.render_as_string(hide_password=False)
    database = msgspec.structs.replace(settings.database, url=url)
    with ExitStack() as stack:
        yield open_parts(msgspec.structs.replace(settings, database=database), stack)


@pytest.fixture
def stocked(parts: ConsoleParts) -> Stock:
    return stock(parts)


def sent(one: Any, line: str) -> Any:
    return one.post("/search", "/account", q=line)


def test_one_hit_leads_to_its_page(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    item = stocked.parked
    for name in (item.key, item.notification.id, str(item.origin)):
        assert sent(one, name).headers["location"] == f"/deliveries/{item.key}"
    biz = item.notification.biz_id
    assert sent(one, f"biz:{biz} state:PARKED").headers["location"] == f"/deliveries/{item.key}"
    assert sent(one, "provider:p-1").headers["location"] == f"/deliveries/{stocked.sent.key}"


def test_a_receiver_is_found_by_its_hash_and_is_in_no_address(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    for line in (f"receiver:{RECEIVER}", RECEIVER, f"receiver:{RECEIVER} since:2h"):
        target = sent(one, line).headers["location"]
        assert target.startswith("/search?s=")
        assert "138" not in target.partition("?s=")[0]
        page = one.get(target).text
        assert {key in page for key in (stocked.sent.key, stocked.parked.key)} == {True}
        assert stocked.elsewhere.key not in page


def test_a_personal_line_in_an_address_is_not_run(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    page = one.get("/search", params={"q": f"receiver:{RECEIVER}"}).text
    assert texts_of("en")("search.by_button") in page
    assert stocked.sent.key not in page


def test_a_sealed_line_is_of_one_person_and_one_key() -> None:
    token = sealed("k" * 32, 1, "receiver:+86")
    assert unsealed("k" * 32, 1, token) == "receiver:+86"
    for secret, person, text in [("k" * 32, 2, token), ("l" * 32, 1, token), ("k" * 32, 1, "x")]:
        with pytest.raises(SealBroken):
            unsealed(secret, person, text)


def test_results_are_of_the_persons_lanes_alone(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    page = one.get("/search", params={"q": "state:PARKED,REJECTED,EXPIRED since:2h"}).text
    assert stocked.parked.key in page
    assert stocked.elsewhere.key not in page
    target = sent(one, stocked.elsewhere.key).headers["location"]
    assert f"/deliveries/{stocked.elsewhere.key}" not in one.get(target).text
    assert stocked.elsewhere.key not in one.get("/search?q=lane:email.*").text


def test_pages_follow_each_other_without_a_gap(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    keys = {made(parts).key for _ in range(53)}
    one = signed_in(browser, user)
    first = one.get("/search?q=lane:sms.*").text
    following = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = one.get(following).text
    pages = [{key for key in keys if key in page} for page in (first, second)]
    assert (len(pages[0]), len(pages[1])) == (50, 3)
    assert pages[0] | pages[1] == keys


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_wide_or_wrong_line_is_refused_with_a_sentence(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    wide = sent(one, "lane:sms.* since:30d")
    assert wide.status_code == 422
    assert "add state:PARKED or a later since:" in wide.text
    wrong = sent(one, "stat:PARKED")
    assert "there is no field stat" in wrong.text
    assert "Did you mean state?" in wrong.text
    assert (
        "<script>"
        not in sent(one, 'id:"<script>alert(1)</script>" stat:1').text.partition("<main")[2]
    )


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_the_box_is_explained_and_completed_in_the_persons_language(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    asked = {"q": "lane:sms.notice state:PAR", "csrf": one.token()}
    assert one.raw("/search/complete", asked).json()["options"][0]["text"] == "PARKED"
    found = one.raw(
        "/search/complete", asked | {"q": "lane:sms.notice"}, headers={"accept-language": "zh"}
    )
    assert "通道为 sms.notice" in found.json()["words"]
    fields = one.raw("/search/complete", asked | {"q": "rec"}).json()["options"]
    assert [(one["text"], one["help"]) for one in fields] == [("receiver:", "the receiver in full")]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_view_is_kept_opened_and_deleted_by_its_owner(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    lin, bo = signed_in(browser, user), signed_in(browser, user, "bo", viewer=("*",))
    lin.post("/search/views", "/account", name="night <b>", q="state:PARKED since:24h", shared="1")
    (kept,) = parts.ledger.views().of("lin")
    assert "/search?q=state%3APARKED" in bo.get("/search").text
    assert "night &lt;b&gt;" in bo.get("/search").text
    assert bo.post(f"/search/views/{kept.id}/delete", "/account").status_code == 404
    assert lin.post(f"/search/views/{kept.id}/delete", "/account").status_code == 303
    assert parts.ledger.views().of("lin") == []
    refused = lin.post("/search/views", "/account", name="customer", q=f"receiver:{RECEIVER}")
    assert refused.status_code == 422


def test_the_export_is_recorded_and_without_receivers(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    target = sent(one, f"receiver:{RECEIVER}").headers["location"]
    fields = {"s": target.partition("?s=")[2]}
    assert one.post("/search/csv", "/account", **fields).status_code == 422, "no reason"
    answer = one.post("/search/csv", "/account", reason="a ticket", **fields)
    assert stocked.parked.key in answer.text
    assert stocked.elsewhere.key not in answer.text
    assert RECEIVER not in answer.text
    with parts.databases.primary.begin() as connection:
        rows = connection.exec_driver_sql("SELECT action, subject, reason FROM console_audit").all()
    assert [tuple(row) for row in rows if row[0] == "delivery.export"] == [
        ("delivery.export", "receiver:***", "a ticket")
    ]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_the_record_of_an_export_masks_a_receiver_of_a_chat(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    """Nothing can be removed from the audit."""
    one = signed_in(browser, user)
    target = sent(one, "receiver:ou_liwei_wang since:1d").headers["location"]
    fields = {"s": target.partition("?s=")[2]}
    assert one.post("/search/csv", "/account", reason="a ticket", **fields).status_code == 200
    (row,) = parts.journal.page(AuditFilter(action="delivery.export"), 2)
    assert row.subject == "receiver:ou***ng since:1d"


def test_no_cell_is_a_formula() -> None:
    for text in ("=1+1", "+86", "-2", "@SUM(A1)", "\t=1", "\r=1"):
        assert harmless(text) == f"'{text}"
    assert harmless("order=1") == "order=1"
    assert csv_of(iter([None]), "more").decode("utf-8-sig").splitlines()[1] == "more"


def test_lines_that_may_name_a_person_are_known() -> None:
    personal = ("ann@example.com", "+8613800000001", "receiver:x", "biz:customer-1", "error:a@b.cn")
    plain = ("state:PARKED", "lane:sms.* since:2h", "id:12345678901", "template:SMS_1")
    assert all(is_personal(line, parse(line, 1 << 41)) for line in personal)
    assert not any(is_personal(line, parse(line, 1 << 41)) for line in plain)


def test_unseen_marks_are_written_out_and_long_texts_cut() -> None:
    assert visible(EVIL) == "<script>alert(1)</script>⟨U+202E⟩gnp.exe"
    assert len(visible("x" * (1 << 20))) < 2_100


def test_english_words_are_those_of_the_language() -> None:
    texts = texts_of("en")
    assert {key: texts(key) for key in ENGLISH} == ENGLISH


@pytest.mark.parametrize(
    ("line", "target"),
    [
        (
            "lane:sms.notice state:PARKED,EXPIRED since:2h",
            "states=PARKED%2CEXPIRED&lanes=sms.notice",
        ),
        ("lane:email.notice state:PARKED since:2h", ""),
        ("lane:sms.notice state:SENT since:2h", ""),
        ("lane:sms.notice since:2h", ""),
    ],
)
def test_a_search_leads_to_a_resend_job_where_one_can_have_its_terms(
    line: str, target: str
) -> None:
    li = Person(1, "li", {Role.OPERATOR: ("sms.*",)})
    found = resend_link(parse(line, NOW), li)
    assert found.address.startswith(f"/resend/new?{target}") if target else not found.address
    assert not found.missing


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("template:SALE", "this search goes by the time of the claim"),
        ("biz:order-1", "this search goes by the time of the claim"),
        ("place:t/1/2", "this search goes by the time of the claim"),
        ("account:a,b", "a job takes one account at most"),
    ],
)
def test_a_search_that_selects_otherwise_than_a_job_says_why_none_is_offered(
    more: str, reason: str
) -> None:
    li = Person(1, "li", {Role.OPERATOR: ("sms.*",)})
    found = resend_link(parse(f"state:PARKED {more}", NOW), li)
    assert found.address == ""
    assert reason in texts_of("en")(found.missing)
    viewer = Person(1, "vi", {Role.VIEWER: ("*",)})
    assert resend_link(parse(f"state:PARKED {more}", NOW), viewer) == ("", "")


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_the_page_says_why_it_offers_no_resend_job(
    stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    page = one.get(f"/search?q=place:{stocked.parked.origin} state:PARKED").text
    assert stocked.parked.key in page
    assert "No resend job is offered" in page
    assert 'href="/resend/new?' not in page
    page = one.get("/search?q=state:PARKED").text
    assert 'href="/resend/new?' in page
    assert "No resend job is offered" not in page


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(f"sqlite:///{tmp_path}/of-jobs.db")) as made:
        yield made


def test_a_job_from_a_search_has_the_deliveries_of_the_search(world: World) -> None:
    """One of them was claimed long before it ended."""
    ledger = world.open()
    ledger.register(msgspec.structs.replace(worker("w1"), lease_ms=2 * DAY_MS))
    lasting = msgspec.structs.replace(delivery(), expires_at=world.now + 3 * DAY_MS)
    (old,) = claimed(ledger, lasting)
    world.advance(DAY_MS)
    (fresh,) = claimed(ledger, delivery())
    for one in (old, fresh):
        assert settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    ended_at = world.now
    world.advance(1)
    li = Person(1, "li", {Role.OPERATOR: ("*",)})
    for until, wanted in ((ended_at, set()), (ended_at + 1, {old.key, fresh.key})):
        terms = parse("state:PARKED since:2h", until - 1)
        rows = Search(ledger.database, hasher("k" * 32)).page(terms).rows
        assert {row.delivery_key for row in rows} == wanted
        link = parse_qs(urlsplit(resend_link(terms, li).address).query)
        asked = {name: values[0] for name, values in link.items()}
        job = actions_on(ledger).make(
            ResendMode.AGAIN,
            JobFilter(
                states=asked["states"].split(","),
                lanes=asked["lanes"].split(","),
                since=int(asked["since"]),
                until=int(asked["until"]),
            ),
            JobLimits(),
            who="li",
            reason="x",
        )
        while job.state is JobState.FREEZING:
            job = ledger.job_freezing().page(job)
        items = ledger.job_items().page(job.id)
        assert {item.delivery_key for item in items} == wanted


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_page_with_rows_leads_to_the_saved_views_and_one_without_lists_them(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    saved = one.post("/search/views", "/account", name="night", q="state:PARKED since:24h")
    assert saved.headers["location"] == "/search"
    with_rows = one.get("/search?q=state:PARKED since:2h").text
    assert stocked.parked.key in with_rows
    assert 'href="/search#views-title"' in with_rows
    assert "/delete" not in with_rows
    for without in (one.get("/search").text, one.get("/search?q=state:EXPIRED since:15m").text):
        assert "night" in without
        assert 'id="views-title"' in without
