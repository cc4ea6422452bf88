"""Configuration: file, environment on top, secrets from files, and errors that say where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from backends.settings import LOGINS, SECRETS, FileText, Settings, SettingsError, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hongyan.toml"
    path.write_text(
        '[kafka]\nbootstrap = "k1:9092"\n[worker]\nlanes = ["sms.*"]\n'
        '[accounts.main]\nprovider = "webhook"\nendpoint = "https://one"\n',
        "utf-8",
    )
    return path


def refused(path: Path | None, environ: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        load(path, environ)
    return str(caught.value)


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(None, {}) == Settings()


def test_the_file_in_this_folder_is_taken_unless_another_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert load(None, {}).kafka.bootstrap == "k1:9092"
    other = tmp_path / "other.toml"
    other.write_text('[kafka]\nbootstrap = "k2:9092"\n')
    assert load(None, {"HONGYAN_CONFIG": str(other)}).kafka.bootstrap == "k2:9092"
    assert load(other, {"HONGYAN_CONFIG": str(file)}).kafka.bootstrap == "k2:9092"


def test_every_key_can_be_overridden_by_environment(file: Path) -> None:
    found = load(
        file,
        {
            "HONGYAN_KAFKA__BOOTSTRAP": "k9:9092",
            "HONGYAN_KAFKA__CONNECT_TIMEOUT_S": "7.5",
            "HONGYAN_WORKER__LANES": "sms.*, email.notice",
            "HONGYAN_TRACE__KAFKA": "false",
            "HONGYAN_ACCOUNTS__MAIN__ENDPOINT": "https://two",
            "HONGYAN_ACCOUNTS__MAIN__TOKEN": "t0p",
        },
    )
    assert found.kafka.bootstrap == "k9:9092"
    assert found.kafka.connect_timeout_s == 7.5
    assert found.worker.lanes == ["sms.*", "email.notice"]
    assert found.trace.kafka is False
    assert found.accounts["main"] == {
        "provider": "webhook",
        "endpoint": "https://two",
        "token": "t0p",
    }


def lists_of(found: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """Yields the paths of settings that are lists of texts, `x` for a name that people give."""
    for key, kind in get_type_hints(found).items():
        if kind == list[str]:
            yield (*names, key)
        if get_origin(kind) is dict and hasattr(get_args(kind)[1], "__struct_fields__"):
            yield from lists_of(get_args(kind)[1], *names, key, "x")
        if hasattr(kind, "__struct_fields__"):
            yield from lists_of(kind, *names, key)


LISTS = list(lists_of(Settings))


def test_lists_of_texts_are_found() -> None:
    assert ("console", "proxies") in LISTS
    assert ("lookback", "biz_types", "x", "topics") in LISTS


@pytest.mark.parametrize("path", LISTS, ids=".".join)
@pytest.mark.parametrize("file_ending", ["", "_FILE"])
def test_a_list_is_given_by_a_variable_and_by_a_file(
    file: Path, path: tuple[str, ...], file_ending: str
) -> None:
    (file.parent / "list").write_text("one, two\n")
    text = "list" if file_ending else "one,two"
    found: Any = load(file, {f"HONGYAN_{'__'.join(path).upper()}{file_ending}": text})
    for part in path:
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == ["one", "two"]


def test_an_empty_variable_is_an_empty_list(file: Path) -> None:
    file.write_text('[console]\nproxies = ["10.0.0.1"]\n')
    assert load(file, {"HONGYAN_CONSOLE__PROXIES": ""}).console.proxies == []


def test_a_business_type_and_a_check_are_found_by_their_spelling(file: Path) -> None:
    file.write_text(
        '[lookback.biz_types.Order-Paid]\nthreads = 3\n[lookback.checks."shop.api"]\nurl = "x"\n'
    )
    environ = {
        "HONGYAN_LOOKBACK__BIZ_TYPES__ORDER_PAID__TOPICS": "one",
        "HONGYAN_LOOKBACK__CHECKS__SHOP_API__SECRET": "s",
        "HONGYAN_LOOKBACK__BIZ_TYPES__REFUND__THREADS": "2",
    }
    found = load(file, environ).lookback
    assert {name: one.threads for name, one in found.biz_types.items()} == {
        "Order-Paid": 3,
        "refund": 2,
    }
    assert found.biz_types["Order-Paid"].topics == ["one"]
    assert found.checks == {"shop.api": {"url": "x", "secret": "s"}}


def test_a_property_of_spark_is_refused_as_a_variable(file: Path) -> None:
    said = refused(file, {"HONGYAN_SPARK__PROPERTIES__SPARK_DRIVER_MEMORY": "4g"})
    assert said == (
        "HONGYAN_SPARK__PROPERTIES__SPARK_DRIVER_MEMORY: spark.properties: its names have dots and"
        " capitals, which no variable has; write it in the file"
    )


def test_variables_of_other_things_are_left_alone(file: Path) -> None:
    environ = {
        "HONGYAN_CONFIG": str(file),
        "HONGYAN_REQUIRE_STACK": "1",
        "HONGYAN_STACK_KEEP": "1",
        "HONGYAN_CONSOLE_PORT": "tcp://10.0.0.1:80",  # Kubernetes adds such for every service
        "HONGYAN_TEST_SEED": "7",
        "OTHER__THING": "x",
    }
    assert load(None, environ) == load(file, {})


def test_a_secret_is_read_from_the_file_named(file: Path) -> None:
    (file.parent / "token").write_text("s3cret\n")
    file.write_text('[accounts.main]\nprovider = "webhook"\ntoken_file = "token"\n')
    assert load(file, {}).accounts["main"] == {"provider": "webhook", "token": "s3cret"}
    (file.parent / "url").write_text("postgresql://u:p@db/h\n")
    environ = {"HONGYAN_DATABASE__URL_FILE": str(file.parent / "url")}
    assert load(file, environ).database.url == "postgresql://u:p@db/h"


def test_a_secret_file_that_is_not_there_is_named(file: Path) -> None:
    said = refused(file, {"HONGYAN_DATABASE__URL_FILE": "gone"})
    assert "url_file" in said
    assert "gone: No such file" in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "gone.toml") in refused(tmp_path / "gone.toml", {})


def test_broken_toml_is_said_with_its_line(file: Path) -> None:
    file.write_text("[kafka]\nbootstrap = \n")
    said = refused(file, {})
    assert str(file) in said
    assert "line 2" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[kafka]\nbootstrp = "x"\n', "kafka.bootstrp: unknown key; did you mean bootstrap?"),
        ("[kafk]\n", "kafk: unknown key; did you mean kafka?"),
        ("[worker]\nlease_s = 0\n", "worker.lease_s: expected float > 0.0"),
        ('[kafka]\ngroup_protocol = "new"\n', "kafka.group_protocol: invalid enum value 'new'"),
        ("[worker]\nlanes = 5\n", "worker.lanes: expected array, got int"),
    ],
)
def test_a_wrong_key_is_named_with_its_file(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    found = refused(file, {})
    assert found.startswith(str(file))
    assert said in found


def test_a_wrong_value_from_the_environment_names_the_variable(file: Path) -> None:
    said = refused(file, {"HONGYAN_WORKER__DRAIN_S": "soon"})
    assert said.startswith("HONGYAN_WORKER__DRAIN_S: worker.drain_s: expected float")


def test_a_variable_cannot_reach_into_a_value(file: Path) -> None:
    said = refused(file, {"HONGYAN_KAFKA__BOOTSTRAP__HOST": "x"})
    assert said == (
        "HONGYAN_KAFKA__BOOTSTRAP__HOST: kafka.bootstrap: is a value, and not a table; name its key"
    )


def test_every_problem_is_told_at_once_with_its_place(file: Path) -> None:
    file.write_text(
        '[kafka]\nbootstrp = "x"\ngroup_id = 1\n\n[worker]\nlease_s = -1\n[database]\npayload_key = "s"\n'
    )
    with pytest.raises(SettingsError) as caught:
        load(file, {"HONGYAN_DATABASE_URL": "x", "HONGYAN_WORKER__DRAIN_S": "soon"})
    places = [text.partition(": ")[0] for text in caught.value.texts]
    assert places == [
        *(f"{file}:2", f"{file}:3", f"{file}:6", f"{file}:8"),
        *("HONGYAN_DATABASE_URL", "HONGYAN_WORKER__DRAIN_S"),
    ]
    assert str(caught.value).endswith("(and 5 more; see `hongyan config check`)")


def test_each_value_knows_its_origin(file: Path) -> None:
    (file.parent / "url").write_text("sqlite:///other.db\n")
    environ = {"HONGYAN_WORKER__LANES": "sms.*", "HONGYAN_DATABASE__URL_FILE": "url"}
    origins = load(file, environ).origins
    assert origins["kafka.bootstrap"] == f"{file}:2"
    assert origins["worker.lanes"] == "HONGYAN_WORKER__LANES"
    assert origins["database.url"] == f"HONGYAN_DATABASE__URL_FILE ({file.parent}/url)"
    assert origins["accounts.main.endpoint"] == f"{file}:7"
    assert "redis.url" not in origins


def test_a_variable_counts_more_than_a_secret_file_of_the_file(file: Path) -> None:
    (file.parent / "token").write_text("of the file\n")
    file.write_text('[accounts.main]\nprovider = "webhook"\ntoken_file = "token"\n')
    found = load(file, {"HONGYAN_ACCOUNTS__MAIN__TOKEN": "of the shell"})
    assert found.accounts["main"]["token"] == "of the shell"


def test_variables_that_kubernetes_makes_are_left_alone(file: Path) -> None:
    made = {
        "HONGYAN_SERVICE_HOST": "10.0.0.1",
        "HONGYAN_SERVICE_PORT": "80",
        "HONGYAN_SERVICE_PORT_HTTP": "80",
        "HONGYAN_PORT": "tcp://10.0.0.1:80",
        "HONGYAN_RECEIPTS_PORT": "tcp://10.0.0.1:9470",
        "HONGYAN_RECEIPTS_PORT_9470_TCP": "tcp://10.0.0.1:9470",
        "HONGYAN_RECEIPTS_PORT_9470_TCP_ADDR": "10.0.0.1",
        "HONGYAN_RECEIPTS_PORT_9470_TCP_PORT": "9470",
        "HONGYAN_RECEIPTS_PORT_9470_TCP_PROTO": "tcp",
    }
    assert load(file, made) == load(file, {})


def test_a_kafka_property_is_given_by_a_variable(file: Path) -> None:
    found = load(file, {"HONGYAN_KAFKA__CLIENT__SASL_PASSWORD": "s3cret"})
    assert found.kafka.client == {"sasl.password": "s3cret"}


@pytest.mark.parametrize("password", ["p", "Zm9v/YmFy", "p@ss", "two words", "a:b?c#d"])
@pytest.mark.parametrize(("table", "key"), LOGINS)
def test_a_password_in_a_url_of_the_file_is_refused_whatever_its_characters(
    file: Path, table: str, key: str, password: str
) -> None:
    file.write_text(f'[{table}]\n{key} = "postgresql://hongyan:{password}@db/hongyan"\n')
    assert f"{table}.{key}: holds a password" in refused(file, {})


@pytest.mark.parametrize("name", [path[-1] for path in SECRETS if path[0] == "kafka"])
def test_a_secret_property_of_kafka_is_refused_in_the_file(file: Path, name: str) -> None:
    file.write_text(f'[kafka.client]\n"{name}" = "s3cret"\n')
    assert f"kafka.client.{name}: a secret must not be in the file" in refused(file, {})


@pytest.mark.parametrize("flag", ["true", "1"])
def test_secrets_in_the_file_are_taken_where_the_file_allows_it(file: Path, flag: str) -> None:
    text = (
        '[database]\nurl = "postgresql://u:p@db/h"\npayload_key = "k"\n[accounts.a]\ntoken = "t"\n'
    )
    file.write_text(text + 'provider = "webhook"\n')
    assert "a secret must not be in the file" in refused(file, {})
    found = load(file, {"HONGYAN_ALLOW_LITERAL_SECRETS": flag})
    assert (found.database.payload_key, found.accounts["a"]["token"]) == ("k", "t")
    assert not isinstance(found.accounts["a"]["token"], FileText)
    file.write_text(f"allow_literal_secrets = true\n{text}provider = 'webhook'\n")
    assert load(file, {}).database.url == "postgresql://u:p@db/h"


def test_a_path_starts_at_the_folder_of_the_file(file: Path) -> None:
    with file.open("a") as more:
        more.write('ca_file = "ca.pem"\n[alerts]\nca_file = "/etc/ca.pem"\n')
        more.write('[console]\noidc_ca_file = "company.pem"\n')
    found = load(file, {})
    assert found.accounts["main"]["ca_file"] == str(file.parent / "ca.pem")
    assert found.alerts.ca_file == "/etc/ca.pem"
    assert found.console.oidc_ca_file == str(file.parent / "company.pem")


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    for table, default in msgspec.structs.asdict(Settings()).items():
        if not isinstance(default, msgspec.Struct):
            assert table in ("accounts", "base", "origins") or f"| `{table}` |" in page
            continue
        assert f"## [{table}]" in page
        section = page.partition(f"## [{table}]")[2].partition("\n## ")[0]
        for key in default.__struct_fields__:
            assert f"| `{key}` |" in section, f"docs/configuration.md has no {table}.{key}"


def test_the_example_is_a_good_one() -> None:
    found = load(Path(__file__).parents[2] / "examples" / "hongyan.toml", {})
    assert found.accounts["main"]["provider"] == "webhook"
