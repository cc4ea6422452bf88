"""`/outbox` in the console: parked rows by lane, release and recall with reason and audit."""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from litestar.testing import TestClient
from msgspec.structs import replace as with_fields

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.pages.outbox.database import WAITS
from admin.parts import ConsoleParts
from producer.relay.opening import open_outbox
from tests.admin.conftest import Browser, served_with
from tests.admin.sent_forms import form_of
from tests.hongyan_client.outbox.places import OutboxPlace, notice, opened

People = Callable[[str, dict[Role, tuple[str, ...]]], Browser]


@pytest.fixture
def place(
    parts: ConsoleParts, tmp_path: Any, request: pytest.FixtureRequest
) -> Iterator[OutboxPlace]:
    """An outbox in a database of the ledger's kind, not the ledger's own."""
    postgres = parts.ledger.database.is_postgres
    url = request.getfixturevalue("database") if postgres else f"sqlite:///{tmp_path}/shop.db"
    with opened(url) as made:
        yield made


def people_of(parts: ConsoleParts, url: str, user: Callable[..., int]) -> Iterator[People]:
    relay = with_fields(parts.settings.relay, outbox_url=url)
    settings = with_fields(parts.settings, relay=relay)
    with TestClient(served_with(replace(parts, settings=settings))) as client:

        def person(name: str, roles: dict[Role, tuple[str, ...]]) -> Browser:
            user(name, roles)
            one = Browser(client)
            one.sign_in(name)
            return one

        yield person


@pytest.fixture
def people(parts: ConsoleParts, place: OutboxPlace, user: Callable[..., int]) -> Iterator[People]:
    yield from people_of(parts, place.url, user)


@pytest.fixture
def lin(people: People) -> Browser:
    return people("lin", {Role.OPERATOR: ("*",)})


def parked(place: OutboxPlace, *, in_doubt: bool = False) -> str:
    message_id = place.add()
    error = "+8613800000001 is refused by <b>Kafka</b>"
    place.set(
        message_id,
        f"state = 'PARKED', next_at = NULL, attempt = 20, maybe_sent = {int(in_doubt)},"
        f" last_error = '{error}'",
    )
    return message_id


def page_of(message_id: str) -> str:
    return f"/outbox/one?notification={quote(message_id)}"


