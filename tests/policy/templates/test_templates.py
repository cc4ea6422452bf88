"""Templates: what a notification's parameters make of them, and what is refused before any claim."""

from pathlib import Path
from typing import Any

import pytest

from message.delivery import Rendered
from message.envelope import Notification, Template
from policy.templates.loading import load
from policy.templates.provider_forms import Taker
from policy.templates.sandbox import MAX_LOOPS, MAX_OUTPUT
from policy.templates.templates import TemplateError, Templates

ORDER = """
[templates."order-paid"]
channel = "email"
subject = "Order {{ order }} is paid"
text = "{{ order }}: {{ total | fixed }}{% if note %} ({{ note }}){% endif %}"
html = '''
<table>
{% for line in lines %}
  <tr><td>{{ loop.index }}</td><td>{{ line.name }}</td><td>{{ line.price | fixed(2, ",") }}</td></tr>
{% else %}
  <tr><td>nothing</td></tr>
{% endfor %}
</table>'''

[templates."order-paid".variables]
order = "string"
total = "number"
note = { type = "string", optional = true }
lines = { type = "list", fields = { name = "string", price = "number" }, default = [] }

[templates."login-code"]
channel = "sms"
template_id = "SMS_123"
params = { code = "{{ code }}", minutes = "{{ minutes }}", fixed = "x" }
[templates."login-code".variables]
code = "string"
minutes = { type = "int", default = 5 }
"""


def templates(folder: Path, text: str) -> Templates:
    (folder / "templates.toml").write_text(text, "utf-8")
    return load(folder / "templates.toml")


def one(folder: Path, body: str, variables: str = 'v = "string"') -> Templates:
    text = f'[templates.t]\nchannel = "email"\n{body}\n[templates.t.variables]\n{variables}\n'
    return templates(folder, text)


def asked(name: str = "t", channel: str = "email", **params: Any) -> Notification:
    return Notification(
        id="m-1",
        channel=channel,
        kind="notice",
        receivers=["a@example.com"],
        template=Template(name, params),
        created_at=1,
    )


def content(found: Rendered | None) -> dict[str, Any]:
    assert found is not None
    assert found.content is not None
    return found.content


def refused(known: Templates, notification: Notification) -> tuple[str, str]:
    with pytest.raises(TemplateError) as caught:
        known.render(notification)
    assert str(caught.value) == caught.value.detail
    return caught.value.code, caught.value.detail


def test_loops_and_tables_are_filled_in(tmp_path: Path) -> None:
    known = templates(tmp_path, ORDER)
    lines = [{"name": "tea", "price": 1234.005}, {"name": "cup", "price": 2}]
    found = content(known.render(asked("order-paid", order="o-1", total=12.5, lines=lines)))
    assert found == {
        "subject": "Order o-1 is paid",
        "text": "o-1: 12.50",
        "html": "<table>\n"
        "  <tr><td>1</td><td>tea</td><td>1,234.01</td></tr>\n"
        "  <tr><td>2</td><td>cup</td><td>2.00</td></tr>\n"
        "</table>",
    }


def test_what_is_left_out_is_its_default_or_not_written(tmp_path: Path) -> None:
    known = templates(tmp_path, ORDER)
    found = content(known.render(asked("order-paid", order="o", total=1, note="hi")))
    assert found["text"] == "o: 1.00 (hi)"
    assert "nothing" in found["html"]


def test_a_providers_template_gets_its_id_and_its_parameters_as_texts(tmp_path: Path) -> None:
    known = templates(tmp_path, ORDER)
    found = known.render(asked("login-code", "sms", code="0471"))
    params = {"code": "0471", "minutes": "5", "fixed": "x"}
    assert found == Rendered(template=Template("SMS_123", params))


@pytest.mark.parametrize(
    "value",
    ["{{ 7 * 7 }}", "{% for x in range(9) %}x{% endfor %}", "{# gone #}", "{{ t }}", "${v} %(v)s"],
)
def test_a_value_is_never_expanded_again(tmp_path: Path, value: str) -> None:
    known = one(tmp_path, 'subject = "<{{ v }}>"\ncontent.deep = [{ a = "{{ v }}{{ v }}" }]')
    found = content(known.render(asked(v=value)))
    assert found == {"subject": f"<{value}>", "deep": [{"a": value + value}]}


def test_values_are_escaped_in_html_and_only_there(tmp_path: Path) -> None:
    known = one(tmp_path, "subject = '{{ v }}'\nhtml = '''<b title=\"{{ v }}\">{{ v }}</b>'''")
    found = content(known.render(asked(v='<i>"&')))
    assert found["subject"] == '<i>"&'
    assert found["html"] == '<b title="&lt;i&gt;&#34;&amp;">&lt;i&gt;&#34;&amp;</b>'


