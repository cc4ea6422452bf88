"""`hongyan templates`, and what `hongyan send` makes of a template that it knows."""

import json
from pathlib import Path

import pytest

from channels.registry import PROVIDERS
from tests.hongyan.conftest import Run

OF_SMS = sorted(name for name, one in PROVIDERS.items() if one.channel == "sms")

GOOD = """
[templates.login-code]
channel = "sms"
description = "A code to log in with"
template_id = "SMS_123"
params = { code = "{{ code }}", minutes = "{{ minutes }}" }
variables = { code = "string", minutes = { type = "int", default = 5 } }

[templates."order paid"]
channel = "email"
subject = "Order {{ order }}"
html = "<b>{{ order }}</b>{% for line in lines %}<i>{{ line.name }}</i>{% endfor %}"
[templates."order paid".variables]
order = "string"
lines = { type = "list", fields = { name = "string" }, optional = true }
"""


@pytest.fixture(autouse=True)
def file(folder: Path) -> Path:
    path = folder / "templates.toml"
    path.write_text(GOOD)
    return path


def test_a_good_file_is_ok_and_a_bad_one_is_told_whole(hongyan: Run, file: Path) -> None:
    said = hongyan("templates", "check")
    assert said.code == 0
    assert said.out.startswith("ok templates.toml  2 templates  (file:")
    (file.parent / "bad.toml").write_text('[templates.t]\nchannel = "sm"\ntext = "{{ x }}"\n')
    said = hongyan("templates", "check", "bad.toml")
    assert said.code == 1
    assert said.out.splitlines() == [
        "bad.toml:2  templates.t.channel: 'sm' is no channel; did you mean sms?",
        "bad.toml:3  templates.t.text: reads x, which is not among its variables",
    ]
    assert len(hongyan("templates", "check", "bad.toml", "--json").json["problems"]) == 2


def test_without_a_file_there_is_nothing_wrong(hongyan: Run, file: Path) -> None:
    file.unlink()
    assert hongyan("templates", "check").out == "ok no template file\n"
    assert hongyan("templates", "show", "--json").json == {}


def test_templates_are_listed_and_one_is_shown_with_its_variables(hongyan: Run) -> None:
    said = hongyan("templates", "show")
    assert "SMS_123: code, minutes" in said.out
    one = hongyan("templates", "show", "login-code").out
    assert "A code to log in with" in one
    assert "default 5" in one
    found = hongyan("templates", "show", "--json").json
    assert found["login-code"]["variables"]["minutes"] == {
        "type": "int",
        "required": False,
        "default": 5,
    }
    fields = found["order paid"]["variables"]["lines"]["fields"]
    assert fields == {"name": {"type": "string", "required": True}}


def test_one_that_is_not_there_is_named(hongyan: Run) -> None:
    said = hongyan("templates", "show", "login-cod")
    assert said.code == 2
    assert "there is no template 'login-cod' (did you mean 'login-code'?)" in said.err


def test_a_rendering_is_shown_as_it_would_be_sent(hongyan: Run, folder: Path) -> None:
    said = hongyan("templates", "render", "login-code", "--var", "code=0[b]1", "--json")
    assert said.json["template"] == {"id": "SMS_123", "params": {"code": "0[b]1", "minutes": "5"}}
    assert (
        "code  0[b]1\n" in hongyan("templates", "render", "login-code", "--var", "code=0[b]1").out
    )
    (folder / "v.json").write_text('{"order": "<1>"}')
    lines = 'lines=[{"name": "tea"}]'
    said = hongyan(
        *("templates", "render", "order paid", "--vars", "v.json", "--var", lines, "--part", "html")
    )
    assert said.out == "<b>&lt;1&gt;</b><i>tea</i>\n"


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        ([], 1, "variable_missing: template 'login-code': code: is missing; it must be string"),
        (["--var", "code=1", "--var", "x=1"], 1, "variable_surplus: template 'login-code': x: no"),
        (["--var", "code=1", "--var", "minutes=soon"], 1, "variable_type: minutes: expected int"),
        (["--var", "code"], 2, "--var 'code': write KEY=VALUE"),
        (["--vars", "gone.json"], 2, "--vars gone.json: No such file"),
        (["--vars", "deep.json"], 2, "--vars deep.json: must hold one JSON object"),
        (["--var", "code=1", "--part", "html"], 2, "--part 'html': it makes code, minutes"),
    ],
)
def test_what_is_wrong_with_a_rendering_is_said(
    hongyan: Run, folder: Path, flags: list[str], code: int, error: str
) -> None:
    (folder / "deep.json").write_text('{"a":' + "[" * 100_000)
    said = hongyan("templates", "render", "login-code", *flags)
    assert said.code == code
    assert error in said.err
    assert said.out == ""


