"""Settings as the Spark jobs get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.settings import (
    DatabaseSettings,
    KafkaSettings,
    OutcomeSettings,
    Settings,
    SettingsError,
    SparkSettings,
)
from hongyan.spark.jars import JARS, NoJars, fetched, jar_files
from hongyan.spark.kafka_options import kafka_options
from hongyan.spark.wiring import jdbc_login, job_config

PATIENCE = "connectTimeout=10&socketTimeout=900&tcpKeepAlive=true"
"""Without it a job waits for ever for a server that is frozen."""


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    settings = Settings(
        database=DatabaseSettings(
            url="postgresql://hongyan:db-secret@db:5433/ledger", payload_key="pay-secret"
        ),
        outcomes=OutcomeSettings(hash_key="hash-secret"),
        kafka=KafkaSettings(
            client={"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "sasl-secret"}
        ),
        base=str(tmp_path),
    )
    config = job_config(settings)
    assert "-secret" not in repr(config)
    assert (config.ledger.user, config.ledger.password) == ("hongyan", "db-secret")
    assert config.ledger.url == f"jdbc:postgresql://db:5433/ledger?{PATIENCE}"
    assert "sasl-secret" in config.kafka["kafka.sasl.jaas.config"]
    assert config.warehouse == str(tmp_path / "warehouse")


def test_a_replica_and_an_object_store_are_taken_as_they_are() -> None:
    spark = SparkSettings(
        ledger_url="postgresql://r:p@replica/ledger?sslmode=require", warehouse="s3a://bucket/h"
    )
    config = job_config(Settings(spark=spark))
    assert config.ledger.url == f"jdbc:postgresql://replica:5432/ledger?{PATIENCE}&sslmode=require"
    assert config.warehouse == "s3a://bucket/h"


def test_sqlite_is_read_by_its_own_driver(tmp_path: Path) -> None:
    login = jdbc_login("sqlite:///a.db", str(tmp_path), "database.url")
    assert (login.url, login.driver) == (f"jdbc:sqlite:{tmp_path}/a.db", "org.sqlite.JDBC")


def test_an_option_without_a_counterpart_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"spark\.ledger_url: the option keepalives"):
        jdbc_login("postgresql://h/d?keepalives=1", ".", "spark.ledger_url")
    with pytest.raises(SettingsError, match=r"'ssl\.keystore\.location' has no counterpart"):
        kafka_options(KafkaSettings(client={"ssl.keystore.location": "x"}))


@pytest.mark.parametrize(
    ("libpq", "jdbc"),
    [
        *[("any", "any"), ("read-write", "primary"), ("primary", "primary")],
        *[("read-only", "secondary"), ("standby", "secondary")],
        ("prefer-standby", "preferSecondary"),
    ],
)
def test_the_kind_of_server_is_spelt_as_the_jdbc_driver_knows_it(libpq: str, jdbc: str) -> None:
    login = jdbc_login(f"postgresql://h/d?target_session_attrs={libpq}", ".", "spark.ledger_url")
    assert login.url == f"jdbc:postgresql://h:5432/d?{PATIENCE}&targetServerType={jdbc}"


def test_the_urls_own_patience_counts() -> None:
    login = jdbc_login("postgresql://h/d?connect_timeout=3", ".", "spark.ledger_url")
    assert "connectTimeout=3&" in login.url
    assert "connectTimeout=10" not in login.url


def test_a_kind_of_server_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^spark\.ledger_url: .* may be any, .*, not 'master'"):
        jdbc_login("postgresql://h/d?target_session_attrs=master", ".", "spark.ledger_url")


def test_certificates_go_in_as_texts(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("CERTIFICATE")
    client: dict[str, str | int | float | bool] = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(pem),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": 'a"b',
        "sasl.password": "c\\d",
        "socket.timeout.ms": 5,
    }
    options = kafka_options(KafkaSettings(bootstrap="b:9092", client=client))
    assert options == {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CERTIFICATE",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="a\\"b" password="c\\\\d";',
    }


def test_configured_jars_are_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jar_files(["g:n:1", "/a.jar"], print) == ["g:n:1", "/a.jar"]
    with pytest.raises(NoJars, match="there is no `mvn`"):
        jar_files([], print)


def test_jars_are_fetched_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "mvn"
    program.write_text(MAVEN)
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(
        NoJars, match=f"{JARS[0].coordinate} from Maven Central has another SHA-256"
    ):
        fetched(print)
    assert list((tmp_path / "cache" / "hongyan").iterdir()) == []
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(NoJars, match="could not be fetched from Maven Central: no route"):
        fetched(print)
    assert list((tmp_path / "cache" / "hongyan").iterdir()) == []


MAVEN = """#!/bin/sh
[ -n "$FAIL" ] && { echo "[ERROR] no route"; exit 1; }
for one in "$@"; do
  case $one in -DoutputDirectory=*) out=${one#*=};; -Dartifact=*) name=${one#*=};; esac
done
IFS=:; set -- $name; echo other > "$out/$2-$3.jar"
"""
