"""templates.toml: every mistake is told, with its line and its key."""

import re
from pathlib import Path

import pytest

from backends.settings import Settings, TemplatesSettings
from policy.templates.loading import TemplateFileError, file_of, load, load_for
from policy.templates.provider_forms import Taker, Takers
from policy.templates.sandbox import MAX_LOOPS, MAX_OUTPUT
from policy.templates.variables import TemplateError

DECLARED = """text = "x"
[templates.t.variables]
1a = "string"
b = "text"
c = 7
d = { type = "int", default = "x" }
e = { type = "int", items = "int" }
f = { type = "list", items = "strin" }
g = { type = "int", optinal = true }
"""
DOCUMENT = Path(__file__).parents[3] / "docs" / "templates.md"
HEAD = '[templates.t]\nchannel = "email"\n'


TAKERS = {
    "aliyun_sms": Taker("sms", templates=True, contents=False),
    "twilio": Taker("sms", templates=True, contents=True),
    "smtp": Taker("email", templates=False, contents=True),
    "resend": Taker("email", templates=True, contents=True),
    "null": Taker("*", templates=False, contents=True),
}


def problems(folder: Path, text: str, takers: Takers | None = None) -> list[str]:
    (folder / "templates.toml").write_text(text, "utf-8")
    with pytest.raises(TemplateFileError) as caught:
        load(folder / "templates.toml", takers)
    return [f"{p.line} {p.key}: {p.text}" for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = [", ["1 the file: no TOML: Invalid value (at end of document)"]),
        ("[template.t]\n", ["1 template: unknown table; did you mean templates?"]),
        ('[templates.t]\ntext = "x"\n', ["1 templates.t.channel: is missing; write one of sms,"]),
        (
            '[templates.t]\nchannel = "mail"\ntext = "x"\n',
            ["2 templates.t.channel: 'mail' is no channel; did you mean email?"],
        ),
        (HEAD, ["1 templates.t: says nothing: give subject, text"]),
        (f'{HEAD}params = {{}}\ntext = "x"\n', ["3 templates.t.params: goes with template_id"]),
        (
            f'{HEAD}template_id = "x"\nsubject = "y"\n',
            ["4 templates.t.subject: a provider's template (template_id) has params alone"],
        ),
        (
            '[templates.t]\nchannel = "dingtalk"\ntemplate_id = "x"\n',
            ["3 templates.t.template_id: no provider of channel dingtalk has templates"],
        ),
        (
            f'{HEAD}text = "{{{{ cod }}}}"\nvariables = {{ code = "string" }}\n',
            ["3 templates.t.text: reads cod, which is not among its variables; did you mean code?"],
        ),
        (
            f'{HEAD}text = """\none\n{{% fro x in y %}}\n"""\n',
            ["5 templates.t.text: Encountered unknown tag 'fro'."],
        ),
        (f'{HEAD}text = "{{{{ 1 | safe }}}}"\n', ["3 templates.t.text: No filter named 'safe'."]),
        (
            f'{HEAD}text = "{{% macro a() %}}{{% endmacro %}}"\n',
            ["3 templates.t.text: 'macro' is not taken in templates"],
        ),
        (f'{HEAD}text = "{{{{ 9 ** 9 }}}}"\n', ["3 templates.t.text: '**' is not taken"]),
        (f'{HEAD}text = "{{{{ range(3)() }}}}"\n', ["3 templates.t.text: only range() and"]),
        (
            f'{HEAD}text = "{{% for a in [] recursive %}}{{% endfor %}}"\n',
            ["3 templates.t.text: a loop must not be recursive"],
        ),
        (f"{HEAD}text = 2026-11-21\n", ["3 templates.t.text: is a date of TOML's own"]),
        (
            f'{HEAD}text = {{ file = "gone.txt" }}\n',
            ["3 templates.t.text: gone.txt: No such file or directory"],
        ),
        (
            f"{HEAD}text = {{ file = 3 }}\n",
            ["3 templates.t.text.file: must be a file's name, as a text"],
        ),
        (
            f"{HEAD}subject = [\n  {{ file = 2026-11-21 }},\n]\n",
            ["3 templates.t.subject.file: must be a file's name, as a text"],
        ),
        (
            f"{HEAD}{DECLARED}",
            [
                "5 templates.t.variables.1a: a variable's name has letters",
                "6 templates.t.variables.b.type: 'text' is no type; write one of string, int",
                "7 templates.t.variables.c: must be a type (string",
                "8 templates.t.variables.d.default: expected int, got string",
                "9 templates.t.variables.e.items: goes with lists",
                "10 templates.t.variables.f.items: 'strin' is no type; did you mean string?",
                "11 templates.t.variables.g.optinal: unknown key; did you mean optional?",
            ],
        ),
    ],
)
def test_every_mistake_is_told_with_line_and_key(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    found = problems(tmp_path, text)
    assert len(found) == len(expected)
    for said, wanted in zip(found, expected, strict=True):
        assert said.startswith(wanted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("providers = 3", "3 templates.t.providers: must be a table"),
        ("providers = {}", "3 templates.t.providers: names none; write [templates.NAME.prov"),
        ("providers.smtp = 3", "3 templates.t.providers.smtp: must be a table"),
        ("providers.smtp = {}", "3 templates.t.providers.smtp: says nothing: give subject"),
        (
            'providers.smtp = { text = "x", params = {} }',
            "3 templates.t.providers.smtp.params: goes with template_id",
        ),
        (
            'providers.resend = { template_id = "T", text = "x" }',
            "3 templates.t.providers.resend.text: a provider's template (template_id) has params",
        ),
        (
            'providers.smtp = { text = "x", variables = {} }',
            "3 templates.t.providers.smtp.variables: belongs to the whole template, not to one",
        ),
        (
            "[templates.t.providers.smtp]\ntext = '{{ x }}'",
            "4 templates.t.providers.smtp.text: reads x, which is not among its variables",
        ),
        (
            'providers.smpt = { text = "x" }',
            "3 templates.t.providers.smpt: there is no provider 'smpt'; did you mean smtp?",
        ),
        (
            'providers.postman = { text = "x" }',
            "3 templates.t.providers.postman: there is no provider 'postman'; email has resend, sm",
        ),
        (
            'providers.twilio = { text = "x" }',
            "3 templates.t.providers.twilio: twilio does not serve email; there are resend, smtp",
        ),
        ('providers.null = { text = "x" }', "3 templates.t.providers.null: null does not serve"),
        (
            'providers.smtp = { template_id = "T" }',
            "3 templates.t.providers.smtp.template_id: smtp has no templates of its own; give a co",
        ),
        (
            'template_id = "T"\nproviders.resend = { template_id = "T" }',
            "3 templates.t.template_id: no provider of channel email has templates",
        ),
    ],
)
def test_every_mistake_under_providers_is_told_with_line_and_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    (found,) = problems(tmp_path, f"{HEAD}{text}\n", TAKERS)
    assert found.startswith(expected)