FORMS = """
[templates.login-code]
channel = "sms"
variables = { code = "string", minutes = { type = "int", default = 5 } }
providers.aliyun_sms = { template_id = "SMS_123", params = { code = "{{ code }}" } }
providers.tencent_sms = { template_id = "1234567", params = { "1" = "{{ code }}" } }
[templates.news]
channel = "sms"
text = "News: {{ code }}"
variables = { code = "string" }
providers.aliyun_sms = { template_id = "SMS_9" }
"""
ACCOUNTS = """
[accounts.ali]
provider = "aliyun_sms"
access_key_id = "id"
access_key_secret_file = "secret"
[accounts.tw]
provider = "twilio"
account_sid = "AC0123456789abcdef0123456789abcdef"
auth_token_file = "secret"
sender = "+15005550006"
"""


def test_forms_are_shown_by_provider(hongyan: Run, file: Path) -> None:
    file.write_text(FORMS)
    assert "aliyun_sms SMS_123: code; tencent_sms 1234567: 1" in hongyan("templates", "show").out
    said = hongyan("templates", "show", "login-code").out
    assert "template 1234567 with 1" in said
    assert "others" not in said
    assert [line.split() for line in said.splitlines() if "twilio" in line] == [
        ["twilio", "nothing"]
    ]
    assert "others" in hongyan("templates", "show", "news").out
    found = hongyan("templates", "show", "--json").json["login-code"]
    assert found["providers"]["aliyun_sms"] == {"template_id": "SMS_123", "makes": ["code"]}
    assert (found["template_id"], found["makes"]) == (None, [])


def test_a_rendering_is_of_all_forms_or_of_one(hongyan: Run, file: Path) -> None:
    file.write_text(FORMS)
    whole = ("templates", "render", "login-code", "--var", "code=4711")
    said = hongyan(*whole).out
    assert said.startswith(
        "aliyun_sms\ntemplate  SMS_123\ncode  4711\ntencent_sms\ntemplate  1234567"
    )
    forms = hongyan(*whole, "--json").json["providers"]
    assert forms["tencent_sms"]["template"] == {"id": "1234567", "params": {"1": "4711"}}
    ours = hongyan(*whole, "--provider", "tencent_sms", "--json").json
    assert ours == {"template": {"id": "1234567", "params": {"1": "4711"}}, "content": None}
    assert hongyan(*whole, "--provider", "tencent_sms", "--part", "1").out == "4711\n"
    news = ("templates", "render", "news", "--var", "code=4711")
    assert hongyan(*news, "--part", "text").out == "News: 4711\n"
    others = hongyan(*news, "--provider", "twilio", "--json").json
    assert others == {"template": None, "content": {"text": "News: 4711"}}


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        (["--provider", "twilio"], 1, "no_template: template login-code has nothing for twilio"),
        (["--provider", "smtp"], 2, f"'smtp': sms has {', '.join(OF_SMS)}"),
        (
            ["--part", "code"],
            2,
            "--part 'code': it has only forms for single providers; add --prov",
        ),
    ],
)
def test_what_is_wrong_with_a_provider_is_said(
    hongyan: Run, file: Path, flags: list[str], code: int, error: str
) -> None:
    file.write_text(FORMS)
    said = hongyan("templates", "render", "login-code", "--var", "code=1", *flags)
    assert (said.code, said.out) == (code, "")
    assert error in said.err


