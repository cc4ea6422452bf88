"""`hongyan resend` and `hongyan db archive`: what they do to a real ledger, and what they say of it."""

import gzip
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from backends.settings import load
from hongyan.commands import deliveries as deliveries_command
from idempotency.recalls import Kind
from idempotency.recovery.selection import PAGE
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery, deliveries_of
from message.envelope import Template, decode, encode
from message.reasons import DROP_CODES, resend_of_dropped
from message.states import Event
from tests.harness.databases import upgraded
from tests.hongyan.conftest import Run
from tests.hongyan.test_send import records
from tests.idempotency.making import claimed, claims, deliveries, settle, wait_until, worker


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_TRACE__KAFKA", "false")
    monkeypatch.setenv("HONGYAN_RECOVERY__TOPIC_DAYS", "8")
    settings = load()
    upgraded(settings)
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


def parked(ledger: SqlLedger, count: int = 1, lane: str = "sms.notice") -> list[Delivery]:
    made = [claimed(ledger, *deliveries(lane=lane, biz_id="order-1"))[0] for _ in range(count)]
    for one in made:
        assert settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    return made


def doubted(ledger: SqlLedger) -> Delivery:
    (one,) = claimed(ledger, *deliveries())
    assert settle(ledger, one, Event.UNKNOWN, reason="timeout")
    return one


def state(ledger: SqlLedger, item: Delivery) -> str:
    row = ledger.queries().by_key(item.key)
    assert row is not None
    return row.state


def test_a_selection_is_made_due_and_told_one_by_one(hongyan: Run, ledger: SqlLedger) -> None:
    items, other = parked(ledger, 3), parked(ledger, lane="email.notice")[0]
    asked = ("resend", "--state", "parked", "--lane", "sms.*", "--since", "1h", "--json")
    dry = hongyan(*asked, "--dry-run")
    assert [one["verdict"] for one in dry.json["deliveries"]] == ["retried"] * 3
    assert state(ledger, items[0]) == "PARKED"
    said = hongyan(*asked)
    assert said.code == 0
    assert {one["delivery_key"] for one in said.json["deliveries"]} == {i.key for i in items}
    assert {state(ledger, item) for item in items} == {"RETRY"}
    assert state(ledger, other) == "PARKED"
    again = hongyan(*asked)
    assert (again.code, again.json["deliveries"]) == (0, [])


def test_a_second_job_waits_for_the_first(hongyan: Run, ledger: SqlLedger) -> None:
    (item,) = parked(ledger)
    assert ledger.recovering().hold("resend", "another", 60_000)
    said = hongyan("resend", "--state", "PARKED", "--since", "1h", "--json")
    assert (said.code, said.out) == (1, ""), "nothing is wrong with the command"
    assert "another resend job is under way" in said.err
    assert state(ledger, item) == "PARKED"


def test_a_copy_goes_through_kafka_under_one_id_however_often_its_job_is_run(
    hongyan: Run, ledger: SqlLedger, kafka: str
) -> None:
    (item,) = parked(ledger, lane="push.marketing")
    ids = set()
    for flag in ("--biz", "--biz-id"):
        said = hongyan("resend", flag, "order-1", "--new-id", "--job", "j1", "--json")
        ids.add(said.json["deliveries"][0]["new_id"])
    assert len(ids) == 1
    made = [decode(m.value()) for m in records(kafka, "hongyan.dispatch.push.marketing", 2)]
    assert {one.id for one in made} == ids
    assert {one.resend_of for one in made} == {item.notification.id}
    assert state(ledger, item) == "PARKED"


def test_what_was_sent_is_refused_and_what_somebody_saw_arrive_is_sent(
    hongyan: Run, ledger: SqlLedger
) -> None:
    (surely_not,) = parked(ledger)
    refused = hongyan("resend", "--sent", surely_not.key)
    assert refused.code == 1
    assert "it surely was not sent" in refused.out
    item = doubted(ledger)
    assert hongyan("resend", "--sent", item.key).code == 0
    assert state(ledger, item) == "SENT"
    said = hongyan("resend", item.notification.id)
    assert said.code == 1
    assert "--new-id makes a second copy" in said.out