def test_a_provider_that_has_only_templates_takes_no_content(tmp_path: Path) -> None:
    text = '[templates.t]\nchannel = "sms"\nproviders.aliyun_sms = { text = "x" }\n'
    (found,) = problems(tmp_path, text, TAKERS)
    assert found == (
        "3 templates.t.providers.aliyun_sms.text: aliyun_sms sends templates of its own alone; "
        "give template_id and params"
    )


def test_who_knows_no_providers_believes_the_names(tmp_path: Path) -> None:
    path = tmp_path / "templates.toml"
    path.write_text(f'{HEAD}providers.postman = {{ text = "x" }}\n')
    assert list(load(path).named("t").providers) == ["postman"]


def test_a_providers_own_template_may_be_of_a_channel_where_not_all_have_some(
    tmp_path: Path,
) -> None:
    path = tmp_path / "templates.toml"
    path.write_text(f'{HEAD}text = "x"\nproviders.resend = {{ template_id = "T" }}\n')
    found = load(path, TAKERS).named("t")
    assert found.of("resend").template_id == "T"
    assert found.of("smtp") is found


def test_the_first_problem_is_said_and_the_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[templates.t]\n[templates.u]\n")
    with pytest.raises(TemplateFileError, match=r"t\.toml:1: .*\(and 3 more; see `hongyan"):
        load(tmp_path / "t.toml")


def test_a_mistake_in_a_file_it_names_is_told_with_that_files_line(tmp_path: Path) -> None:
    (tmp_path / "mail.html").write_text("<p>\n{{ broken\n</p>")
    (found,) = problems(tmp_path, f'{HEAD}html = {{ file = "mail.html" }}\n')
    assert found.startswith("3 templates.t.html: mail.html:")


