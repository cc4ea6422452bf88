"""Both languages have the same keys, and every key that a template or module names exists."""

import re
from pathlib import Path

from admin.access import Role
from admin.web.languages import LANGUAGES, language_of, texts_of
from admin.web.navigation import ENTRIES

ADMIN = Path(__file__).parents[2] / "admin"
_IN_TEMPLATE = re.compile(r"""\bt\(["']([a-z_]+\.[a-z_]+)["']""")
_ARGUMENT = re.compile(r"\{(\w+)\}")


def test_all_languages_have_the_same_keys_and_arguments() -> None:
    english = texts_of("en")
    for language in LANGUAGES:
        other = texts_of(language)
        assert other.keys() == english.keys()
        for key in sorted(english.keys()):
            assert set(_ARGUMENT.findall(other(key))) == set(_ARGUMENT.findall(english(key))), key


def test_every_key_that_a_template_names_exists() -> None:
    named = {
        (file.name, key)
        for file in ADMIN.joinpath("templates").rglob("*.html")
        for key in _IN_TEMPLATE.findall(file.read_text())
    }
    assert named
    assert [one for one in sorted(named) if not texts_of("en").has(one[1])] == []


def test_every_key_that_a_module_names_exists() -> None:
    files = {file.stem for file in ADMIN.joinpath("languages", "en").glob("*.toml")}
    pattern = re.compile(rf'"((?:{"|".join(sorted(files))})\.[a-z_]+)"')
    actions = {"login.local", "login.password_changed"}  # codes of the audit
    actions |= {"account.pause", "account.resume", "account.test"}
    actions |= {"policy.apply", "templates.apply"}
    named = {key for file in ADMIN.rglob("*.py") for key in pattern.findall(file.read_text())}
    named = {one for one in named - actions if not one.endswith((".html", ".toml"))}
    assert [one for one in sorted(named) if not texts_of("en").has(one)] == []
    assert all(texts_of("en").has(f"nav.{entry.name}") for entry in ENTRIES)
    assert all(texts_of("en").has(f"role.{role}") for role in Role)


def test_the_browser_chooses_until_the_person_does() -> None:
    assert language_of("", "zh-CN,zh;q=0.9,en;q=0.8") == "zh"
    assert language_of("en", "zh-CN") == "en"
    assert language_of("", "fr") == "en"