def test_a_value_may_keep_its_own_type(tmp_path: Path) -> None:
    variables = 'n = "int"\nl = "list"\nd = "date"\nb = "bool"'
    body = (
        "content.x = { n = { var = 'n' }, l = { var = 'l' }, d = { var = 'd' }, b = {var = 'b'} }"
    )
    known = one(tmp_path, body, variables)
    found = content(known.render(asked(n=3, l=[1, {"a": None}], d="2026-11-21", b=True)))
    assert found["x"] == {"n": 3, "l": [1, {"a": None}], "d": "2026-11-21", "b": True}


def test_dates_are_written_as_asked(tmp_path: Path) -> None:
    known = one(tmp_path, "text = '{{ v }} {{ v | date(\"%d.%m.%y\") }}'", 'v = "date"')
    assert content(known.render(asked(v="2026-11-21")))["text"] == "2026-11-21 21.11.26"
    moment = content(known.render(asked(v="2026-11-21T09:30:00+08:00")))
    assert moment["text"] == "2026-11-21 09:30+08:00 21.11.26"


@pytest.mark.parametrize(
    ("params", "code", "detail"),
    [
        ({"total": 1}, "variable_missing", "order: is missing; it must be string"),
        (
            {"order": "o", "totl": 1},
            "variable_surplus",
            "totl: no such variable; did you mean total?",
        ),
        ({"order": 4711, "total": 1}, "variable_type", "order: expected string, got int"),
        ({"order": "o", "total": "1"}, "variable_type", "total: expected number, got string"),
        ({"order": "o", "total": True}, "variable_type", "total: expected number, got bool"),
        ({"order": "o", "total": None}, "variable_type", "total: expected number, got null"),
        ({"order": "o", "total": 1, "lines": "x"}, "variable_type", "expected list, got string"),
        (
            {"order": "o", "total": 1, "lines": [{"name": "a", "price": 1}, {"name": "b"}]},
            "variable_missing",
            "lines[1].price: is missing; it must be number",
        ),
        (
            {"order": "o", "total": 1, "lines": [{"name": "a", "price": 1, "x": 1}]},
            "variable_surplus",
            "lines[0].x: no such variable; there are name, price",
        ),
        ({"order": "o", "total": 1, "lines": [7]}, "variable_type", "lines[0]: expected a table"),
    ],
)
def test_a_wrong_variable_is_named(
    tmp_path: Path, params: dict[str, Any], code: str, detail: str
) -> None:
    found = refused(templates(tmp_path, ORDER), asked("order-paid", **params))
    assert found[0] == code
    assert found[1].startswith("template 'order-paid': ")
    assert detail in found[1]


@pytest.mark.parametrize(
    ("type_name", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, [], {}]),
        ("int", [0, -7, 10**20], [1.0, True, "1", None]),
        ("number", [0, 1.5], [True, "1", None]),
        ("bool", [True, False], [0, "true"]),
        ("date", ["2026-02-28", "2026-02-28T10:00:00Z"], ["2026-02-30", "tomorrow", 20260228]),
        ("list", [[], [1, "a"]], ["a", {}]),
    ],
)
def test_each_type_takes_its_own_values_alone(
    tmp_path: Path, type_name: str, good: list[Any], bad: list[Any]
) -> None:
    known = one(tmp_path, "text = 'x'", f'v = "{type_name}"')
    for value in good:
        assert content(known.render(asked(v=value))) == {"text": "x"}
    for value in bad:
        assert refused(known, asked(v=value))[0] == "variable_type"


def test_no_error_shows_a_value(tmp_path: Path) -> None:
    body = "text = '''{{ table[secret] }}{{ secret | fixed }}'''"
    variables = 'secret = "string"\ntable = { type = "list", optional = true }'
    for params in ({"secret": "s3cret", "table": []}, {"secret": "s3cret"}, {"secret": ["s3cret"]}):
        _, detail = refused(one(tmp_path, body, variables), asked(**params))
        assert "s3cret" not in detail


def test_an_id_that_is_not_ours_passes_where_providers_have_templates(tmp_path: Path) -> None:
    known = templates(tmp_path, ORDER)
    assert known.render(asked("SMS_999", "sms", any=1)) is None
    assert Templates().render(asked("SMS_999", "sms", any=1)) is None
    code, detail = refused(known, asked("order-pad", "dingtalk"))
    assert code == "template_unknown"
    assert "did you mean 'order-paid'?" in detail