def test_every_delivery_of_a_business_id_is_reached_beyond_one_page(
    hongyan: Run, ledger: SqlLedger
) -> None:
    (item,) = parked(ledger)
    count = PAGE + 203
    with ledger.database.connection() as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(deliveries)")]
        copied = ", ".join("'row' || n" if one == "delivery_key" else one for one in columns)
        connection.execute(
            f"WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < {count})"
            f" INSERT INTO deliveries ({', '.join(columns)}) SELECT {copied} FROM deliveries, s"
        )
    dropped = hongyan(
        "resend", "--biz-id", "order-1", "--discard", "--reason", "x", "--dry-run", "--json"
    )
    assert (dropped.code, dropped.json["counts"]) == (0, {"discarded": count})
    named = hongyan("resend", item.notification.id, "--dry-run", "--json")
    assert (named.code, named.json["counts"]) == (0, {"retried": count})
    said = hongyan("resend", "--biz-id", "order-1", "--json")
    assert (said.code, said.json["counts"], said.json["more"]) == (0, {"retried": count}, False)
    with ledger.database.connection() as connection:
        states = connection.execute("SELECT state, count(*) FROM deliveries GROUP BY state")
        assert [tuple(row) for row in states] == [("RETRY", count)]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("x", "--biz", "y"),
        ("--state", "PARKED"),
        ("x", "--since", "1h"),
        ("--state", "SENT", "--since", "1h"),
        ("--state", "PARKED", "--since", "soon"),
        ("--sent", "x", "--discard", "--reason", "y"),
        ("x", "--not-arrived"),
        ("x", "--arrived", "--discard", "--reason", "y"),
        ("x", "--account", "main"),
        ("--state", "UNDELIVERED", "--since", "1h"),
        ("--state", "DROPPED", "--since", "1h", "--new-id"),
        ("--state", "REJECTED", "--since", "1h", "--discard", "--reason", "y"),
    ],
)
def test_flags_that_do_not_go_together_are_said_so(
    hongyan: Run, ledger: SqlLedger, flags: tuple[str, ...]
) -> None:
    said = hongyan("resend", *flags)
    assert said.code == 2
    assert said.err


def test_a_limit_is_kept_and_what_is_left_is_said(hongyan: Run, ledger: SqlLedger) -> None:
    items = parked(ledger, 5)
    asked = ("resend", "--state", "PARKED", "--since", "1h", "--limit", "2", "--json")
    codes = []
    for _ in range(3):
        said = hongyan(*asked)
        codes.append((said.code, said.json["counts"], said.json["more"]))
    assert codes == [
        (1, {"retried": 2}, True),
        (1, {"retried": 2}, True),
        (0, {"retried": 1}, False),
    ]
    assert {state(ledger, item) for item in items} == {"RETRY"}


def test_a_selection_keeps_to_its_options(hongyan: Run, ledger: SqlLedger) -> None:
    one, *others = parked(ledger, 4)
    asked = ("resend", "--state", "PARKED", "--since", "1h", "--dry-run", "--json")
    with ledger.database.connection() as connection:
        for column, value, item in (
            ("account", "'spare'", one),
            ("reason", "'no_account'", others[0]),
            ("called_at", "1", others[1]),
        ):
            connection.execute(
                f"UPDATE deliveries SET {column} = {value} WHERE delivery_key = '{item.key}'"
            )

    def found(*more: str) -> set[str]:
        return {told["delivery_key"] for told in hongyan(*asked, *more).json["deliveries"]}

    sure = {item.key for item in (one, others[0], others[2])}
    assert found() == sure
    assert found("--in-doubt") == sure | {others[1].key}
    assert found("--account", "spare") == {one.key}
    assert found("--row-reason", "no_account") == {others[0].key}


