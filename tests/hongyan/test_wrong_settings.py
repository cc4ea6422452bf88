"""Wrong files and variables through the program's own entry: one sentence, exit code 2, no traceback."""

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
STATUS = ("trace", "nobody")
ACCOUNTS = ("accounts", "list")
RECEIPTS = ("receipts",)
RECOVERY = ("recovery", "--embedded")
WORKER = ("worker",)
HOOK = (
    "[trace]\nkafka = false\n[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://127.0.0.1:9/'\n"
)
NUMBER = "[templates.t]\nchannel = 'sms'\ntext = 'x'\n[templates.t.variables.n]\ntype = 'number'\n"
ALI = '[accounts.ali]\nprovider = "aliyun_sms"\naccess_key_id = "id"\nsign_name = "x"\n'

FILES: list[tuple[str, tuple[str, ...], str]] = [
    ("[kafka", UPGRADE, "no TOML"),
    ("kafka = 1", UPGRADE, "kafka"),
    ("[kafka]\nbootstrapp = 'x'", UPGRADE, "did you mean bootstrap?"),
    ("[kafka]\nbootstrap = 1", UPGRADE, "kafka.bootstrap"),
    (f"x = {DEEP}", UPGRADE, "nested too deeply"),
    (".".join("a" * 200) + " = 1", UPGRADE, "nested deeper"),
    (f"[worker]\nlease_s = {DIGITS}", UPGRADE, "too many digits"),
    (f"[worker]\nlease_s = {'9' * 400}", UPGRADE, "beyond 64 bits"),
    ("[worker]\nlease_s = 1e999", UPGRADE, "finite"),
    ("[worker]\nlease_s = nan", UPGRADE, "finite"),
    ("[worker]\nlease_s = -1", UPGRADE, "worker.lease_s"),
    ("[worker]\nlanes = 'x'", UPGRADE, "worker.lanes"),
    ("[worker]\nlanes = [1]", UPGRADE, "worker.lanes"),
    ("[worker]\nmax_in_flight_bytes = 1", UPGRADE, "max_in_flight_bytes"),
    ("[log]\nlevel = 'loud'", UPGRADE, "log.level"),
    ("[recovery]\nshare = 2.0", UPGRADE, "recovery.share"),
    ("[alerts]\nsecret = 'geheim'", UPGRADE, "HONGYAN_ALERTS__SECRET"),
    ("[database]\npayload_key = 'geheim'", UPGRADE, "payload_key_file"),
    ("[outcomes]\nhash_key = 'geheim'", UPGRADE, "HONGYAN_OUTCOMES__HASH_KEY"),
    ("[outcomes]\nwebhook_secret = 'geheim'", UPGRADE, "webhook_secret_file"),
    ("[database]\nurl_file = 'nowhere'", UPGRADE, "url_file"),
    ("[database]\nurl = ''", UPGRADE, "database.url"),
    ("[database]\nurl = 'mysql://x/y'", UPGRADE, "not supported"),
    ("[database]\nurl = 'nonsense'", UPGRADE, "cannot be read"),
    ("[database]\nurl = 'sqlite://'", UPGRADE, "needs a file"),
    ("[database]\nurl = 'sqlite:///:memory:'", UPGRADE, "needs a file"),
    ("[database]\nurl = 'sqlite:///h.db?mood=good'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'sqlite:///h.db?timeout=soon'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'sqlite://host/h.db'", UPGRADE, "takes a file and no more"),
    ("[database]\nurl = 'postgresql://h/d?mood=good'", UPGRADE, "database.url"),
    ("[database]\nurl = 'postgresql://h:port/d'", UPGRADE, "database.url"),
    ("[database]\nurl = 'postgresql://h:99999999/d'", UPGRADE, "database"),
    ("[database]\nurl = 'postgresql://[::1/d'", UPGRADE, "database.url"),
    ("[database]\nurl = 'sqlite:///nowhere.db'", STATUS, "hongyan db upgrade"),
    ("[accounts.a]\nprovider = 'fax'", ACCOUNTS, "unknown provider"),
    ("[accounts.a]\nendpoint = 'http://x'", ACCOUNTS, "provider: is missing"),
    ("[accounts.a]\nprovider = 'webhook'\nendpoint = 'ftp://x'", ACCOUNTS, "endpoint"),
    ("[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h:0/'", ACCOUNTS, "port 0"),
    ("[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h:99999/'", ACCOUNTS, "endpoint"),
    ("[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://[::1/'", ACCOUNTS, "endpoint"),
    ("[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://u:p@h/'", ACCOUNTS, "user name"),
    (
        "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h/'\nrate_per_s = 0",
        ACCOUNTS,
        "rate_per_s",
    ),
    (
        "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h/'\nmood = 1",
        ACCOUNTS,
        "unknown key",
    ),
    (
        "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h/'\ntoken = 'geheim'",
        ACCOUNTS,
        "token_file",
    ),
    (ALI, ACCOUNTS, "access_key_secret: is missing"),
    (ALI + "access_key_secret = 'geheim'", ACCOUNTS, "HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET"),
    (ALI + "access_key_secret_file = 'nowhere'", ACCOUNTS, "access_key_secret_file"),
    (ALI + "access_key_secret = 5", ACCOUNTS, "access_key_secret"),
    ("[receipts]\nlisten = 'x'", RECEIPTS, "receipts.accounts"),
    ("[receipts.accounts.b]\nsecret_file = 'hongyan.toml'", RECEIPTS, "no account of this name"),
    (
        "[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://h/'\n[receipts.accounts.w]",
        RECEIPTS,
        "sends no receipts",
    ),
    *[
        (f"[recovery]\nhealth_address = '{address}'", RECOVERY, "recovery.health_address")
        for address in (
            "",
            "9464",
            "localhost",
            "localhost:",
            ":9464",
            "h:port",
            "h:-1",
            "h:99999",
            "h:1e3",
        )
    ],
    *[
        (f"[recovery]\nhealth_address = '{address}'", RECOVERY, "recovery.health_address")
        for address in (
            "::1:9464",
            "[::1]",
            "[::1]9464",
            "[nonsense]:9464",
            "http://h:9464",
            "h h:1",
        )
    ],
    *[
        (f"{HOOK}[redis]\nurl = '{url}'", RECOVERY, "redis.url")
        for url in (
            "nonsense",
            "http://h",
            "redis://h:port",
            "redis://h?mood=good",
            "redis://h?db=x",
        )
    ],
    ("[worker]\nlanes = ['fax.*']", WORKER, "no lane matches"),
    ("[policy]\nfile = 'nowhere.toml'", WORKER, "policy.file"),
]