def audited(parts: ConsoleParts) -> list[tuple[str, str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    found = [one for one in rows if one.action.startswith("outbox_row.")]
    return [(one.action, one.subject, one.lane, one.reason) for one in found]


def test_the_page_has_backlog_counts_relays_and_parked_rows_without_receivers(
    place: OutboxPlace, lin: Browser
) -> None:
    message_id = parked(place)
    place.add()
    place.rows.beat("relay-1", "host-1", 7, "running", 1_234)
    page = lin.get("/outbox").text
    for part in (message_id, "Not yet in Kafka: 1.", "relay-1", "1,234", "&lt;b&gt;Kafka"):
        assert part in page
    assert "13800000001" not in page
    assert "order-shipped" not in page
    assert place.operator.counts() == {"PENDING": 1, "PARKED": 1}
    assert "13800000001" not in lin.get(page_of(message_id)).text


@pytest.mark.parametrize("notification", ["order/1001", "order#1002", "a?b=c", "100%2Fd", "a b&c"])
def test_an_id_with_marks_of_addresses_has_its_page_and_its_orders(
    place: OutboxPlace, lin: Browser, notification: str
) -> None:
    with place.engine.begin() as connection:
        place.outbox.add(connection, notice() | {"id": notification})
    place.set(notification, "state = 'PARKED', next_at = NULL")
    (link,) = re.findall(r'href="(/outbox/[^"]+)"', lin.get("/outbox").text)
    page = lin.get(html.unescape(link))
    assert page.status_code == 200
    assert f'<span class="code">{html.escape(notification)}</span>' in page.text
    fields = form_of(page.text, "/outbox/release") | {"reason": "x"}
    answer = lin.raw("/outbox/release", fields)
    assert answer.status_code == 303
    assert place.states() == {notification: "PENDING"}
    assert lin.get(answer.headers["location"].partition("#")[0]).status_code == 200


def test_a_silent_relay_is_shown_as_lost(place: OutboxPlace, lin: Browser) -> None:
    place.rows.beat("relay-1", "host-1", 7, "running", 0)
    assert "LOST" not in lin.get("/outbox").text
    with place.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE hongyan_outbox_relays SET heartbeat_at = heartbeat_at - 60000"
        )
    assert "LOST" in lin.get("/outbox").text


@pytest.mark.parametrize(("verb", "state"), [("release", "PENDING"), ("recall", "RECALLED")])
def test_an_order_wants_a_reason_and_leaves_a_row(
    parts: ConsoleParts, place: OutboxPlace, lin: Browser, verb: str, state: str
) -> None:
    message_id = parked(place)
    path, asked = f"/outbox/{verb}", {"notification": message_id}
    assert lin.post(path, **asked).status_code == 422
    assert place.states() == {message_id: "PARKED"}
    assert audited(parts) == []

    answer = lin.post(path, **asked, reason="the topic is there now")

    assert (answer.status_code, answer.headers["location"]) == (303, page_of(message_id))
    assert place.states() == {message_id: state}
    wanted = (f"outbox_row.{verb}", message_id, "sms.notice", "the topic is there now")
    assert audited(parts) == [wanted]
    assert place.row(message_id).last_error.endswith("by lin: the topic is there now")


def test_an_order_that_comes_too_late_changes_nothing_and_leaves_no_row(
    parts: ConsoleParts, place: OutboxPlace, lin: Browser
) -> None:
    sent, doubtful = place.add(), parked(place, in_doubt=True)
    place.set(sent, "state = 'SENT', next_at = NULL")
    assert lin.post("/outbox/release", notification=sent, reason="x").status_code == 409
    assert lin.post("/outbox/recall", notification=doubtful, reason="x").status_code == 409
    assert place.states() == {sent: "SENT", doubtful: "PARKED"}
    assert audited(parts) == []


def test_a_row_of_a_foreign_lane_is_as_one_that_does_not_exist(
    place: OutboxPlace, people: People
) -> None:
    mei = people("mei", {Role.OPERATOR: ("email.*",)})
    message_id = parked(place)
    page = mei.get("/outbox").text
    assert message_id not in page
    assert "Rows by state" not in page
    assert mei.get(page_of(message_id)).status_code == 404
    assert mei.post("/outbox/release", notification=message_id, reason="x").status_code == 404
    assert place.states() == {message_id: "PARKED"}


def test_an_operator_of_another_lane_sees_it_and_orders_nothing(
    parts: ConsoleParts, place: OutboxPlace, people: People
) -> None:
    vic = people("vic", {Role.VIEWER: ("*",), Role.OPERATOR: ("email.*",)})
    message_id = parked(place)
    assert "/release" not in vic.get(page_of(message_id)).text
    assert vic.post("/outbox/release", notification=message_id, reason="x").status_code == 403
    assert place.states() == {message_id: "PARKED"}
    assert audited(parts) == []


def test_parked_rows_follow_one_another_in_pages(
    place: OutboxPlace, lin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.pages.outbox.notifications._PER_PAGE", 2)
    names = [parked(place) for _ in range(3)]
    page = lin.get("/outbox").text
    further = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert [one in page for one in names] == [True, True, False]
    assert [one in lin.get(further).text for one in names] == [False, False, True]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_without_an_outbox_the_page_says_how_to_configure_one(
    browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    user("lin", {Role.OPERATOR: ("*",)})
    one = browser()
    one.sign_in("lin")
    assert "relay.outbox_url" in one.get("/outbox").text
    assert one.get(page_of("an-id")).status_code == 404


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://shop:swordfish@127.0.0.1:1/shop", "connection"),
        ("sqlite://", "there is no table hongyan_outbox"),
        ("oracle://shop", "oracle is not supported"),
    ],
)
def test_a_database_that_is_away_is_one_sentence(
    parts: ConsoleParts, user: Callable[..., int], url: str, said: str
) -> None:
    for people in people_of(parts, url, user):
        one = people("lin", {Role.OPERATOR: ("*",)})
        page = one.get("/outbox")
        assert page.status_code == 200
        assert "The outbox cannot be asked now" in page.text
        assert said in page.text
        assert "swordfish" not in page.text
        refused = one.post("/outbox/release", notification="an-id", reason="x")
        assert refused.status_code == 422
        assert "The outbox cannot be asked now" in refused.text


@pytest.mark.parametrize("parts", ["postgres"], indirect=True)
def test_a_statement_has_two_seconds(parts: ConsoleParts, place: OutboxPlace) -> None:
    relay = with_fields(parts.settings.relay, outbox_url=place.url)
    limited = open_outbox(with_fields(parts.settings, relay=relay), waits=WAITS)
    with limited.store.transaction() as connection:
        shown = connection.exec_driver_sql("SHOW statement_timeout").scalar_one()
    limited.engine.dispose()
    assert shown == "2s"