def test_accounts_that_are_left_out_are_told_of(hongyan: Run, file: Path, folder: Path) -> None:
    file.write_text(FORMS)
    (folder / "hongyan.toml").write_text(ACCOUNTS)
    (folder / "secret").write_text("secret")
    said = hongyan("templates", "check")
    assert said.code == 0
    lanes = "sms.verification, sms.notice, sms.marketing"
    left_out = f"login-code: {lanes}: nothing for tw (twilio): it goes through ali alone"
    assert said.out.splitlines()[1:] == [f"warning {left_out}"]
    found = hongyan("templates", "check", "--json").json
    assert (found["warnings"], found["unsendable"]) == ([left_out], [])


def test_what_no_account_could_send_is_a_problem(hongyan: Run, file: Path, folder: Path) -> None:
    file.write_text(FORMS)
    (folder / "hongyan.toml").write_text(ACCOUNTS[ACCOUNTS.index("[accounts.tw]") :])
    (folder / "secret").write_text("secret")
    said = hongyan("templates", "check")
    assert said.code == 1
    assert "login-code: no account could send it: nothing for tw (twilio)" in said.out
    (folder / "policy.toml").write_text("lanes = 3")
    said = hongyan("templates", "check")
    assert said.code == 0
    assert "the accounts that could send them were not checked" in said.err


def test_a_provider_that_there_is_not_is_a_problem(hongyan: Run, file: Path) -> None:
    file.write_text(FORMS.replace("tencent_sms", "tencent"))
    said = hongyan("templates", "check")
    assert said.code == 1
    assert (
        "providers.tencent: there is no provider 'tencent'; did you mean tencent_sms?" in said.out
    )


def test_an_account_is_tried_with_its_own_form(hongyan: Run, file: Path, folder: Path) -> None:
    file.write_text(FORMS)
    (folder / "hongyan.toml").write_text(ACCOUNTS)
    (folder / "secret").write_text("secret")
    flags = ("--to", "+8613800000001", "--template", "login-code", "--param", "code=4711")
    said = hongyan("accounts", "test", "tw", *flags, "--json")
    assert said.code == 1
    assert said.json["outcome"] == {"outcome": "rejected", "code": "no_template"}
    assert said.json["meaning"] == "template login-code has nothing for twilio"


def send(hongyan: Run, *flags: str) -> tuple[int, str]:
    said = hongyan("send", "--lane", "sms.notice", "--to", "+8613800000001", "--check", *flags)
    return said.code, said.err


def test_send_reads_parameters_by_type_and_refuses_wrong_ones(hongyan: Run) -> None:
    good = ("--template", "login-code", "--param", "code=1", "--param", "minutes=7")
    assert send(hongyan, *good) == (0, "")
    code, error = send(hongyan, "--template", "login-code", "--param", "minutes=7")
    assert code == 2
    assert "variable_missing at $.template: template 'login-code': code: is missing" in error
    code, error = send(hongyan, "--template", "order paid", "--param", "order=1")
    assert "is for email, not for sms" in error


def test_send_leaves_a_template_it_does_not_know_to_the_worker(hongyan: Run) -> None:
    assert send(hongyan, "--template", "SMS_999", "--param", "anything=1") == (0, "")


def test_send_reports_the_line_of_a_wrong_template_and_sends_the_others(
    hongyan: Run, folder: Path
) -> None:
    line = {"channel": "sms", "kind": "notice", "receivers": ["+8613800000001"]}
    bodies = [{"code": "1"}, {"code": 1}, {"code": "1", "minutes": 3}]
    (folder / "in.jsonl").write_text(
        "\n".join(
            json.dumps({**line, "template": {"id": "login-code", "params": b}}) for b in bodies
        )
    )
    said = hongyan("send", "--file", "in.jsonl", "--check", "--json")
    assert said.code == 1
    assert said.json["sent"] == 2
    (bad,) = said.json["bad"]
    assert (bad["line"], bad["code"], bad["path"]) == (2, "variable_type", "$.template")


def test_help_of_every_command_has_examples(hongyan: Run) -> None:
    for command in ("check", "show", "render"):
        said = hongyan("templates", command, "--help")
        assert f"hongyan templates {command}" in said.out
