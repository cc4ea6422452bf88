"""Policy pages: drafts by text and form, compare-and-set, dropped tables, lanes of a policy admin."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from policy.versions import Version, Versions
from tests.admin.sent_forms import form_of
from tests.idempotency.making import worker

FIRST = """# Of the whole company.
[defaults]
threads = 12  # two machines

[lanes."sms.*"]
retry.attempts = 4

[lanes."email.notice"]
threads = 20
"""


def applied(parts: ConsoleParts, content: str = FIRST, base: int = 0, before: str = "") -> Version:
    return Versions(parts.ledger.database).add(content, "bo", base=base, before=before)


def newest(parts: ConsoleParts) -> Version:
    found = Versions(parts.ledger.database).newest()
    assert found is not None
    return found


def signed_in(
    browser: Callable[[], Any],
    user: Callable[..., int],
    *lanes: str,
    role: Role = Role.POLICY_ADMIN,
) -> Any:
    user("lin", {role: lanes or ("*",)})
    one = browser()
    one.sign_in("lin")
    return one


def draft_text(page: str) -> str:
    found = re.search(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', page, re.S)
    assert found is not None
    return unescape(found[1])


def test_a_draft_shows_its_effects_and_is_applied_with_its_row_in_the_audit(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    wanted = FIRST.replace("threads = 20", "threads = 30")
    page = one.post("/policy/draft", text=wanted, base="1")
    assert page.status_code == 200
    assert "email.notice" in page.text
    assert "+threads = 30" in page.text
    answer = one.post("/policy/apply", text=wanted, base="1", reason="more mail")
    assert answer.status_code == 303
    assert newest(parts).text == wanted
    assert newest(parts).author == "lin"
    assert parts.journal.check().faults == ()
    last = parts.journal.page(AuditFilter(action="policy.apply"), 5)
    assert [(r.person, r.subject, r.reason) for r in last] == [
        ("lin", newest(parts).name, "more mail")
    ]


def test_without_a_reason_nothing_is_applied(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    wanted = FIRST.replace("20", "30")
    assert one.post("/policy/apply", text=wanted, base="1").status_code == 422
    assert newest(parts).number == 1


def test_the_second_of_two_is_told_who_was_first(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    second = FIRST.replace("threads = 20", "threads = 21")
    applied(parts, second, 1, FIRST)
    mine = FIRST.replace("threads = 20", "threads = 30")
    answer = one.post("/policy/apply", text=mine, base="1", reason="mine")
    assert answer.status_code == 409
    assert "bo applied v2" in unescape(answer.text)
    assert newest(parts).text == second
    assert one.post("/policy/draft", text=mine, base="1").status_code == 409


def test_dropped_tables_need_a_confirmation_of_their_own(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    wanted = FIRST.partition('[lanes."email.notice"]')[0]
    page = one.post("/policy/draft", text=wanted, base="1")
    assert "drops" in page.text
    assert 'name="drops"' in page.text
    answer = one.post("/policy/apply", text=wanted, base="1", reason="less")
    assert answer.status_code == 422
    assert newest(parts).number == 1
    answer = one.post("/policy/apply", text=wanted, base="1", reason="less", drops="1")
    assert answer.status_code == 303
    assert newest(parts).text == wanted


def test_a_policy_admin_of_some_lanes_changes_these_alone(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user, "sms.*")
    foreign = FIRST.replace("threads = 20", "threads = 30")
    page = one.post("/policy/draft", text=foreign, base="1")
    assert "email.notice" in page.text
    assert 'action="/policy/apply"' not in page.text
    answer = one.post("/policy/apply", text=foreign, base="1", reason="mine")
    assert answer.status_code == 403
    of_all = FIRST.replace("threads = 12", "threads = 14")
    assert one.post("/policy/apply", text=of_all, base="1", reason="all").status_code == 403
    assert newest(parts).number == 1
    own = FIRST.replace("retry.attempts = 4", "retry.attempts = 5")
    assert one.post("/policy/apply", text=own, base="1", reason="own").status_code == 303


def test_a_table_of_a_foreign_lane_is_refused_even_if_it_changes_no_value(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user, "sms.*")
    pinned = FIRST + '\n[lanes."push.notice"]\nthreads = 12\n'
    assert one.post("/policy/apply", text=pinned, base="1", reason="pin").status_code == 403


def test_problems_are_shown_by_line_and_the_text_is_kept(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    wrong = FIRST.replace("threads = 20", "threds = 20")
    page = one.post("/policy/draft", text=wrong, base="1")
    assert page.status_code == 422
    assert '<td class="number">9</td>' in page.text
    assert "did you mean" in page.text
    assert draft_text(page.text) == wrong
    answer = one.post("/policy/apply", text=wrong, base="1", reason="wrong")
    assert answer.status_code == 422
    assert newest(parts).number == 1


def test_a_form_edits_one_table_and_keeps_the_comments(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    page = one.get("/policy/table?name=lanes.sms.*")
    fields = dict(re.findall(r'name="(field_[\w.]+)" value="([^"]*)"', page.text))
    assert fields["field_retry.attempts"] == "4"
    fields |= {"field_retry.attempts": "6", "field_threads": "3"}
    page = one.post("/policy/table", name="lanes.sms.*", base="1", **fields)
    assert page.status_code == 200
    text = draft_text(page.text)
    assert "# Of the whole company." in text
    assert "threads = 12  # two machines" in text
    assert "retry.attempts = 6" in text
    assert text.count("threads") == 3


def test_a_form_takes_a_field_out(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    page = one.post("/policy/table", name="defaults", base="1", field_threads="")
    text = draft_text(page.text)
    assert "threads = 12" not in text
    assert "threads = 20" in text


def test_a_form_with_what_is_no_value_is_refused(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    for value in ("many", "1\nqueue = 2", "["):
        page = one.post("/policy/table", name="defaults", base="1", field_threads=value)
        assert page.status_code == 422
        assert "is no value" in page.text
    page = one.post("/policy/table", name="defaults", base="1", field_threads="100000")
    assert page.status_code == 422
    assert draft_text(page.text).count("100000") == 1


def test_a_form_over_an_older_version_is_refused(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    applied(parts, FIRST + "\n", 1, FIRST)
    one = signed_in(browser, user)
    answer = one.post("/policy/table", name="defaults", base="1", field_threads="9")
    assert answer.status_code == 409


def test_a_rollback_is_a_new_version_with_the_old_text(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    applied(parts, FIRST.replace("threads = 20", "threads = 21"), 1, FIRST)
    one = signed_in(browser, user)
    assert "/policy/draft?version=1" in one.get("/policy/versions/1").text
    page = one.get("/policy/draft?version=1")
    assert "-threads = 21" in page.text
    text = draft_text(page.text)
    assert one.post("/policy/apply", text=text, base="2", reason="back").status_code == 303
    assert (newest(parts).number, newest(parts).text) == (3, FIRST)


def test_joiners_and_marks_of_a_text_come_back_from_the_pages_as_they_are(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    strange = FIRST.replace(
        "two machines", "👨\u200d👩\u200d👧 می\u200cخواهم \u200b\u202e\x85 <b>&amp;"
    )
    applied(parts, strange)
    applied(parts, FIRST, 1, strange)
    one = signed_in(browser, user)
    edited = form_of(one.get("/policy/draft?version=1").text, "/policy/draft")
    fields = form_of(one.raw("/policy/draft", edited).text, "/policy/apply") | {"reason": "back"}
    assert one.raw("/policy/apply", fields).status_code == 303
    assert newest(parts).text == strange


def test_a_lane_names_the_table_of_each_value(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user, "sms.*", role=Role.VIEWER)
    page = one.get("/policy/lanes/sms.notice").text
    assert re.search(r'retry\.attempts</th><td class="code text">4</td>.*?lanes\.sms\.\*', page)
    assert re.search(r'threads</th><td class="code text">12</td>.*?>defaults<', page)
    assert one.get("/policy/lanes/email.notice").status_code == 403
    assert one.get("/policy/lanes/nothing.here").status_code in (403, 404)
    listed = one.get("/policy").text
    assert "/policy/lanes/sms.notice" in listed
    assert "email.notice" not in listed
    assert one.get("/policy/versions/1").status_code == 404
    assert one.get("/policy/draft").status_code == 403


def test_a_draft_whose_effects_take_too_long_says_so_and_can_be_applied(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    if not parts.databases.primary.is_postgres:
        pytest.skip("SQLite ends no statement by time")
    applied(parts)
    one = signed_in(browser, user)
    lighter = FIRST.replace("threads = 20", "threads = 30")
    fixed = FIRST + 'guarantee = "at_most_once"\n'
    with parts.databases.primary.begin() as connection:
        connection.execute(text("LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE"))
        page = one.post("/policy/draft", text=lighter, base="1")
        refused = one.post("/policy/draft", text=fixed, base="1")
        done = one.post("/policy/apply", text=lighter, base="1", reason="more threads")
    assert page.status_code == 200
    assert "took longer than two seconds" in page.text
    assert 'action="/policy/apply"' in page.text
    assert "cannot be counted" in refused.text
    assert 'action="/policy/apply"' not in refused.text
    assert done.status_code == 303
    assert newest(parts).number == 2


def test_refusals_and_problems_of_a_draft_are_told_in_chinese(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    lanes = replace(worker("w1"), lanes=["email.notice"], lease_ms=600_000)
    parts.ledger.register(lanes)
    one = signed_in(browser, user)
    one.client.headers["accept-language"] = "zh"
    fixed = FIRST + 'guarantee = "at_most_once"\n'
    page = one.post("/policy/draft", text=fixed, base="1")
    assert "通道 email.notice 正在工作" in page.text
    assert "cannot go from" not in page.text
    refused = one.post("/policy/apply", text=fixed, base="1", reason="once is enough")
    assert refused.status_code == 422
    assert "通道 email.notice 正在工作" in refused.text
    wrong = one.post("/policy/draft", text="[lanes.nowhere]\nthreads = 3\n", base="1")
    assert wrong.status_code == 422
    assert "没有这个通道" in wrong.text
    assert "no such lane" not in wrong.text
