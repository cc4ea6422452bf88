"""hongyan config show and hongyan config check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backends.settings import LOGINS, SECRETS, load
from hongyan.configuration import require_sound
from hongyan.output.settings import settings_shown
from tests.hongyan.conftest import Run

FILE = """\
[kafka]
bootstrap = "k1:9092"
client = { "security.protocol" = "SASL_SSL" }
[worker]
lanes = ["sms.*", "email.notice"]
[accounts.main-sms]
provider = "aliyun_sms"
access_key_id = "LTAI"
access_key_secret_file = "secret"
sign_name = "x"
"""


@pytest.fixture
def configured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "hongyan.toml").write_text(FILE)
    (folder / "secret").write_text("geheim\n")
    monkeypatch.setenv("HONGYAN_DATABASE__URL", "postgresql://hongyan:geheim@db/hongyan")
    monkeypatch.setenv("HONGYAN_KAFKA__CLIENT__SASL_PASSWORD", "geheim")
    monkeypatch.setenv("HONGYAN_ALERTS__SECRET", "geheim")
    monkeypatch.setenv("HONGYAN_ACCOUNTS__MAIN_SMS__RATE_PER_S", "5")
    return folder


def test_tables_of_free_names_are_shown_key_by_key(
    folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "hongyan.toml").write_text(
        '[lookback.checks.pay]\nurl = "https://pay.example/check"\nsecret_file = "secret"\n'
        '[lookback.biz_types.order]\ncheck = "pay"\nmax_checks = 5\n'
        '[receipts.accounts.sms]\npath = "a1"\n'
    )
    (folder / "secret").write_text("geheim-wort-das-lang-genug-ist\n")
    monkeypatch.setenv("HONGYAN_LOOKBACK__BIZ_TYPES__ORDER__GRACE_S", "7")
    said = hongyan("config", "show", "--json")
    assert "geheim" not in said.out + hongyan("config", "show").out
    found = {row["key"]: (row["value"], row["origin"]) for row in said.json["settings"]}
    kind = "lookback.biz_types.order"
    assert found[f"{kind}.check"] == ("pay", "hongyan.toml:5")
    assert found[f"{kind}.max_checks"] == (5, "hongyan.toml:6")
    assert found[f"{kind}.grace_s"] == (7, "HONGYAN_LOOKBACK__BIZ_TYPES__ORDER__GRACE_S")
    assert found[f"{kind}.threads"] == (8, "default")
    assert found["lookback.checks.pay.url"] == ("https://pay.example/check", "hongyan.toml:2")
    assert found["lookback.checks.pay.secret"] == ("***", "hongyan.toml:3 (secret)")
    assert found["receipts.accounts.sms.path"] == ("a1", "hongyan.toml:8")


def test_each_setting_is_shown_with_its_origin_and_no_secret(
    configured: Path, hongyan: Run
) -> None:
    said = hongyan("config", "show", "--json")
    assert said.code == 0
    assert "geheim" not in said.out + hongyan("config", "show", "--all").out
    found = {row["key"]: (row["value"], row["origin"]) for row in said.json["settings"]}
    assert said.json["file"] == "hongyan.toml"
    assert found["kafka.bootstrap"] == ("k1:9092", "hongyan.toml:2")
    assert found["kafka.client.security.protocol"] == ("SASL_SSL", "hongyan.toml:3")
    assert found["kafka.client.sasl.password"] == ("***", "HONGYAN_KAFKA__CLIENT__SASL_PASSWORD")
    assert found["kafka.group_id"] == ("hongyan", "default")
    assert found["worker.lanes"] == (["sms.*", "email.notice"], "hongyan.toml:5")
    assert found["database.url"] == (
        "postgresql://hongyan:***@db/hongyan",
        "HONGYAN_DATABASE__URL",
    )
    assert found["alerts.secret"] == ("***", "HONGYAN_ALERTS__SECRET")
    assert found["accounts.main-sms.access_key_id"] == ("LTAI", "hongyan.toml:8")
    assert found["accounts.main-sms.access_key_secret"] == ("***", "hongyan.toml:9 (secret)")
    variable = "HONGYAN_ACCOUNTS__MAIN_SMS__RATE_PER_S"
    assert found["accounts.main-sms.rate_per_s"] == ("5", variable)


def test_only_what_was_set_is_shown_unless_all_is_asked(configured: Path, hongyan: Run) -> None:
    short, whole = hongyan("config", "show").out, hongyan("config", "show", "--all").out
    assert "kafka.bootstrap" in short
    assert "kafka.group_id" not in short
    assert "kafka.group_id" in whole
    assert "allow_literal_secrets" in whole


def test_every_secret_is_masked() -> None:
    given = {"HONGYAN_" + "__".join(path).replace(".", "_").upper(): "geheim" for path in SECRETS}
    rows = settings_shown(load(None, given))
    assert [row.value for row in rows].count("***") == len(SECRETS)
    assert not [row for row in rows if "geheim" in str(row.value)]


@pytest.mark.parametrize("password", ["geheim", "ge/heim", "x@geheim", "x geheim"])
def test_every_password_in_a_url_is_masked(password: str) -> None:
    url = f"postgresql://hongyan:{password}@db/hongyan"
    given = {"HONGYAN_" + "__".join(path).upper(): url for path in LOGINS}
    rows = settings_shown(load(None, given))
    shown = [row.value for row in rows if row.origin in given]
    assert shown == ["postgresql://hongyan:***@db/hongyan"] * len(LOGINS)


def test_every_key_of_every_table_is_among_the_rows() -> None:
    settings = load(None, {})
    shown = {row.key for row in settings_shown(settings)}
    for table in settings.__struct_fields__:
        for key in getattr(getattr(settings, table), "__struct_fields__", ()):
            value = getattr(getattr(settings, table), key)
            assert f"{table}.{key}" in shown or value == {}


def test_a_sound_configuration_is_told_so(configured: Path, hongyan: Run) -> None:
    said = hongyan("config", "check")
    assert (said.code, said.out) == (0, "ok no problem was found\n")
    assert hongyan("config", "check", "--json").json == {"problems": [], "warnings": []}


def test_all_problems_are_told_at_once_each_with_its_place(
    configured: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured / "hongyan.toml").write_text(
        f'{FILE}ca_file = "gone.pem"\n[recovery]\nlanes = ["fax.*"]\n[accounts.x]\nprovider = "webhok"\n'
    )
    (configured / "policy.toml").write_text('[lanes."sms.*"]\naccounts = ["mian-sms"]\n')
    (configured / "templates.toml").write_text("[templates.t]\nchannel = 'fax'\ntext = 'x'\n")
    monkeypatch.setenv("HONGYAN_ALERTS__WEBHOOK", "nowhere")
    said = hongyan("config", "check", "--json")
    assert said.code == 1
    starts = [text.partition(": ")[0] for text in said.json["problems"]]
    assert starts == [
        "hongyan.toml:13",
        "hongyan.toml:15",
        "HONGYAN_ALERTS__WEBHOOK",
        "hongyan.toml:11",
        "policy.toml:2",
        "templates.toml:2",
    ]
    people = hongyan("config", "check")
    assert people.code == 1
    assert people.err.count("error: ") == 6
    assert "6 problems" in people.err


def test_a_file_that_cannot_be_read_as_settings_is_a_problem_too(
    hongyan: Run, folder: Path
) -> None:
    (folder / "hongyan.toml").write_text("[kafka]\nbootstrp = 1\n[log]\nlevel = 'loud'\n")
    said = hongyan("config", "check", "--json")
    assert said.code == 1
    assert [text.split(":")[1] for text in said.json["problems"]] == ["2", "4"]


def test_a_worker_needs_no_secret_of_the_receipts(
    configured: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (configured / "hongyan.toml").open("a") as file:
        file.write(
            '[accounts.v]\nprovider = "webhook"\nendpoint = "http://h/"\n[receipts.accounts.v]\n'
        )
    require_sound(load(configured / "hongyan.toml"))
    (problem,) = hongyan("config", "check", "--json").json["problems"]
    assert problem.startswith("hongyan.toml:14: receipts.accounts.v: webhook sends no receipts")


OF_PROCESSES = [
    *[
        (f"[{table}]\n{key} = 'nonsense'", {}, 2, f"{table}.{key}: 'nonsense': write HOST:PORT")
        for table, key in (
            *(("gateway", "listen"), ("gateway", "health_address")),
            *(("console", "listen"), ("console", "health_address")),
            *(("relay", "health_address"), ("campaigns", "health_address")),
            ("lookback", "health_address"),
        )
    ],
    ("[console]\nurl = 'console.example.com'", {}, 2, "console.url: 'console.example.com'"),
    ("[console]", {"CONSOLE__SECRET": "short"}, 0, "console.secret: it has 5 characters"),
    ("[console]\ndatabase_url = 'mysql://h/d'", {}, 2, "console.database_url: mysql is not"),
    ("[console]\noidc_issuer = 'http://id.example.com'", {}, 2, "console.oidc_issuer: must begin"),
    ("[console]\noidc_issuer = 'https://id.example.com'", {}, 0, "console.oidc_client_id: it is"),
    ("[console]\noidc_ca_file = 'gone.pem'", {}, 2, "console.oidc_ca_file: gone.pem: no such file"),
    ("[relay]\noutbox_url = 'oracle://h/d'", {}, 2, "relay.outbox_url: oracle is not supported"),
    (
        "[relay]\noutbox_url = 'sqlite:///o.db'\ntable = 'A b'",
        *({}, 3, "relay.table: outbox table 'A b'"),
    ),
    ("[spark]\nledger_url = 'mysql://h/d'", {}, 2, "spark.ledger_url: mysql is not supported"),
    (
        "[spark]\nledger_url = 'postgresql://h/d?keepalives=1'",
        *({}, 2, "spark.ledger_url: the option keepalives"),
    ),
    ("[outcomes]\nwebhook = 'ftp://h/'", {}, 2, "outcomes.webhook: must be a full http://"),
    (
        "[outcomes]\nwebhook = 'https://h/'",
        *({"OUTCOMES__WEBHOOK_SECRET": "x"}, 0, "outcomes.webhook_secret: "),
    ),
    (
        "[lookback.biz_types.order]\ncheck = 'shop'",
        *({}, 2, "lookback.biz_types.order.check: there is no [lookback.checks.shop]"),
    ),
    (
        "[lookback.checks.shop]\nurl = 'http://shop.example.com'",
        *({}, 2, "lookback.checks.shop.url: must begin with https://"),
    ),
    (
        "[lookback.checks.shop]\nurl = 'grpcs://shop:443'\nca_file = 'gone.pem'",
        *({}, 3, "lookback.checks.shop.ca_file: gone.pem: no such file"),
    ),
    (
        "[lookback.checks.shop]\nurl = 'https://shop'\ntimeout = 5",
        *({}, 1, "lookback.checks.shop: Object contains unknown field"),
    ),
]
"""Text of hongyan.toml, variables, the line of the problem (0: none in the file), its begin."""


@pytest.mark.parametrize(("text", "environ", "line", "begins"), OF_PROCESSES)
def test_settings_with_which_one_process_cannot_start_are_problems_and_stop_no_worker(
    hongyan: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    environ: dict[str, str],
    line: int,
    begins: str,
) -> None:
    (folder / "hongyan.toml").write_text(text)
    for name, value in environ.items():
        monkeypatch.setenv(f"HONGYAN_{name}", value)
    said = hongyan("config", "check", "--json")
    assert said.code == 1
    (problem,) = said.json["problems"]
    if line:
        assert problem.startswith(f"hongyan.toml:{line}: {begins}")
    else:
        assert begins in problem
    require_sound(load(folder / "hongyan.toml"))


def test_processes_of_a_sound_configuration_have_no_problem(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ca.pem").write_text("")
    (folder / "hongyan.toml").write_text(
        "[console]\nurl = 'https://c'\noidc_issuer = 'https://i'\noidc_client_id = 'h'\n"
        "oidc_ca_file = 'ca.pem'\n[relay]\noutbox_url = 'sqlite:///o.db'\n"
        "[spark]\nledger_url = 'postgresql://h/d'\n[outcomes]\nwebhook = 'https://h/'\n"
        "[lookback.biz_types.order]\ncheck = 'shop'\n"
        "[lookback.checks.shop]\nurl = 'https://shop'\nca_file = 'ca.pem'\n"
    )
    assert hongyan("config", "check", "--json").json == {"problems": [], "warnings": []}
    assert not (folder / "o.db").exists(), "it asks no database"


def test_a_part_whose_library_is_missing_is_a_warning(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    (folder / "hongyan.toml").write_text("[relay]\noutbox_url = 'mysql://h/d'\n")
    assert hongyan("config", "check", "--json").json == {
        "problems": [],
        "warnings": ["[relay]: not checked, since pymysql is not installed"],
    }


def test_secrets_in_the_file_are_warned_of(hongyan: Run, folder: Path) -> None:
    text = FILE.replace('access_key_secret_file = "secret"', 'access_key_secret = "geheim"')
    (folder / "hongyan.toml").write_text(f"allow_literal_secrets = true\n{text}")
    said = hongyan("config", "check", "--json")
    assert said.code == 0
    assert said.json["warnings"] == [
        (
            "hongyan.toml:1: allow_literal_secrets: is on, so the file may hold secrets: only for"
            " trials"
        )
    ]
    assert "geheim" not in hongyan("config", "show", "--all").out


def test_a_lane_of_an_account_that_does_not_serve_it_is_warned_of(
    configured: Path, hongyan: Run
) -> None:
    (configured / "policy.toml").write_text('[lanes."email.notice"]\naccounts = ["main-sms"]\n')
    (warning,) = hongyan("config", "check", "--json").json["warnings"]
    assert "does not serve email" in warning