POLICIES = [
    ("[defaults", "no TOML"),
    (f"x = {DEEP}", "nested too deeply"),
    (f"[defaults]\nthreads = {DIGITS}", "too many digits"),
    (f"[defaults]\nthreads = {'9' * 400}", "beyond 64 bits"),
    ("[defaults]\nthreads = 0", "threads"),
    ("[defaults]\nttl_ms = 1e999", "finite"),
    ("[defaults]\nthreads = 'many'", "threads"),
    ("[lanes.'fax.notice']\nthreads = 1", "no such lane"),
    ("[lanes.sms]\nthreads = 1", "quote the name"),
    ("[lanes]\n'sms.notice' = 1", "must be a table"),
    ("[defaults.retry]\nfactor = inf", "finite"),
    ("[defaults.quiet_hours]\nwindows = ['25:00-26:00']", "windows"),
    ("[defaults.quiet_hours]\nwindows = ['22:00-08:00']\nzone = 'Mars/Olympus'", "zone"),
    ("[defaults]\naccounts = ['nobody']", "nobody"),
    (".".join("a" * 200) + " = 1", "nested deeper"),
]

TEMPLATE_FILES = [
    ("[templates", "no TOML"),
    (f"x = {DEEP}", "nested too deeply"),
    (f"{NUMBER}default = {DIGITS}", "digits"),
    (f"{NUMBER}default = {'9' * 400}", "64 bits"),
    (f"{NUMBER}default = inf", "finite"),
    ("[templates.t]\nchannel = 'sms'\ntext = '{{ x'\n", "templates.t"),
    ("[templates.t]\nchannel = 'fax'\n", "no channel"),
    (".".join("a" * 200) + " = 1", "nested deeper"),
]

VARIABLES = [
    ("HONGYAN_DATABASE_URL", "postgresql://h/d", "HONGYAN_DATABASE__URL"),
    ("HONGYAN_DATABASE_URL_FILE", "/run/x", "HONGYAN_DATABASE__URL_FILE"),
    ("HONGYAN_KAFKA_BOOTSTRAP", "h:1", "HONGYAN_KAFKA__BOOTSTRAP"),
    ("HONGYAN_KAFKA_BOOTSTRAPS", "h:1", "HONGYAN_KAFKA__BOOTSTRAP"),
    ("HONGYAN_WORKER_LEASE_S", "3", "HONGYAN_WORKER__LEASE_S"),
    ("HONGYAN_DATBASE__URL", "x", "unknown key; did you mean HONGYAN_DATABASE__URL?"),
    ("HONGYAN_DATABASE__URLL", "x", "did you mean HONGYAN_DATABASE__URL?"),
    ("HONGYAN_DATABASE__URL__X", "x", "expected str"),
    ("HONGYAN_WORKER__LEASE_S", "soon", "HONGYAN_WORKER__LEASE_S"),
    ("HONGYAN_WORKER__LEASE_S", DIGITS, "worker.lease_s"),
    ("HONGYAN_WORKER__LEASE_S", "1e999", "worker.lease_s"),
    ("HONGYAN_WORKER__LEASE_S", "nan", "worker.lease_s"),
    ("HONGYAN_REDIS__TIMEOUT_MS", DIGITS, "redis.timeout_ms"),
    ("HONGYAN_DATABASE__URL_FILE", "nowhere", "url_file"),
    ("HONGYAN_" + "__".join("A" * 300), "x", "nested deeper"),
    ("HONGYAN_CONFIG", "nowhere.toml", "no such file"),
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

    monkeypatch.setattr(cli, "app", broken)
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