def test_what_is_in_doubt_is_decided_by_hand_with_author_and_reason(
    hongyan: Run, ledger: SqlLedger
) -> None:
    item = doubted(ledger)
    said = hongyan("resend", item.key)
    assert said.code == 1
    assert "--not-arrived" in said.out
    why = ("--reason", "the portal shows nothing", "--author", "li")
    assert hongyan("resend", item.key, "--not-arrived", *why, "--dry-run").code == 0
    assert state(ledger, item) == "UNKNOWN"
    said = hongyan("resend", item.key, "--not-arrived", *why, "--json")
    assert (said.code, said.json["author"]) == (0, "li")
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.reason) == ("RETRY", "operator:li: the portal shows nothing")
    story = hongyan("trace", item.key)
    assert "it did not arrive (li: the portal shows nothing)" in story.out


def test_a_provider_is_asked_about_a_doubt_and_about_nothing_else(
    hongyan: Run, ledger: SqlLedger
) -> None:
    item, (sure,) = doubted(ledger), parked(ledger)
    rows = ledger.recovering()
    assert [doubt.delivery.key for doubt in rows.doubts("sms.notice", 60_000)] == [item.key]
    assert hongyan("resend", item.key, "--ask", "--dry-run").code == 0
    assert rows.doubts("sms.notice", 60_000) == []
    said = hongyan("resend", item.key, "--ask", "--json")
    assert (said.code, said.json["counts"]) == (0, {"asked": 1})
    assert [doubt.delivery.key for doubt in rows.doubts("sms.notice", 60_000)] == [item.key]
    assert state(ledger, item) == "UNKNOWN"
    refused = hongyan("resend", sure.key, "--ask", "--json")
    assert (refused.code, refused.json["counts"]) == (1, {"refused": 1})


def test_what_is_discarded_is_said_so_and_not_met_again(hongyan: Run, ledger: SqlLedger) -> None:
    items = parked(ledger, 3)
    asked = ("resend", "--state", "PARKED", "--since", "1h", "--discard", "--reason", "withdrawn")
    assert "3 discarded" in hongyan(*asked).out
    assert {state(ledger, item) for item in items} == {"DROPPED"}
    assert hongyan(*asked).code == 0