def test_a_named_file_counts_in_the_version_and_is_escaped_under_html(tmp_path: Path) -> None:
    (tmp_path / "templates.toml").write_text(
        f'{HEAD}html = {{ file = "m.html" }}\nvariables = {{ v = "string" }}\n'
    )
    (tmp_path / "m.html").write_text("<p>{{ v }}</p>")
    first = load(tmp_path / "templates.toml")
    rendered = first.named("t").render({"v": "<"}).content
    assert rendered == {"html": "<p>&lt;</p>"}
    (tmp_path / "m.html").write_text("<b>{{ v }}</b>")
    second = load(tmp_path / "templates.toml")
    assert first.named("t").version != second.named("t").version
    assert first.version != second.version


@pytest.mark.parametrize(
    ("text", "values", "rendered"),
    [
        (
            "text = '{{ file }}'\nvariables = { file = \"string\" }",
            {"file": "a.csv"},
            {"text": "a.csv"},
        ),
        (
            "text = '{{ file }}'\nvariables = { file = { type = \"string\" } }",
            {"file": "a.csv"},
            {"text": "a.csv"},
        ),
        (
            "text = '{{ a[0].file }}'\nvariables.a = { type = 'list', fields = { file = 'string' } }",
            {"a": [{"file": "a.csv"}]},
            {"text": "a.csv"},
        ),
        ("content = { file = 'hello' }", {}, {"file": "hello"}),
        ("content = { file = 3 }", {}, {"file": 3}),
        ("content.a = { file = { id = '7' } }", {}, {"a": {"file": {"id": "7"}}}),
    ],
)
def test_a_variable_or_a_key_of_the_content_may_be_named_file(
    tmp_path: Path, text: str, values: dict[str, object], rendered: dict[str, object]
) -> None:
    path = tmp_path / "templates.toml"
    path.write_text(f"{HEAD}{text}\n")
    assert load(path).named("t").render(values).content == rendered


def test_a_provider_parameter_may_be_named_file(tmp_path: Path) -> None:
    path = tmp_path / "templates.toml"
    path.write_text(
        "[templates.t]\nchannel = 'sms'\ntemplate_id = 'T'\nparams = { file = '{{ name }}' }\n"
        "variables = { name = 'string' }\nproviders.twilio = { file = 'x' }\n"
    )
    found = load(path).named("t")
    template = found.render({"name": "a.csv"}).template
    assert template is not None
    assert template.params == {"file": "a.csv"}
    assert found.of("twilio").content == {"file": "x"}


def test_the_file_stands_beside_the_settings_or_where_they_say(tmp_path: Path) -> None:
    assert file_of(Settings(base=str(tmp_path))) is None
    assert len(load_for(Settings(base=str(tmp_path)))) == 0
    (tmp_path / "templates.toml").write_text(f'{HEAD}text = "x"\n')
    assert [t.name for t in load_for(Settings(base=str(tmp_path)))] == ["t"]
    named = Settings(base=str(tmp_path), templates=TemplatesSettings(file="gone.toml"))
    with pytest.raises(TemplateFileError, match=r"gone\.toml:1: templates\.file: No such file"):
        load_for(named)


def test_the_documents_own_example_is_good(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.+?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "templates.toml").write_text(example[1], "utf-8")
    known = load(tmp_path / "templates.toml")
    lines = [{"name": "tea", "price": 2}]
    params = {"order": "o-1", "total": 1234.005, "paid_on": "2026-11-21", "lines": lines}
    content = known.named("order-paid").render(params).content
    assert content is not None
    assert content["text"] == "o-1: 1,234.01, 21.11.2026\n"
    template = known.named("login-code").render({"code": "4711"}).template
    assert template is not None
    assert (template.id, template.params) == ("SMS_123", {"code": "4711", "minutes": "5"})


def test_the_document_names_every_code_and_bound() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"{MAX_LOOPS:,} rounds" in text
    assert f"{MAX_OUTPUT:,} characters" in text
    assert TemplateError.__doc__ is not None
    for code in re.findall(r"\b(?:template|variable)_[a-z_]+", TemplateError.__doc__):
        assert f"`{code}`" in text