def test_a_content_passes_as_it_was_written(tmp_path: Path) -> None:
    inline = Notification(
        id="m",
        channel="dingtalk",
        kind="notice",
        receivers=["u"],
        content={"text": "{{ a }}"},
        created_at=1,
    )
    assert templates(tmp_path, ORDER).render(inline) is None


def test_a_template_of_another_channel_is_refused(tmp_path: Path) -> None:
    found = refused(templates(tmp_path, ORDER), asked("order-paid", "sms", order="o", total=1))
    assert found == ("template_channel", "template 'order-paid' is for email, not for sms")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{% for a in v %}{% for b in v %}{% endfor %}{% endfor %}", "template_too_large"),
        ("{% for a in v %}{{ a * 9000 }}{% endfor %}", "template_too_large"),
        ("{{ 'x' * 2000000 }}", "template_too_large"),
        ("{{ v.__class__ }}", "template_failed"),
        ("{{ v.nothing }}", "template_failed"),
        ("{{ v | fixed }}", "template_failed"),
        ("{{ 'x' | date }}", "template_failed"),
    ],
)
def test_a_rendering_that_cannot_be_or_never_ends_is_refused(
    tmp_path: Path, body: str, code: str
) -> None:
    known = one(tmp_path, f'text = """{body}"""', 'v = "list"')
    assert MAX_LOOPS < 128 * 128
    assert MAX_OUTPUT < 128 * 9000
    assert refused(known, asked(v=["x"] * 128))[0] == code


def test_loops_are_counted_over_all_parts_and_anew_for_each_rendering(tmp_path: Path) -> None:
    loop = "{% for a in v %}{% for b in v %}{% endfor %}{% endfor %}"
    single = one(tmp_path, f'text = "{loop}"', 'v = "list"')
    for _ in range(3):
        single.render(asked(v=["x"] * 90))
    double = one(tmp_path, f'text = "{loop}"\nsubject = "{loop}"', 'v = "list"')
    assert refused(double, asked(v=["x"] * 90))[0] == "template_too_large"


def test_the_same_parameters_make_the_same_bytes(tmp_path: Path) -> None:
    known = templates(tmp_path, ORDER)
    first = known.render(asked("order-paid", order="o", total=1))
    assert all(known.render(asked("order-paid", order="o", total=1)) == first for _ in range(20))


def test_a_version_changes_with_its_template_alone(tmp_path: Path) -> None:
    before = templates(tmp_path, ORDER)
    after = templates(tmp_path, ORDER.replace("SMS_123", "SMS_124"))
    assert before.version != after.version
    assert before.named("login-code").version != after.named("login-code").version
    assert before.named("order-paid").version == after.named("order-paid").version
    assert before.version_of(asked("order-paid")) == before.named("order-paid").version
    assert before.version_of(asked("SMS_1", "sms")) == ""


def test_texts_of_a_command_line_are_read_by_type(tmp_path: Path) -> None:
    template = one(tmp_path, "text='x'", 'a="int"\nb="bool"\nc="list"\nd="string"').named("t")
    texts = {"a": "7", "b": "true", "c": '["x"]', "d": "7"}
    assert template.parsed(texts) == {"a": 7, "b": True, "c": ["x"], "d": "7"}
    with pytest.raises(TemplateError, match="c: expected a list as JSON"):
        template.parsed({"c": "x,y"})
    for name in "ac":
        with pytest.raises(TemplateError, match=f"^{name}: the value is nested too deeply"):
            template.parsed({name: "[" * 5_000})


# ---- forms for single providers ----------------------------------------------------------------

TAKERS = {
    "aliyun_sms": Taker("sms", templates=True, contents=False),
    "tencent_sms": Taker("sms", templates=True, contents=False),
    "twilio": Taker("sms", templates=True, contents=True),
    "smtp": Taker("email", templates=False, contents=True),
}
FORMS = """
[templates.login]
channel = "sms"
variables = { code = "string", minutes = { type = "int", default = 5 } }
providers.aliyun_sms = { template_id = "SMS_123", params = { code = "{{ code }}" } }
[templates.login.providers.tencent_sms]
template_id = "1234567"
params = { "1" = "{{ code }}", "2" = "{{ minutes }}" }
"""


def forms(folder: Path, more: str = "") -> Templates:
    (folder / "templates.toml").write_text(FORMS + more, "utf-8")
    return load(folder / "templates.toml", TAKERS)


