"""The examples for producers in Python, Java and Go hand notifications to a real Kafka, and ours read them.

Each example runs as its head says, with the client that its language's users have: confluent-kafka,
Apache's kafka-clients, franz-go. The worker's decoder, the schema (by `jsonschema`) and the templates judge
the records.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from backends.kafka import clients
from backends.settings import KafkaSettings
from deploy.local.kafka import jar_folder
from deploy.local.stack import Stack
from message.envelope import check_arrival, decode
from message.schemas.envelope import envelope_schema
from message.vocabulary import lane_of_topic
from policy.templates.loading import load
from tests.foreign.judges_folder import judges_folder
from tests.harness.ground import fresh_topics
from tests.harness.notifications import now_ms
from tests.harness.waiting import await_
from tests.harness.wire import Wire
from tests.services import give_up

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PARTITIONS: Final = 12
TOPICS: Final = ("dispatch.sms.verification", "dispatch.email.notice")
PERSON: Final = ("+8613800000001", "ann@example.com")
GO: Final = (1, 24)


def python() -> list[str]:
    """The command of the Python example."""
    return [sys.executable, str(EXAMPLES / "python" / "send.py")]


def java() -> list[str]:
    """The command of the Java example: one file, with the jars of the local stack."""
    if shutil.which("javac") is None:
        give_up("no Java compiler is installed")
    source = EXAMPLES / "java" / "src" / "main" / "java" / "Send.java"
    return ["java", "-cp", f"{jar_folder()}/*", str(source)]


def go() -> list[str]:
    """The command of the Go example, built once for each of its versions."""
    if not os.environ.get("HONGYAN_TEST_GO"):
        pytest.skip(
            "HONGYAN_TEST_GO is not set: the build fetches modules from a proxy of Go's own"
        )
    if shutil.which("go") is None or _go_version() < GO:
        pytest.skip(f"Go {GO[0]}.{GO[1]} or newer is not installed")
    source = EXAMPLES / "go"
    texts = b"".join((source / name).read_bytes() for name in ("go.mod", "go.sum", "send.go"))
    with judges_folder("go-send") as folder:
        program = folder / f"go-send-{sha256(texts).hexdigest()[:12]}"
        if not program.exists():
            command = ["go", "build", "-o", str(program), "."]
            subprocess.run(command, cwd=source, check=True, capture_output=True)
    return [str(program)]


def _go_version() -> tuple[int, ...]:
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True)
    return tuple(int(part) for part in said.stdout.strip().removeprefix("go").split(".")[:2])


def run(command: Sequence[str], settings: KafkaSettings, *arguments: str) -> list[str]:
    """Runs an example against this Kafka. Returns the ids that it printed."""
    environ: Mapping[str, str] = {
        **os.environ,
        "HONGYAN_KAFKA__BOOTSTRAP": settings.bootstrap,
        "HONGYAN_KAFKA__TOPIC_PREFIX": settings.topic_prefix,
    }
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env=environ,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def partition_of_ours(settings: KafkaSettings, topic: str, key: bytes) -> int:
    """Returns the partition that our own producer chooses for a key."""
    found: list[int] = []

    def delivered(error: clients.KafkaError | None, message: clients.Message) -> None:
        assert error is None, error
        found.append(message.partition() or 0)

    producer = clients.producer(settings)
    producer.produce(topic, key=key, value=b"{}", on_delivery=delivered)
    producer.flush(30)
    return found[0]


@pytest.mark.stack
@pytest.mark.parametrize(
    "language",
    ["python", "java", pytest.param("go", marks=pytest.mark.timeout(600))],  # the first build
)
def test_the_worker_reads_what_an_example_wrote(stack: Stack, language: str) -> None:
    command = {"python": python, "java": java, "go": go}[language]()
    with fresh_topics(stack.layout.bootstrap) as prefix:
        settings = KafkaSettings(bootstrap=stack.layout.bootstrap, topic_prefix=prefix)
        wire = Wire(settings.bootstrap, prefix, "examples")
        for name in TOPICS:
            wire.make_topic(f"{prefix}.{name}", PARTITIONS)
        ids = run(command, settings, *PERSON)
        records = [record for name in TOPICS for record in read(settings, f"{prefix}.{name}")]
        notifications = [decode(record.value()) for record in records]
        assert [one.id for one in notifications] == ids
        assert [one.receivers for one in notifications] == [[one] for one in PERSON]
        templates, schema = load(EXAMPLES / "templates.toml"), envelope_schema()
        for record, one in zip(records, notifications, strict=True):
            lane = lane_of_topic(record.topic() or "", prefix)
            assert lane is not None
            check_arrival(one, lane, now_ms())
            Draft202012Validator(schema).validate(json.loads(record.value() or b""))
            assert templates.render(one) is not None
            assert record.key() == one.kafka_key.encode()
            assert record.headers() == [("hongyan-id", one.id.encode())]
            chosen = partition_of_ours(settings, record.topic() or "", one.kafka_key.encode())
            assert chosen == record.partition()


def read(settings: KafkaSettings, topic: str) -> list[clients.Message]:
    """Returns the one record of a topic."""
    member = clients.consumer(
        KafkaSettings(bootstrap=settings.bootstrap, group_id=f"{topic}-reader"), protocol="classic"
    )
    member.subscribe([topic])
    found: list[clients.Message] = []

    def polled() -> bool:
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
        return bool(found)

    await_(polled, what=f"a record of {topic}")
    member.close()
    return found


def test_the_examples_templates_are_good() -> None:
    names = {template.name for template in load(EXAMPLES / "templates.toml")}
    assert names == {"login-code", "order-paid"}
