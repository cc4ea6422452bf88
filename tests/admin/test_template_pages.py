"""Template pages: drafts, compare-and-set, removed templates, lanes of a policy admin, previews."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from policy.templates.page import TemplateSource
from policy.templates.versions import TemplateVersion, TemplateVersions
from simulator import read_ledger
from tests.admin.conftest import Browser
from tests.admin.sent_forms import form_of
from tests.admin.test_fleet import HOOK, with_accounts
from tests.harness.simulators import spawn

FIRST = """# Texts of the shop.
[templates."order-paid"]
channel = "email"
subject = "Order {{ order }} is paid"
text = "Thank you, {{ name }}."
[templates."order-paid".variables]
order = "string"
name = { type = "string", optional = true }

[templates."login"]
channel = "webhook"
text = "Code {{ code }}"
[templates."login".variables]
code = "int"
"""
NONE = TemplateSource("", {})


def applied(
    parts: ConsoleParts, text: str = FIRST, base: int = 0, before: TemplateSource = NONE
) -> TemplateVersion:
    source = TemplateSource(text, {})
    return TemplateVersions(parts.databases.primary).add(source, "bo", base=base, before=before)


def newest(parts: ConsoleParts) -> TemplateVersion:
    found = TemplateVersions(parts.databases.primary).newest()
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


def test_a_draft_with_a_file_is_applied_with_its_row_in_the_audit(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    wanted = FIRST.replace('"Thank you, {{ name }}."', '{ file = "thanks.txt" }')
    fields = {"text": wanted.replace("\n", "\r\n"), "base": "1"}
    refused = one.post("/templates/draft", **fields)
    assert refused.status_code == 422
    assert "there is no such file in this version" in refused.text
    fields |= {"file_name_0": "thanks.txt", "file_text_0": "Thanks, {{ name }}!"}
    page = one.post("/templates/draft", **fields)
    assert page.status_code == 200
    assert "+Thanks, {{ name }}!" in page.text
    assert one.post("/templates/apply", **fields).status_code == 422
    assert one.post("/templates/apply", **fields, reason="shorter").status_code == 303
    assert newest(parts).source == TemplateSource(wanted, {"thanks.txt": "Thanks, {{ name }}!"})
    last = parts.journal.page(AuditFilter(action="templates.apply"), 5)
    assert [(row.person, row.subject, row.reason) for row in last] == [
        ("lin", newest(parts).name, "shorter")
    ]


def test_a_draft_has_any_number_of_files(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    """From the 51st on a file was left out, and no draft could be applied."""
    names = [f"mail-{number}.txt" for number in range(60)]
    tables = [
        f'[templates."t{number}"]\nchannel = "webhook"\ntext = {{ file = "{name}" }}\n'
        for number, name in enumerate(names)
    ]
    source = TemplateSource("".join(tables), dict.fromkeys(names, "Thanks!\n"))
    TemplateVersions(parts.databases.primary).add(source, "bo", base=0, before=NONE)
    one = signed_in(browser, user)
    fields = form_of(one.get("/templates/draft").text, "/templates/draft")
    fields["file_text_59"] = "Thank you!\r\n"
    assert one.raw("/templates/apply", fields | {"reason": "kinder"}).status_code == 303
    assert newest(parts).source.files[names[59]] == "Thank you!\n"
    twice = {"file_name_0": names[0], "file_name_1": names[0], "text": "", "base": "2"}
    assert one.post("/templates/draft", **twice).status_code == 200


def test_a_long_text_that_a_command_applied_is_edited(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    """Beyond 64 Ki characters, with two for each line end, every draft was refused."""
    page = "<p>Thanks!</p>\n" * 6_000
    text = '[templates."t"]\nchannel = "webhook"\ntext = { file = "mail.html" }\n'
    source = TemplateSource(text, {"mail.html": page})
    TemplateVersions(parts.databases.primary).add(source, "bo", base=0, before=NONE)
    one = signed_in(browser, user)
    fields = form_of(one.get("/templates/draft").text, "/templates/draft")
    fields["file_text_0"] = fields["file_text_0"].replace("Thanks", "Thank you", 1)
    assert one.raw("/templates/apply", fields | {"reason": "kinder"}).status_code == 303
    assert newest(parts).source.files["mail.html"] == page.replace("Thanks", "Thank you", 1)


def test_the_second_of_two_editors_is_told_who_was_first(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    first = applied(parts)
    one = signed_in(browser, user)
    applied(parts, FIRST + "\n", 1, first.source)
    mine = FIRST.replace("Thank you", "Thanks")
    answer = one.post("/templates/apply", text=mine, base="1", reason="mine")
    assert answer.status_code == 409
    assert "bo applied t2" in answer.text
    assert newest(parts).number == 2


def test_removed_templates_need_a_confirmation_of_their_own(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    fields = {"text": FIRST.partition('[templates."login"]')[0], "base": "1"}
    assert 'name="removes"' in one.post("/templates/draft", **fields).text
    assert one.post("/templates/apply", **fields, reason="old").status_code == 422
    assert newest(parts).number == 1
    answer = one.post("/templates/apply", **fields, reason="old", removes="1")
    assert answer.status_code == 303
    assert newest(parts).number == 2


def test_a_policy_admin_of_some_lanes_changes_templates_of_these_alone(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user, "email.*")
    foreign = FIRST.replace("Code", "Your code")
    page = one.post("/templates/draft", text=foreign, base="1")
    assert 'action="/templates/apply"' not in page.text
    assert one.post("/templates/apply", text=foreign, base="1", reason="mine").status_code == 403
    own = FIRST.replace("Thank you", "Thanks")
    assert one.post("/templates/apply", text=own, base="1", reason="own").status_code == 303


def test_a_preview_is_of_the_values_and_names_what_is_wrong(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user, "email.*", role=Role.VIEWER)
    page = one.get("/templates/one?name=order-paid")
    assert page.status_code == 200
    assert "Order order is paid" in page.text
    page = one.post("/templates/one", name="order-paid", var_order="<b>7</b>", var_name="")
    assert "Order &lt;b&gt;7&lt;/b&gt; is paid" in page.text
    page = one.get("/templates")
    assert "order-paid" in page.text
    assert "login" not in re.sub("/login", "", page.text)
    assert one.get("/templates/one?name=login").status_code == 404
    assert one.get("/templates/versions/1").status_code == 404


def test_a_wrong_value_of_a_preview_is_named(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    page = one.post("/templates/one", name="login", var_code="many")
    assert page.status_code == 422
    assert "variable_type" in page.text


def test_a_rollback_is_a_new_version_with_the_old_texts(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    first = applied(parts)
    applied(parts, FIRST.replace("Thank you", "Thanks"), 1, first.source)
    one = signed_in(browser, user)
    assert "/templates/draft?version=1" in one.get("/templates/versions/1").text
    page = one.get("/templates/draft?version=1")
    assert "+text = &#34;Thank you" in page.text
    fields = {"text": first.source.text, "base": "2", "reason": "back"}
    assert one.post("/templates/apply", **fields).status_code == 303
    assert (newest(parts).number, newest(parts).source) == (3, first.source)


def test_joiners_and_marks_of_texts_come_back_from_the_pages_as_they_are(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    strange = "👨\u200d👩\u200d👧 می\u200cخواهم \u200b\u202e\x85 <b>&amp;"
    source = TemplateSource(
        FIRST.replace("Thank you", strange).replace('"Code {{ code }}"', '{ file = "code.txt" }'),
        {"code.txt": strange},
    )
    first = TemplateVersions(parts.databases.primary).add(source, "bo", base=0, before=NONE)
    applied(parts, FIRST, 1, first.source)
    one = signed_in(browser, user)
    back = one.get("/templates/draft?version=1").text
    assert "⟨U+202E⟩" in back, "the difference shows the mark"
    edited = form_of(back, "/templates/draft")
    checked = one.raw("/templates/draft", edited).text
    fields = form_of(checked, "/templates/apply") | {"reason": "back"}
    assert one.raw("/templates/apply", fields).status_code == 303
    assert newest(parts).source == source


def test_a_template_is_sent_for_a_test_with_its_exchange_and_its_row_in_the_audit(
    parts: ConsoleParts, user: Callable[..., int], tmp_path: Path
) -> None:
    applied(parts)
    user("lin", {Role.OPERATOR: ("*",)})
    with spawn(tmp_path) as provider:
        accounts = {
            "main": {"provider": "webhook", "endpoint": f"{provider.url}/send"},
            "mail": {"provider": "smtp", "endpoint": "smtp://127.0.0.1:9", "from": "a@example.com"},
            "off": {"provider": "null"},
        }
        with TestClient(create_app(with_accounts(parts, accounts))) as client:
            lin = Browser(client)
            lin.sign_in("lin")
            ways = re.findall(r'<option value="([^"]+)"', lin.get("/templates/one?name=login").text)
            fields = {"name": "login", "var_code": "4711", "receiver": "customer-4711"}
            fields |= {"through": f"{HOOK} main"}
            without = lin.post("/templates/test", **fields)
            answer = lin.post("/templates/test", **fields, reason="new text")
            foreign = lin.post(
                "/templates/test", **fields | {"through": "email.notice mail"}, reason="x"
            )
            wrong = lin.post("/templates/test", **fields | {"var_code": "many"}, reason="x")
        calls = [one for one in read_ledger(provider.ledger) if one.accepted]
    assert {way.partition(" ")[2] for way in ways} == {"main"}
    assert without.status_code == 422
    assert answer.status_code == 200, answer.text
    assert "the provider has it" in answer.text
    assert "Code 4711" in answer.text
    assert "customer-4711" not in answer.text
    assert "cu***11" in answer.text
    assert (foreign.status_code, wrong.status_code) == (422, 422)
    assert [one.receiver for one in calls] == ["customer-4711"]
    (row,) = parts.journal.page(AuditFilter(action="account.test"), 10)
    assert (row.subject, row.lane) == ("login by main to cu***11", HOOK)
    assert (row.person, row.reason) == ("lin", "new text")


def test_a_test_send_of_a_template_needs_an_operator_of_its_lane(
    parts: ConsoleParts, user: Callable[..., int]
) -> None:
    applied(parts)
    user("vi", {Role.VIEWER: ("*",)})
    user("min", {Role.OPERATOR: ("webhook.marketing",), Role.VIEWER: ("*",)})
    accounts = {"main": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/"}}
    fields = {"name": "login", "var_code": "1", "receiver": "u1", "reason": "x"}
    with TestClient(create_app(with_accounts(parts, accounts))) as client:
        viewer, other = Browser(client), Browser(client)
        viewer.sign_in("vi")
        other.sign_in("min")
        assert "/templates/test" not in viewer.get("/templates/one?name=login").text
        assert viewer.post("/templates/test", **fields, through=f"{HOOK} main").status_code == 403
        assert "webhook.marketing main" in other.get("/templates/one?name=login").text
        assert other.post("/templates/test", **fields, through=f"{HOOK} main").status_code == 403
    assert parts.journal.page(AuditFilter(action="account.test"), 10) == []


def test_a_wrong_value_is_named_in_chinese(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    applied(parts)
    one = signed_in(browser, user)
    one.client.headers["accept-language"] = "zh"
    page = one.post("/templates/one", name="login", var_code="many")
    assert page.status_code == 422
    assert "应为 int" in page.text