def test_each_provider_gets_its_own_form_and_the_others_nothing(tmp_path: Path) -> None:
    found = forms(tmp_path).render(asked("login", "sms", code="4711"))
    assert found is not None
    assert found.empty
    assert found.of("aliyun_sms") == Rendered(template=Template("SMS_123", {"code": "4711"}))
    assert found.of("tencent_sms") == Rendered(
        template=Template("1234567", {"1": "4711", "2": "5"})
    )
    assert found.of("twilio").empty
    assert found.of("unheard_of").empty


def test_the_plain_form_is_for_those_that_are_not_named_and_could_send_it(tmp_path: Path) -> None:
    more = """[templates.mixed]
channel = "sms"
text = "{{ code }}"
variables = { code = "string" }
providers.aliyun_sms = { template_id = "SMS_1" }
"""
    found = forms(tmp_path, more).render(asked("mixed", "sms", code="4711"))
    assert found is not None
    assert found.of("twilio").content == found.content == {"text": "4711"}
    assert found.of("aliyun_sms").template == Template("SMS_1", {})
    assert found.of("tencent_sms").empty, "it sends templates of its own alone"


def test_a_template_without_forms_is_for_whoever_sends_it(tmp_path: Path) -> None:
    (tmp_path / "templates.toml").write_text(ORDER, "utf-8")
    known = load(tmp_path / "templates.toml", TAKERS)
    found = known.render(asked("login-code", "sms", code="1"))
    assert found is not None
    assert found.providers == {}
    assert found.of("twilio") is found


def test_a_form_that_fails_refuses_the_notification_and_is_named(tmp_path: Path) -> None:
    more = """[templates.t]
channel = "sms"
text = "x"
variables = { v = "string" }
providers.twilio = { text = "{{ v | date }}" }
"""
    code, detail = refused(forms(tmp_path, more), asked("t", "sms", v="4711"))
    assert code == "template_failed"
    assert detail.startswith("template 't': providers.twilio: ")
    assert "4711" not in detail


def test_each_form_has_the_bounds_to_itself(tmp_path: Path) -> None:
    rounds = MAX_LOOPS * 2 // 3
    text = f"{{% for x in range({rounds}) %}}{{% endfor %}}{{{{ v }}}}"
    more = f"""[templates.t]
channel = "sms"
text = "{text}"
variables = {{ v = "string" }}
providers.twilio = {{ text = "{text}" }}
"""
    found = forms(tmp_path, more).render(asked("t", "sms", v="1"))
    assert found is not None
    assert found.of("twilio").content == {"text": "1"}


def test_its_version_changes_with_a_form(tmp_path: Path) -> None:
    first = forms(tmp_path).named("login").version
    (tmp_path / "templates.toml").write_text(FORMS.replace("1234567", "7654321"), "utf-8")
    assert load(tmp_path / "templates.toml").named("login").version != first
    (tmp_path / "templates.toml").write_text(FORMS, "utf-8")
    unaware = load(tmp_path / "templates.toml")
    assert unaware.named("login").version == first, "it is of the text, whoever reads it"


CALLS = '<at user_id="all">everyone</at> <@all> <AT user_id="ou_1"></AT>'


@pytest.mark.parametrize("channel", ["feishu", "wecom", "dingtalk"])
def test_a_value_calls_on_nobody_in_a_chat_and_the_templates_own_words_do(
    tmp_path: Path, channel: str
) -> None:
    text = (
        f'[templates.t]\nchannel = "{channel}"\n'
        "[templates.t.content]\n"
        "text = '<at user_id=\"ou_7\"></at> {{ v }}{{ v }}'\n"
        'whole = { var = "v" }\n'
        '[templates.t.variables]\nv = "string"\n'
    )
    found = templates(tmp_path, text)
    for value in (CALLS, "<", "a < b"):
        made = found.render(asked(channel=channel, v=value))
        assert made is not None
        assert made.content is not None
        said = made.content["text"]
        own, rest = said[: len('<at user_id="ou_7"></at>')], said[len('<at user_id="ou_7"></at>') :]
        assert own == '<at user_id="ou_7"></at>'
        for whole in (rest, made.content["whole"] + "at"):
            lower = whole.lower()
            assert not any(tag in lower for tag in ("<at", "</at", "<@"))
        assert rest.replace("\u200b", "") == f" {value}{value}"


def test_elsewhere_a_value_stays_as_it_is(tmp_path: Path) -> None:
    found = one(tmp_path, 'subject = "s"\ntext = "{{ v }}"')
    made = found.render(asked(v=CALLS))
    assert made is not None
    assert made.content is not None
    assert made.content["text"] == CALLS
