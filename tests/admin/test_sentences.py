"""Sentences of rules in the reader's language: the catalogue is complete, and fills in what a rule says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.web.languages import LANGUAGES
from admin.web.sentences import Sentences, sentences_of
from message.vocabulary import Lane
from policy.diff import Change, Waiting, refusals
from producer.doctor.rule_list import RULES

ROOT = Path(__file__).parents[2]
OTHERS = [language for language in LANGUAGES if language != "en"]
WRITTEN_IN = (
    "message/envelope.py",
    "policy/diff.py",
    "policy/gates.py",
    "policy/outcome_checks.py",
    "policy/parser.py",
    "policy/validation.py",
    "policy/templates/declarations.py",
    "policy/templates/loading.py",
    "policy/templates/parts.py",
    "policy/templates/provider_forms.py",
    "policy/templates/sandbox.py",
    "policy/templates/templates.py",
    "policy/templates/variables.py",
    "sending/policy_change.py",
)
"""Modules whose sentences a page shows."""
COUNTED = {"{} process", "{} processes", "{} delivery", "{} deliveries"}
"""A number and its noun, which `policy.diff` puts together."""
PACKAGES = ("backends", "channels", "message", "policy", "producer", "sending")
DOCTOR = sorted((ROOT / "producer" / "doctor" / "rules").glob("*_rules.py"))
_PUNCTUATION = re.compile(r"(\{\}|[\W\d_])*")
NO_SENTENCES = {
    *("§4.5.3.2.4, §4.5.3.2.5", " object", " - at `", " - at `$.", " - at ", " | null", ", got "),
    *("default: ", ", got {}"),
}
"""Names, places and parts of messages that are cut out of a text."""
COMMANDS = re.compile(
    r"(ALTER SYSTEM|SET GLOBAL|PRAGMA|INFO |kafka-|redis-cli|hongyan (topics|db) |policy\.toml"
    r"|hongyan\.toml"
    r"|server\.properties: |terminationGrace|\{\}: \{\}=|message\.max\.bytes ≤)"
)
"""Fixes that are commands or settings, which are of no language."""


def sentences_in(file: Path) -> Iterator[str]:
    """Yields each text of a module with a blank in it, `{}` for what an f-string puts in."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {id(part) for node in ast.walk(tree) for part in _parts(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the docstrings and the parts of f-strings, which are no sentences of their own."""
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    body = getattr(node, "body", None)
    for statement in body if isinstance(body, list) else ():
        if isinstance(statement, ast.Expr):
            yield statement.value


def wanted(files: list[Path]) -> list[str]:
    found = {one for file in files for one in sentences_in(file) if " " in one}
    told = [one for one in found if not _PUNCTUATION.fullmatch(one) and one not in NO_SENTENCES]
    return sorted(one for one in told if not COMMANDS.match(one))


@pytest.mark.parametrize("language", OTHERS)
def test_every_rule_of_doctor_has_its_title_and_its_loss(language: str) -> None:
    entries = sentences_of(language).entries
    assert RULES
    assert [one.id for one in RULES if one.title not in entries or one.loss not in entries] == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_of_a_rule_has_a_translation(language: str) -> None:
    files = [*(ROOT / name for name in WRITTEN_IN), *DOCTOR]
    entries = sentences_of(language).entries
    assert len(wanted(files)) > 200
    assert [one for one in wanted(files) if one not in entries] == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_entry_is_a_sentence_that_some_module_writes(language: str) -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    written = {one for file in files for one in sentences_in(file)}
    assert sorted(sentences_of(language).entries.keys() - written - COUNTED) == []


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_gaps_of_its_sentence(language: str) -> None:
    for english, text in sentences_of(language).entries.items():
        numbers = sorted(int(one) for one in re.findall(r"\{(\d)\}", text))
        assert numbers == list(range(english.count("{}"))), english


def test_a_refusal_of_a_policy_is_told_in_chinese() -> None:
    change = Change(Lane("sms", "notice"), "guarantee", "at_least_once", "at_most_once")
    (english,) = refusals([change], [Waiting("sms.notice", "RETRY", "", 1, 5)], [])
    assert sentences_of("zh")(english) == (
        "通道 sms.notice 正在工作，guarantee 不能从 at_least_once 改为 at_most_once：0 个进程存活，"
        "5 条投递未完成；请停止其工作进程，等恢复进程处理完未完成的投递，停止恢复进程，应用后再启动"
    )
    assert sentences_of("en")(english) == english


SAMPLES = {
    "keep the end of life they were entered with": "保持进入时的有效期",
    "policy.toml:3: threads: must be a table": "policy.toml:3: threads: 必须是一个表",
    "unknown key (did you mean 'threads'?)": "未知的键（是否想写 'threads'？）",
    "template 'login': code: is missing; it must be int": "模板 'login'：code：缺失；必须是 int",
    "nobody translated this {0} one": "nobody translated this {0} one",
    "": "",
}


@pytest.mark.parametrize("english", SAMPLES)
def test_a_sentence_is_found_by_its_fixed_parts(english: str) -> None:
    assert sentences_of("zh")(english) == SAMPLES[english]


def test_a_value_with_braces_stays_as_it_is() -> None:
    told = Sentences({"{} is no type": "{0} 不是类型", "from {} to {}": "到 {1}，自 {0}"})
    assert told("{1} is no type") == "{1} 不是类型"
    assert told("from a to b") == "到 b，自 a"


def test_the_pattern_with_the_most_fixed_text_is_meant() -> None:
    told = Sentences({"expected {}": "应为 {0}", "expected int, got {}": "应为 int，实际 {0}"})
    assert told("expected int, got 3") == "应为 int，实际 3"


def test_a_text_of_a_mebibyte_is_not_looked_at() -> None:
    told = Sentences({"{} a {} a {} a {}": "{0}{1}{2}{3}"})
    assert told(" a" * 500_000) == " a" * 500_000
    assert told("x" + " a" * 1_500) != ""
