"""`/deliveries/KEY` and `/doubt`: what they show, hide, do, and refuse."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admin.pages.deliveries.actions import ACTIONS, choices_of
from admin.parts import ConsoleParts
from admin.web.languages import texts_of
from backends.kafka.clients import KafkaTrouble
from idempotency.recovery.doubt_list import DoubtList
from message.states import Event, State
from recovery.operator_rules import Verb, refusal
from recovery.resend.desk import DeskParts
from tests.admin.delivering import EVIL, RECEIVER, Stock, made, signed_in, states, stock
from tests.idempotency.making import settle


@pytest.fixture
def stocked(parts: ConsoleParts) -> Stock:
    return stock(parts)


def seen(parts: ConsoleParts, key: str) -> str:
    pick = parts.ledger.picks().keyed(key)
    assert pick is not None
    return f"{pick.state.value}.{pick.attempt}.{pick.updated_at}"


def act(one: Any, parts: ConsoleParts, key: str, action: str, **fields: str) -> Any:
    fields = {"action": action, "reason": "a ticket", "seen": seen(parts, key)} | fields
    return one.post(f"/deliveries/{key}/act", "/account", **fields)


def audited(parts: ConsoleParts) -> list[tuple[str, str, str]]:
    with parts.databases.primary.begin() as connection:
        found = connection.exec_driver_sql(
            "SELECT action, subject, lane FROM console_audit ORDER BY number"
        )
        return [(row[0], row[1], row[2]) for row in found if row[0].startswith("delivery.")]


def test_the_page_tells_the_story_and_hides_receiver_and_content(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    page = one.get(f"/deliveries/{stocked.parked.key}")
    assert page.status_code == 200
    assert "+86138***0001" in page.text
    assert RECEIVER not in page.text
    assert "hello" not in page.text
    assert "hongyan.dispatch.sms.notice/1/" in page.text
    assert "claimed in the ledger" in one.get(f"/deliveries/{stocked.sent.key}").text
    assert page.headers["cache-control"] == "no-store"


def test_foreign_texts_are_text(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    evil = made(parts, id="<img/src=x>", biz_id=EVIL, text="x" * (1 << 19))
    assert settle(parts.ledger, evil, Event.ACCEPTED, provider_id=EVIL)
    one = signed_in(browser, user)
    for path in (f"/deliveries/{evil.key}", "/search?q=lane:sms.*", "/doubt?lane=sms.notice"):
        page = one.get(path).text
        assert "<script>alert" not in page
        assert "<img/src" not in page
        assert "\u202e" not in page
        assert len(page) < 300_000


def test_a_delivery_of_another_lane_is_one_that_does_not_exist(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    other, nothing = f"/deliveries/{stocked.elsewhere.key}", f"/deliveries/{'0' * 32}"
    assert one.get(other).status_code == one.get(nothing).status_code == 404
    assert one.get("/deliveries/..%2f..%2fetc").status_code == 404
    answer = one.post(f"{other}/act", "/account", action="discard", reason="x", seen="x")
    assert answer.status_code == 404
    assert one.post(f"{other}/reveal", "/account", what="content", reason="x").status_code == 404
    assert one.get("/doubt?lane=email.notice").status_code == 403
    assert audited(parts) == []


def test_a_reveal_is_recorded_and_shows_in_its_own_answer_alone(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one, key = signed_in(browser, user), stocked.parked.key
    path = f"/deliveries/{key}"
    assert one.post(f"{path}/reveal", "/account", what="content").status_code == 422
    shown = one.post(f"{path}/reveal", "/account", what="content", reason="a ticket")
    assert "hello" in shown.text
    assert RECEIVER not in shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert shown.headers["hx-push-url"] == path
    assert RECEIVER in one.post(f"{path}/reveal", "/account", what="receiver", reason="x").text
    assert "hello" not in one.get(path).text
    assert audited(parts) == [
        ("delivery.reveal_content", key, "sms.notice"),
        ("delivery.reveal_receiver", key, "sms.notice"),
    ]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_viewer_sees_no_action_and_reveals_nothing(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user, "bo", viewer=("*",), operator=("email.*",))
    path = f"/deliveries/{stocked.parked.key}"
    assert "act-again" not in one.get(path).text
    assert one.post(f"{path}/reveal", "/account", what="content", reason="x").status_code == 403
    assert act(one, parts, stocked.parked.key, "again").status_code == 403
    assert audited(parts) == []


@pytest.mark.parametrize(
    ("action", "kind", "after"),
    [
        ("again", "parked", "RETRY"),
        ("discard", "parked", "DROPPED"),
        ("arrived", "doubted", "SENT"),
        ("not_arrived", "doubted", "RETRY"),
        ("accept_risk", "doubted", "RETRY"),
        ("ask", "doubted", "UNKNOWN"),
    ],
)
def test_an_action_moves_its_row_and_is_recorded(
    parts: ConsoleParts,
    stocked: Stock,
    browser: Callable[[], Any],
    user: Callable[..., int],
    action: str,
    kind: str,
    after: str,
) -> None:
    one, key = signed_in(browser, user), getattr(stocked, kind).key
    answer = act(one, parts, key, action)
    assert answer.headers["location"] == f"/deliveries/{key}?done={action}"
    assert states(parts)[key] == after
    assert audited(parts) == [(f"delivery.{action}", key, "sms.notice")]
    assert texts_of("en")(f"deliveries.done.{action}") in one.get(answer.headers["location"]).text
    if action not in ("ask",):
        row = parts.ledger.queries().by_key(key)
        assert row is not None
        assert "lin: a ticket" in (row.reason or "")


def test_the_second_of_two_persons_is_told_what_it_became(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    lin, bo = signed_in(browser, user), signed_in(browser, user, "bo", operator=("*",))
    key = stocked.doubted.key
    both_saw = seen(parts, key)
    assert act(lin, parts, key, "arrived", seen=both_saw).status_code == 303
    second = act(bo, parts, key, "accept_risk", seen=both_saw)
    assert second.status_code == 409
    assert "It is SENT now" in second.text
    assert states(parts)[key] == "SENT"
    assert [action for action, _, _ in audited(parts)] == ["delivery.arrived"]


def test_an_action_that_the_state_refuses_does_nothing(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    before = states(parts)
    for key, action in [(stocked.sent.key, "again"), (stocked.parked.key, "ask")]:
        assert act(one, parts, key, action).status_code == 409
    assert act(one, parts, stocked.parked.key, "again", reason="").status_code == 422
    assert act(one, parts, stocked.parked.key, "drop table").status_code == 404
    assert states(parts) == before
    assert audited(parts) == []


def test_a_recall_cancels_what_waits(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one, key = signed_in(browser, user), stocked.parked.key
    assert act(one, parts, key, "again").status_code == 303
    assert act(one, parts, key, "recall").status_code == 303
    assert states(parts)[key] == "DROPPED"
    assert texts_of("en")("deliveries.recalled") in one.get(f"/deliveries/{key}").text
    assert act(one, parts, key, "again").status_code == 409


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_copy_names_its_id_and_kafka_away_is_said(
    parts: ConsoleParts,
    stocked: Stock,
    browser: Callable[[], Any],
    user: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, key = signed_in(browser, user), stocked.sent.key
    produced: list[dict[str, Any]] = []

    def produce(_desk: DeskParts, copies: list[dict[str, Any]]) -> set[str]:
        produced.extend(copies)
        return {fields["id"] for fields in copies}

    monkeypatch.setattr(DeskParts, "produce", produce)
    answer = act(one, parts, key, "copy")
    (copy,) = produced
    assert answer.headers["location"] == f"/deliveries/{key}?done=copy&copied={copy['id']}"
    assert copy["resend_of"] == stocked.sent.notification.id

    def away(_desk: DeskParts, _copies: list[dict[str, Any]]) -> set[str]:
        raise KafkaTrouble("no broker answers")

    monkeypatch.setattr(DeskParts, "produce", away)
    refused = act(one, parts, key, "copy")
    assert refused.status_code == 409
    assert "no broker answers" in refused.text


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_person_who_asks_again_makes_no_further_copy_from_whichever_page(
    parts: ConsoleParts,
    stocked: Stock,
    browser: Callable[[], Any],
    user: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, bo = signed_in(browser, user), signed_in(browser, user, "bo", operator=("*",))
    path, topic = f"/deliveries/{stocked.sent.key}", []

    def produce(_desk: DeskParts, copies: list[dict[str, Any]]) -> set[str]:
        topic.extend(copies)  # Kafka takes each copy; the first acknowledgement is lost
        return set() if len(topic) == 1 else {fields["id"] for fields in copies}

    def copy(person: Any) -> Any:
        form = person.get(path).text.partition('id="act-copy"')[2].partition("</form>")[0]
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        return person.raw(f"{path}/act", fields | {"reason": "a ticket"})

    monkeypatch.setattr(DeskParts, "produce", produce)
    assert copy(one).status_code == 409
    received = "UPDATE deliveries SET state = 'DELIVERED', updated_at = updated_at + 9"
    with parts.databases.primary.begin() as connection:  # the page shows another state now
        connection.exec_driver_sql(received)
    done = copy(one)
    assert done.headers["location"].startswith(f"{path}?done=copy&copied=")
    assert len(topic) == 2
    assert len({fields["id"] for fields in topic}) == 1
    made(parts, id=topic[0]["id"])  # a worker claims it
    before = one.get(copy(one).headers["location"]).text
    assert texts_of("en")("deliveries.done.copied_before") in before.replace("&#39;", "'")
    assert topic[0]["id"] in before
    assert len(topic) == 2
    assert copy(bo).status_code == 303, "another person's copy is another one"
    assert len({fields["id"] for fields in topic}) == 2


def test_doubts_are_listed_in_the_order_of_asking(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    stocked = stock(parts)
    items = [stocked.doubted, *(made(parts) for _ in range(27))]
    for item in items[1:]:
        assert settle(parts.ledger, item, Event.UNKNOWN, reason="timeout")
    one = signed_in(browser, user)
    first = one.get("/doubt").text
    following = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = one.get(following).text
    pages = [
        {item.key for item in items if f'/deliveries/{item.key}"' in page}
        for page in (first, second)
    ]
    assert (len(pages[0]), len(pages[1])) == (25, 3)
    assert not pages[0] & pages[1]
    assert one.get("/doubt?after=x").status_code == 422


def test_an_action_leads_back_to_the_list_and_nowhere_else(
    parts: ConsoleParts, stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one, key = signed_in(browser, user), stocked.doubted.key
    back = "/doubt?lane=sms.notice"
    assert act(one, parts, key, "ask", back=back).headers["location"] == back
    assert act(one, parts, key, "ask", back="//evil.example").headers["location"] == "/"


def test_doubts_are_read_by_their_index(parts: ConsoleParts, stocked: Stock) -> None:
    from idempotency.recovery.doubt_list import _PAGE

    assert DoubtList(parts.databases.reads, parts.databases.reads_clock).page("sms.notice", None, 5)
    prefix = "EXPLAIN " if parts.databases.reads.is_postgres else "EXPLAIN QUERY PLAN "
    values = {"lane": "sms.notice", "at": 0, "after": "", "limit": 5}
    with parts.ledger.database.begin() as connection:
        from sqlalchemy import text

        plan = str(connection.execute(text(prefix + _PAGE.text), values).all())
    assert "asked" in plan or "lane_coalesce" in plan, plan


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_the_page_refuses_exactly_what_the_rules_refuse(
    parts: ConsoleParts, stocked: Stock
) -> None:
    (pick,) = parts.ledger.picks().named(stocked.parked.key)
    for state in State:
        for recalled in (False, True):
            for doubted in (False, True):
                one = pick._replace(state=state, recalled=recalled, doubted=doubted)
                choices = {choice.name: choice.why_not for choice in choices_of(one)}
                assert list(choices) == list(ACTIONS)
                for verb in Verb:
                    assert bool(choices[verb.value]) == bool(refusal(verb, one)), (verb, state)
                    assert not choices[verb.value] or texts_of("en").has(choices[verb.value])


def test_the_request_is_rebuilt_without_content_and_secrets(
    parts: ConsoleParts, stocked: Stock
) -> None:
    from admin.pages.deliveries.delivery_facts import kept_of
    from admin.pages.deliveries.request_preview import RevealedParts, preview
    from admin.pages.deliveries.search_line import search_of

    table = {"provider": "webhook", "endpoint": "https://hooks.example/in"}
    settings = msgspec.structs.replace(parts.settings, accounts={"hook": table})
    import dataclasses

    parts = dataclasses.replace(parts, settings=settings)
    item = made(parts, lane="webhook.notice", receivers=("customer-4711",), text="the code is 4711")
    (row,) = search_of(parts).by_keys([item.key])
    kept = kept_of(parts, row)
    assert kept is not None
    hidden = preview(parts, row, kept, RevealedParts())
    assert hidden.shown is not None, hidden.problem
    assert hidden.shown.url.startswith("https://hooks.example/in")
    assert "the code" not in hidden.body
    assert "customer-4711" not in hidden.body
    shown = preview(parts, row, kept, RevealedParts(content=True))
    assert "the code is 4711" in shown.body
