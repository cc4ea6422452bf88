"""Values beyond all bounds, and errors that nobody foresaw: one sentence, exit code 2, no traceback.

test_wrong_configurations.py has the table of ordinary mistakes.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from backends.addresses import address_of
from hongyan import cli
from hongyan.errors import _EXPECTED, judged
from message.states import UnknownState, state_of
from policy.templates.variables import TemplateError, Variable
from tests.hongyan.shell import said

DEEP = "[" * 5_000
DIGITS = "9" * 5_000
UPGRADE = ("db", "upgrade")
ACCOUNTS = ("accounts", "list")
RECOVERY = ("recovery", "--embedded")
HOOK = (
    "[trace]\nkafka = false\n[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://127.0.0.1:9/'\n"
)
NUMBER = "[templates.t]\nchannel = 'sms'\ntext = 'x'\n[templates.t.variables.n]\ntype = 'number'\n"
ALI = '[accounts.ali]\nprovider = "aliyun_sms"\naccess_key_id = "id"\nsign_name = "x"\n'

FILES: list[tuple[str, tuple[str, ...], str]] = [
    (f"x = {DEEP}", UPGRADE, "nested too deeply"),
    (".".join("a" * 200) + " = 1", UPGRADE, "nested deeper"),
    (f"[worker]\nlease_s = {DIGITS}", UPGRADE, "too many digits"),
    ("[worker]\nmax_in_flight_bytes = 1", UPGRADE, "max_in_flight_bytes"),
    ("[outcomes]\nhash_key = 'geheim'", UPGRADE, "HONGYAN_OUTCOMES__HASH_KEY"),
    ("[outcomes]\nwebhook_secret = 'geheim'", UPGRADE, "webhook_secret_file"),
    ("[database]\nurl = 'sqlite:///:memory:'", UPGRADE, "needs a file"),
    ("[database]\nurl = 'sqlite:///h.db?mood=good'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'sqlite:///h.db?timeout=soon'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'sqlite://host/h.db'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'postgresql://h:port/d'", UPGRADE, "database.url"),
    ("[database]\nurl = 'postgresql://[::1/d'", UPGRADE, "database.url"),
    *[
        (f"[accounts.a]\nprovider = 'webhook'\nendpoint = '{endpoint}'", ACCOUNTS, expected)
        for endpoint, expected in (
            ("http://h:0/", "port 0"),
            ("http://h:99999/", "endpoint"),
            ("http://[::1/", "endpoint"),
        )
    ],
    (ALI + "access_key_secret = 5", ACCOUNTS, "access_key_secret"),
    *[
        (f"[recovery]\nhealth_address = '{address}'", RECOVERY, "recovery.health_address")
        for address in (
            *("", "9464", "localhost:", ":9464", "h:port", "h:-1", "h:1e3", "[::1]", "[::1]9464"),
            *("[nonsense]:9464", "http://h:9464", "h h:1"),
        )
    ],
    *[
        (f"{HOOK}[redis]\nurl = '{url}'", RECOVERY, "redis.url")
        for url in ("nonsense", "redis://h:port", "redis://h?db=x")
    ],
]

POLICIES = [
    (f"x = {DEEP}", "nested too deeply"),
    (f"[defaults]\nthreads = {DIGITS}", "too many digits"),
    (f"[defaults]\nthreads = {'9' * 400}", "beyond 64 bits"),
    ("[defaults]\nttl_ms = 1e999", "finite"),
    ("[lanes]\n'sms.notice' = 1", "must be a table"),
    ("[defaults.retry]\nfactor = inf", "finite"),
    (".".join("a" * 200) + " = 1", "nested deeper"),
]

TEMPLATE_FILES = [
    (f"x = {DEEP}", "nested too deeply"),
    (f"{NUMBER}default = {DIGITS}", "digits"),
    (f"{NUMBER}default = {'9' * 400}", "64 bits"),
    (".".join("a" * 200) + " = 1", "nested deeper"),
]

VARIABLES = [
    ("HONGYAN_WORKER_LEASE_S", "3", "HONGYAN_WORKER__LEASE_S"),
    ("HONGYAN_WORKER__LEASE_S", DIGITS, "worker.lease_s"),
    ("HONGYAN_WORKER__LEASE_S", "1e999", "worker.lease_s"),
    ("HONGYAN_WORKER__LEASE_S", "nan", "worker.lease_s"),
    ("HONGYAN_REDIS__TIMEOUT_MS", DIGITS, "redis.timeout_ms"),
    ("HONGYAN_" + "__".join("A" * 300), "x", "nested deeper"),
]


def one_sentence(code: int, text: str, expected: str) -> None:
    assert code == 2, text
    assert "Traceback" not in text
    assert "fault of ours" not in text
    assert "geheim" not in text
    assert expected in text.replace("\n", " ")
    assert len(text) < 1_000
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize(("content", "command", "expected"), FILES)
def test_a_wrong_file_is_told_in_one_sentence(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    command: tuple[str, ...],
    expected: str,
) -> None:
    if command is RECOVERY:
        said(monkeypatch, "db", "upgrade")
    (folder / "hongyan.toml").write_text(content)
    one_sentence(*said(monkeypatch, *command), expected)


@pytest.mark.parametrize(("content", "expected"), POLICIES)
def test_a_wrong_policy_is_told_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: str
) -> None:
    (folder / "policy.toml").write_text(content)
    code, text = said(monkeypatch, "policy", "check")
    assert code in (1, 2)
    assert "Traceback" not in text
    assert "fault of ours" not in text
    assert expected in text
    assert "policy.toml:" in text


@pytest.mark.parametrize(("content", "expected"), TEMPLATE_FILES)
def test_a_wrong_template_is_told_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: str
) -> None:
    (folder / "templates.toml").write_text(content)
    code, text = said(monkeypatch, "templates", "check")
    assert code in (1, 2)
    assert "Traceback" not in text
    assert "fault of ours" not in text
    assert expected in text
    assert "templates.toml:" in text


@pytest.mark.parametrize(("name", "value", "expected"), VARIABLES)
def test_a_wrong_variable_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(name, value)
    one_sentence(*said(monkeypatch, *UPGRADE), expected)


def test_variables_that_kubernetes_makes_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HONGYAN_PORT", "HONGYAN_SERVICE_HOST", "HONGYAN_RECEIPTS_PORT_9470_TCP_ADDR"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:9470")
    assert said(monkeypatch, *UPGRADE)[0] == 0


def test_a_shell_can_give_an_account_with_a_dash_its_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "hongyan.toml").write_text(ALI.replace("ali]", "main-sms]"))
    monkeypatch.setenv("HONGYAN_ACCOUNTS__MAIN_SMS__ACCESS_KEY_SECRET", "geheim")
    code, text = said(monkeypatch, *ACCOUNTS)
    assert (code, "main-sms" in text, "geheim" in text) == (0, True, False)


def test_an_unforeseen_error_is_one_sentence_and_tells_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("geheim")

    monkeypatch.setattr(cli, "get_command", lambda _: broken)
    code, text = said(monkeypatch)
    assert (code, len(text.splitlines())) == (1, 1)
    assert "HONGYAN_DEBUG=1" in text
    assert "Traceback" not in text
    assert "geheim" not in text
    monkeypatch.setenv("HONGYAN_DEBUG", "1")
    assert "Traceback" in said(monkeypatch)[1]


def test_every_error_that_is_expected_exists() -> None:
    """hongyan/errors.py names them by module, so that commands load no more than they need."""
    for module, name, code, sentence in _EXPECTED:
        assert issubclass(getattr(import_module(module), name), Exception)
        assert (code in (1, 2), "{}" in sentence) == (True, True)


def test_a_row_in_a_state_that_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownState, match=r"^delivery k is in a state .*'HELD'") as unknown:
        state_of("HELD", "k")
    assert judged(unknown.value) == (str(unknown.value), 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9464", ("::1", 9464)), ("h:65535", ("h", 65535))],
)
def test_an_address_is_read(text: str, found: tuple[str, int]) -> None:
    assert tuple(address_of(text, "x", "127.0.0.1:9464")) == found


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan")])
def test_a_variable_that_no_float_holds_is_named(number: float) -> None:
    with pytest.raises(TemplateError, match=r"^n: expected number, got one beyond all bounds$"):
        Variable(type="number").checked(number, "n")
