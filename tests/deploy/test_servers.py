import struct
from pathlib import Path

import pytest

from deploy.local import kafka, postgres, probe
from deploy.local.layout import HOST, Layout
from deploy.local.mariadb import MariaDb, init_statements
from deploy.local.redis_server import Redis
from deploy.local.stack import Stack


def test_one_broker_keeps_one_copy(tmp_path: Path) -> None:
    made = kafka.server_properties(Layout(tmp_path, 20_000), 1)
    assert made["controller.quorum.voters"] == "1@127.0.0.1:20192"
    assert made["offsets.topic.replication.factor"] == "1"
    assert made["min.insync.replicas"] == "1"


def test_three_brokers_survive_the_loss_of_one(tmp_path: Path) -> None:
    made = kafka.server_properties(Layout(tmp_path, 20_000, 3), 2)
    copies = {value for key, value in made.items() if key.endswith("replication.factor")}
    in_sync = {v for k, v in made.items() if k.endswith(("min.isr", "min.insync.replicas"))}
    assert (copies, in_sync) == ({"3"}, {"2"})
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20093"
    assert len(made["controller.quorum.voters"].split(",")) == 3


def test_brokers_create_no_topics_unasked(tmp_path: Path) -> None:
    assert kafka.server_properties(Layout(tmp_path), 1)["auto.create.topics.enable"] == "false"


def test_data_of_one_and_of_three_brokers_lie_apart(tmp_path: Path) -> None:
    one, three = (kafka.Broker(Layout(tmp_path, brokers=n), 1) for n in (1, 3))
    assert one.folder != three.folder
    assert kafka.cluster_id(one.layout) != kafka.cluster_id(three.layout)


def test_cluster_id_is_one_that_kafka_takes(tmp_path: Path) -> None:
    for number in range(50):
        made = kafka.cluster_id(Layout(tmp_path / str(number)))
        assert len(made) == 22
        assert "-" not in made


def test_properties_are_a_line_each() -> None:
    assert kafka.render({"a": "1", "b.c": "x=y"}) == "a=1\nb.c=x=y\n"


def test_jars_are_cached_by_what_the_pom_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kafka, "POM", tmp_path / "pom.xml")
    (tmp_path / "pom.xml").write_text("one")
    before = kafka.jar_folder()
    (tmp_path / "pom.xml").write_text("two")
    assert kafka.jar_folder() != before
    assert before.parent == tmp_path / "hongyan"


def test_postgres_keeps_its_durability() -> None:
    made = postgres.settings(20_432)
    assert not {"fsync", "synchronous_commit", "full_page_writes"} & set(made)
    assert made["listen_addresses"] == HOST
    assert made["max_connections"] == "200"


def test_postgres_that_need_not_survive_the_machine_waits_for_no_disk(tmp_path: Path) -> None:
    command = postgres.Postgres(Layout(tmp_path, fsync=False)).command()
    assert "fsync=off" in command
    assert not [one for one in command if one.startswith(("synchronous_commit", "full_page"))]


def test_postgres_data_out_of_reach_is_found_again(tmp_path: Path) -> None:
    assert postgres.elsewhere(tmp_path) == postgres.elsewhere(tmp_path)
    assert postgres.elsewhere(tmp_path) != postgres.elsewhere(tmp_path / "other")


def test_redis_keeps_nothing_and_listens_on_loopback_alone(tmp_path: Path) -> None:
    command = Redis(Layout(tmp_path)).command()
    given = dict(zip(command[1::2], command[2::2], strict=True))
    assert given["--appendonly"] == "no"
    assert given["--save"] == ""
    assert given["--bind"] == HOST


def test_mariadb_keeps_its_durability_and_listens_on_loopback_alone(tmp_path: Path) -> None:
    made = MariaDb(Layout(tmp_path)).settings()
    assert made["innodb-flush-log-at-trx-commit"] == "1"
    assert made["bind-address"] == HOST
    assert all(f"@'{HOST}'" in line for line in init_statements().splitlines())


def test_mariadb_starts_only_when_asked_for(tmp_path: Path) -> None:
    stack = Stack(Layout(tmp_path))
    assert "mariadb" not in stack.names
    assert "mariadb" in stack.every_name
    assert "mariadb" not in {one.service for one in stack.status()}


def test_brokers_are_read_from_a_metadata_answer() -> None:
    host = b"127.0.0.1"
    one = struct.pack(">ih", 1, len(host)) + host + struct.pack(">ih", 19_092, -1)
    two = struct.pack(">ih", 2, len(host)) + host + struct.pack(">ih", 19_093, 1) + b"a"
    assert probe.brokers_in(struct.pack(">iii", 1, 0, 2) + one + two) == {1, 2}


def test_a_server_that_is_not_there_does_not_answer() -> None:
    nobody = 1  # a port that no one uses
    assert probe.kafka_brokers(nobody) == set()
    assert not probe.redis_answers(nobody)
    assert not probe.mariadb_answers(nobody)
