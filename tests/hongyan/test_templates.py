"""`hongyan templates`, and what `hongyan send` makes of a template that it knows."""

import json
from pathlib import Path

import pytest

from tests.hongyan.conftest import Run

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
        (["--var", "code=1", "--part", "html"], 2, "--part 'html': it makes code, minutes"),
    ],
)
def test_what_is_wrong_with_a_rendering_is_said(
    hongyan: Run, flags: list[str], code: int, error: str
) -> None:
    said = hongyan("templates", "render", "login-code", *flags)
    assert said.code == code
    assert error in said.err
    assert said.out == ""


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