def test_a_user_without_a_name_has_to_give_one(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("uid 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    (item,) = parked(ledger)
    said = hongyan("resend", item.key)
    assert (said.code, state(ledger, item)) == (2, "PARKED")
    assert "--author" in said.err
    assert hongyan("resend", item.key, "--author", "li").code == 0


def test_what_was_not_delivered_is_copied_in_bulk_each_once(
    hongyan: Run, ledger: SqlLedger, kafka: str
) -> None:
    made = [claimed(ledger, *deliveries(lane="push.verification"))[0] for _ in range(3)]
    for one in made:
        assert settle(ledger, one, Event.ACCEPTED, provider_id=one.key)
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET state = 'UNDELIVERED'")
    asked = ("resend", "--state", "UNDELIVERED", "--since", "1h", "--new-id", "--job", "j9")
    said = hongyan(*asked, "--limit", "2", "--json")
    assert (said.code, said.json["counts"]) == (1, {"copied": 2})
    sent = [decode(m.value()) for m in records(kafka, "hongyan.dispatch.push.verification", 2)]
    for copy in sent:  # as their worker claims them
        claimed(ledger, *deliveries(lane="push.verification", id=copy.id))
    said = hongyan(*asked, "--limit", "2", "--json")
    assert (said.code, said.json["counts"]) == (0, {"copied_before": 2, "copied": 1})


def test_what_was_recalled_is_copied_only_by_its_name(hongyan: Run, ledger: SqlLedger) -> None:
    (item,) = parked(ledger, lane="push.notice")
    ledger.recalls().announce(Kind.MESSAGE, item.notification.id, 600_000)
    said = hongyan("resend", "--state", "PARKED", "--since", "1h", "--new-id", "--dry-run")
    assert said.code == 1
    assert "it was recalled" in said.out
    assert hongyan("resend", item.key, "--new-id", "--dry-run").code == 0


def test_a_policy_that_was_applied_counts_and_not_the_file(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    (folder / "policy.toml").write_text('[lanes."sms.notice"]\nttl_ms = 60_000\n')
    applied = folder / "applied.toml"
    applied.write_text('[lanes."sms.notice"]\nttl_ms = 7_200_000\n')
    assert hongyan("policy", "apply", str(applied)).code == 0
    (item,) = parked(ledger)
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET expires_at = 1")
    assert hongyan("resend", item.key).code == 0
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert row.expires_at > ledger.now_ms() + 7_000_000


def test_what_left_with_its_day_is_named_and_can_be_copied(
    hongyan: Run, ledger: SqlLedger, kafka: str
) -> None:
    one, *two = parked(ledger, lane="push.notice") + [
        claimed(ledger, item)[0]
        for item in deliveries(receivers=("user-1", "user-2"), lane="push.notice")
    ]
    for item in two:
        assert settle(ledger, item, Event.BUDGET_SPENT, reason="attempts_spent")
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET day = day - 100")
        connection.execute("UPDATE payloads SET day = day - 100")
    assert hongyan("db", "archive").code == 0
    said = hongyan("resend", one.notification.id)
    assert said.code == 1
    assert "it left the ledger with its day" in said.out
    assert "archive" in said.out
    copied = hongyan("resend", one.key, two[0].notification.id, "--new-id", "--json").json
    assert [told["state"] for told in copied["deliveries"]] == ["PARKED"] * 3
    sent = [decode(m.value()) for m in records(kafka, "hongyan.dispatch.push.notice", 3)]
    assert {n.resend_of for n in sent} == {one.notification.id, two[0].notification.id}
    assert {n.receivers[0] for n in sent} == {one.receiver, "user-1", "user-2"}
    for command in (("resend",), ("deliveries", "list")):
        asked = (*command, "--state", "PARKED", "--since")
        far = hongyan(*asked, "120d")
        assert (far.code, "left the ledger" in far.err) == (0, True), "nobody takes 0 for all"
        assert "left the ledger" not in hongyan(*asked, "50d").err


def test_an_archived_delivery_without_its_payload_is_refused_in_a_sentence(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    shared = claimed(ledger, *deliveries(receivers=("+8613800000001", "+8613800000002")))
    for one in shared:
        assert settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET day = day - 100")
        connection.execute("UPDATE payloads SET day = day - 100")
    assert hongyan("db", "archive").code == 0
    (file,) = (folder / "archive").iterdir()
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    kept = [line for line in lines if msgspec.json.decode(line)["kind"] != "payload"]
    assert len(kept) == len(lines) - 1
    file.write_bytes(gzip.compress(b"".join(kept)))
    said = hongyan("resend", shared[0].notification.id, "--new-id", "--json")
    assert said.code == 1
    told = [(one["verdict"], one["detail"]) for one in said.json["deliveries"]]
    assert told == [("refused", "its payload is missing")] * 2


def test_a_ledger_is_not_archived_sooner_than_it_may_be(hongyan: Run, ledger: SqlLedger) -> None:
    said = hongyan("db", "archive", "--before", "15")
    assert said.code == 2
    assert "less than 16 days" in said.err


def test_an_applied_policy_counts_for_the_archive_and_not_the_file(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    (folder / "applied.toml").write_text("[defaults]\nretention_days = 40\n")
    assert hongyan("policy", "apply", "applied.toml").code == 0
    assert hongyan("db", "archive", "--dry-run", "--json").json["keep_days"] == 40


def test_no_day_leaves_while_nobody_knows_how_long_kafka_keeps_its_topics(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.delenv("HONGYAN_RECOVERY__TOPIC_DAYS")
    said = hongyan("db", "archive", "--dry-run")
    assert said.code == 1
    assert "recovery.topic_days" in said.err
    monkeypatch.setenv("HONGYAN_RECOVERY__TOPIC_DAYS", "83")
    said = hongyan("db", "archive", "--dry-run")
    assert said.code == 2
    assert "less than 91 days" in said.err
    monkeypatch.setenv("HONGYAN_RECOVERY__TOPIC_DAYS", "20")
    assert hongyan("db", "archive", "--dry-run").code == 0


def test_a_day_with_an_open_row_stays_and_the_others_leave(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    old, (item,) = parked(ledger, 2), claimed(ledger, *deliveries())
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET day = day - 100")
        connection.execute(f"UPDATE deliveries SET day = day - 1 WHERE delivery_key = '{item.key}'")
    dry = hongyan("db", "archive", "--dry-run", "--json")
    assert [(day["rows"], day["stays"]) for day in dry.json["days"]] == [(1, True), (2, False)]
    said = hongyan("db", "archive", "--json")
    assert said.code == 1
    assert [day["where"] is None for day in said.json["days"]] == [True, False]
    assert len(list((folder / "archive").iterdir())) == 1
    assert all(ledger.queries().by_key(one.key) is None for one in old)
    assert state(ledger, item) == "IN_FLIGHT"


def test_deliveries_are_listed_by_state_and_what_is_cut_off_is_said(
    hongyan: Run, ledger: SqlLedger
) -> None:
    items, doubt = parked(ledger, 3), doubted(ledger)
    other = parked(ledger, lane="email.notice")[0]
    assert {one["delivery_key"] for one in hongyan("deliveries", "list", "--json").json} == {
        *(item.key for item in items),
        doubt.key,
        other.key,
    }
    asked = ("deliveries", "list", "--state", "parked", "--lane", "sms.*", "--since", "30min")
    said = hongyan(*asked, "--limit", "2", "--json")
    assert (len(said.json), "more match" in said.err) == (2, True)
    (one, *_) = hongyan(*asked, "--json").json
    assert (one["state"], one["reason"], one["in_doubt"]) == ("PARKED", "attempts_spent", False)
    assert one["receiver"] == "+86138***0001"
    table = hongyan(*asked).out
    assert all(item.key in table for item in items)
    assert "+86138***0001" in table
    assert "+8613800000001" not in table
    assert hongyan("deliveries", "list", "--account", "nobody").out == "no such deliveries\n"
    assert hongyan("deliveries", "list", "--row-reason", "attempts_spent", "--json").json
    sent = hongyan("deliveries", "list", "--state", "SENT")
    assert (sent.code, "here it may be" in sent.err) == (2, True)


def test_deliveries_are_listed_by_template_and_account_among_a_bounded_number(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = parked(ledger, 3)
    (like,) = deliveries()
    one = msgspec.structs.replace(
        like.notification, content=None, template=Template("welcome", {"name": "li"})
    )
    (named,) = claimed(ledger, *deliveries_of(one, encode(one), expires_at=like.expires_at))
    named.account = "main"
    ended = ledger.now_ms()
    wait_until(lambda: ledger.now_ms() > ended)  # the plain ones ended earlier
    settle(ledger, named, Event.BUDGET_SPENT, reason="attempts_spent: http_429")
    asked = ("deliveries", "list", "--json")
    (one,) = hongyan(*asked, "--template", "welcome").json
    assert one["delivery_key"] == named.key
    assert hongyan(*asked, "--template", "other").json == []
    (one,) = hongyan(*asked, "--account", "main", "--template", "welcome").json
    assert one["account"] == "main"
    assert len(hongyan(*asked, "--row-reason", "attempts_spent").json) == 4
    assert len(hongyan(*asked, "--row-reason", "attempts_spent: http_429").json) == 1
    assert hongyan(*asked, "--row-reason", "attempts").json == []
    monkeypatch.setattr(deliveries_command, "LOOKED", 2)
    monkeypatch.setattr("idempotency.recovery.selection.PAGE", 2)
    said = hongyan(*asked, "--account", "main")
    assert (said.json, "only the oldest 2 rows were looked through" in said.err) == ([], True)
    assert {item.key for item in plain} == {
        one["delivery_key"] for one in hongyan(*asked, "--limit", "3").json
    }


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.UNKNOWN, None])
def test_open_rows_that_were_not_looked_through_are_said_so(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, event: Event | None
) -> None:
    items = [claimed(ledger, *deliveries())[0] for _ in range(4)]
    for item in items:
        assert event is None or settle(ledger, item, event, reason="why")
    name = state(ledger, items[0])
    monkeypatch.setattr(deliveries_command, "LOOKED", 3)
    asked = ("deliveries", "list", "--state", name, "--json")
    remark = f"not all rows of {name} in sms.notice were looked through"
    few = hongyan(*asked, "--account", "nobody", "--limit", "2")
    assert (few.code, few.json, remark in few.err) == (0, [], True)
    many = hongyan(*asked, "--limit", "4")
    assert (len(many.json), many.err) == (4, "")
    assert "more match" in hongyan(*asked, "--limit", "3").err
    monkeypatch.setattr(deliveries_command, "LOOKED", 4)
    assert hongyan(*asked, "--account", "nobody").err == ""
    monkeypatch.setattr(deliveries_command, "LOOKED_INTO", 3)
    of_template = hongyan(*asked, "--template", "t")
    assert (of_template.json, remark in of_template.err) == ([], True)


def test_a_receiver_that_the_key_does_not_open_is_listed_as_such(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_DATABASE__PAYLOAD_KEY", b64encode(b"k" * 32).decode())
    settings = load()
    upgraded(settings)
    with closing(open_ledger(settings)) as sealed:
        sealed.register(worker("w1"))
        parked(sealed)
    (one,) = hongyan("deliveries", "list", "--json").json
    assert one["receiver"] == "+86138***0001"
    monkeypatch.setenv("HONGYAN_DATABASE__PAYLOAD_KEY", b64encode(b"x" * 32).decode())
    (one,) = hongyan("deliveries", "list", "--json").json
    assert one["receiver"] is None
    assert "unreadable" in hongyan("deliveries", "list").out


def test_what_was_given_back_is_told_to_wait_for_its_record(
    hongyan: Run, ledger: SqlLedger
) -> None:
    (one,) = claimed(ledger, *deliveries())
    assert settle(ledger, one, Event.GIVEN_BACK)
    assert "next when its Kafka record is read again, at " in hongyan("trace", one.key).out


def test_a_recall_of_what_nobody_knows_is_a_problem_and_stands_all_the_same(
    hongyan: Run, ledger: SqlLedger
) -> None:
    said = hongyan("recall", "mistyped", "--wait", "0")
    assert said.code == 1
    assert "nothing is known of 'mistyped'" in said.err
    assert hongyan("recall", "not-read-yet", "--wait", "0", "--ahead").code == 0
    for name in ("mistyped", "not-read-yet"):
        (entered,) = claims(deliveries(id=name))
        (answer,) = ledger.claim([entered], "w1")
        assert answer.state == "DROPPED"
    assert hongyan("recall", "mistyped", "--wait", "0").code == 0
    assert hongyan("recall", "--biz", "nobody", "--wait", "0", "--ahead").code == 0


@pytest.mark.parametrize("code", DROP_CODES)
def test_each_dropped_reason_is_answered_by_what_can_be_done(
    hongyan: Run, ledger: SqlLedger, code: str
) -> None:
    asked = ("resend", "--state", "DROPPED", "--since", "1h")
    bare = hongyan(*asked)
    assert (bare.code, code in bare.err) == (2, True)
    said = hongyan(*asked, "--row-reason", code)
    assert (said.code, resend_of_dropped(code) in said.err) == (2, True)
    assert hongyan(*asked, "--row-reason", code, "--new-id", "--json").code == 0
    (item,) = deliveries()
    ledger.claim(claims([item], Event.DROP, reason=f"{code}: why"), "w1")
    named = hongyan("resend", item.key, "--json")
    assert named.code == 1
    assert named.json["deliveries"][0]["detail"] == resend_of_dropped(code)


def test_what_was_parked_over_a_fault_is_selected_by_its_code(
    hongyan: Run, ledger: SqlLedger
) -> None:
    one, other = deliveries()[0], deliveries()[0]
    for item, reason in (
        (one, "variable_type: template 't': code"),
        (other, "template_unknown: x"),
    ):
        ledger.claim(claims([item], Event.PARK, reason=reason), "w1")
    asked = ("resend", "--state", "PARKED", "--row-reason", "variable_type", "--since", "1h")
    assert [told["delivery_key"] for told in hongyan(*asked, "--json").json["deliveries"]] == [
        one.key
    ]
    assert (state(ledger, one), state(ledger, other)) == ("RETRY", "PARKED")
