"""`hongyan doctor`: its table, its JSON, its commands, its exit codes."""

from __future__ import annotations

import os
import shlex
import socket
import sqlite3
from pathlib import Path

import pytest

from hongyan.output.doctor import fix_lines
from producer.doctor.diagnosis import Diagnosis, diagnose
from producer.doctor.facts import Facts
from producer.doctor.rule_list import RULES
from tests.hongyan.conftest import Run, make_ledger
from tests.producer.doctor.healthy import LANE, facts, partitions, with_partitions, with_topic
from tests.producer.doctor.test_rules import SEEDS

CONFIG = """\
[kafka]
bootstrap = "{bootstrap}"
topic_prefix = "{prefix}"
group_instance_id = "w-1"
"""


@pytest.fixture
def configured(folder: Path, kafka_bootstrap: str, topic_prefix: str) -> None:
    text = CONFIG.format(bootstrap=kafka_bootstrap, prefix=topic_prefix)
    (folder / "hongyan.toml").write_text(text)


@pytest.mark.usefixtures("configured")
def test_missing_topics_are_an_error_until_they_are_applied(hongyan: Run) -> None:
    make_ledger()
    first = hongyan("doctor")
    assert first.code == 1
    assert "topic-exists" in first.out
    assert "hongyan topics apply" in first.out
    assert hongyan("topics", "apply", "--partitions", "1").code == 0
    healthy = hongyan("doctor", "--json", "--grace", "45")
    assert healthy.code == 0
    assert healthy.json["healthy"] is True
    assert not [one for one in healthy.json["findings"] if one["severity"] == "error"]


def shown(found: Diagnosis, monkeypatch: pytest.MonkeyPatch, hongyan: Run, *flags: str) -> str:
    monkeypatch.setattr("producer.doctor.examination.examine", lambda *_: found)
    done = hongyan("doctor", *flags)
    assert done.code == (0 if found.healthy else 1)
    return done.out


def test_a_finding_tells_what_was_seen_wanted_lost_and_mended(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(diagnose(with_topic(cleanup_policy="compact"), RULES), monkeypatch, hongyan)
    for part in ("ERROR", "cleanup.policy=compact", "the topic's own setting", "loss", "fix"):
        assert part in text
    assert "1 error" in text


def test_fix_prints_commands_and_makes_comments_of_the_rest(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = diagnose(with_topic(cleanup_policy="compact"), RULES)
    lines = shown(found, monkeypatch, hongyan, "--fix").splitlines()
    assert lines[0].startswith("# topic-cleanup-policy (error): hongyan.dispatch.sms.notice")
    assert lines[1] == (
        "kafka-configs.sh --bootstrap-server 127.0.0.1:9092 --alter"
        " --topic hongyan.dispatch.sms.notice --add-config cleanup.policy=delete"
    )
    copies = diagnose(with_partitions(partitions(12, 1, 1)), RULES)
    text = shown(copies, monkeypatch, hongyan, "--fix")
    assert all(line.startswith("#") for line in text.splitlines() if line)


def test_a_sentence_that_begins_with_a_command_is_a_comment_of_the_fixes(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = diagnose(facts(partitions_before={LANE: 6}), RULES)
    text = shown(found, monkeypatch, hongyan, "--fix")
    assert (
        f"#   hongyan lanes pause, then wait until `hongyan status` shows no lag of {LANE}" in text
    )
    assert all(line.startswith("#") for line in text.splitlines() if line)


@pytest.mark.parametrize("found", [row[2] for row in SEEDS], ids=[row[0] for row in SEEDS])
def test_every_line_of_the_fixes_that_is_no_comment_is_a_command(found: Facts) -> None:
    for line in fix_lines(diagnose(found, RULES), "b:9092"):
        if line and not line.startswith("#"):
            tool, *words = shlex.split(line)
            assert tool in ("hongyan", "psql", "redis-cli", "kafka-configs.sh", "kafka-topics.sh")
            assert "`" not in line
            assert not [word for word in words if word.endswith(",")], line


def test_a_healthy_installation_is_one_line(hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(diagnose(facts(), RULES), monkeypatch, hongyan)
    assert text.split() == [str(len(RULES)), "rules", "hold", "(0.0", "s)"]


def test_a_wrong_producer_file_is_one_sentence(hongyan: Run, folder: Path) -> None:
    (folder / "shop.properties").write_text("acks\n")
    done = hongyan("doctor", "--producer", "shop.properties")
    assert (done.code, done.err) == (2, "--producer shop.properties: line 1: write KEY=VALUE")


def test_a_user_without_a_name_gets_the_result_and_it_is_kept_under_its_number(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("uid 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    make_ledger()
    text = shown(diagnose(facts(), RULES), monkeypatch, hongyan)
    assert "rules hold" in text
    with sqlite3.connect(folder / "hongyan.db") as database:
        (row,) = database.execute("SELECT person FROM doctor_runs")
    database.close()
    assert row[0] == f"uid {os.getuid()}@{socket.gethostname()}"


def test_a_cluster_that_is_away_is_said_once(folder: Path, hongyan: Run) -> None:
    (folder / "hongyan.toml").write_text(CONFIG.format(bootstrap="127.0.0.1:1", prefix="t"))
    make_ledger()
    shown = hongyan("doctor")
    assert shown.code == 1
    assert shown.out.count("did not answer") == 1
    assert "topic-replication" in shown.out
