"""Apache Kafka in KRaft mode as a plain JVM; its jars come from Maven Central, once per user."""

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deploy.local import probe, system
from deploy.local.errors import NoKafkaJars, StackError
from deploy.local.layout import HOST, Layout
from deploy.local.server import LocalServer
from deploy.local.system import Say

POM = Path(__file__).with_name("pom.xml")
FETCH_S = 600
MAX_HEAP = "384m"
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's first compiler alone; the second pays for itself after minutes."""


class Broker(LocalServer):
    """One node, broker and controller in one."""

    programs = ("java",)
    ready_s = 90.0

    def __init__(self, layout: Layout, number: int, *, brief: bool = False) -> None:
        """A `brief` one lives for a test or two: to optimise its code costs more than it brings."""
        super().__init__(layout, f"kafka-{number}", layout.kafka_port(number))
        self.number = number
        self._brief = brief
        self.ready_s = self.ready_s * layout.brokers  # those that start together share the cores

    @property
    def ports(self) -> list[int]:
        return [self.port, self.layout.controller_port(self.number)]

    @property
    def folder(self) -> Path:
        # A node of one and a node of three hold different clusters' data.
        return self.layout.root / f"kafka-of-{self.layout.brokers}" / str(self.number)

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _logging(self) -> Path:
        return self.folder / "log4j2.properties"

    def prepare(self, say: Say) -> None:
        jars(say, self.layout.logs)
        super().prepare(say)
        self._config.write_text(render(server_properties(self.layout, self.number)))
        self._logging.write_text(render(LOGGING))
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id(self.layout)]
        done = subprocess.run(
            [*self._java("64m", brief=True), *tool, "-c", str(self._config)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StackError(f"Kafka could not format {self.folder}: {done.stderr.strip()}")

    def command(self) -> list[str]:
        return [*self._java(MAX_HEAP, brief=self._brief), "kafka.Kafka", str(self._config)]

    def _java(self, heap: str, *, brief: bool) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        # The serial collector: less memory, and a small heap makes its pauses short.
        heap_options = ["-Xms64m", f"-Xmx{heap}", "-XX:+UseSerialGC"]
        compiler = [FIRST_COMPILER] if brief else []
        return ["java", *heap_options, *compiler, logging, "-cp", f"{jar_folder()}/*"]

    def ready(self) -> bool:
        return self.number in probe.kafka_brokers(self.port)


def server_properties(layout: Layout, number: int) -> dict[str, str]:
    """Kafka's defaults, but for the addresses, the copies, and waits that only cost a test time."""
    copies = str(layout.brokers)
    in_sync = "2" if layout.brokers > 1 else "1"
    voters = (f"{n}@{HOST}:{layout.controller_port(n)}" for n in layout.broker_ids)
    broker = f"PLAINTEXT://{HOST}:{layout.kafka_port(number)}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{broker},CONTROLLER://{HOST}:{layout.controller_port(number)}",
        "advertised.listeners": broker,
        "log.dirs": str(layout.root / f"kafka-of-{layout.brokers}" / str(number) / "data"),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # How soon a killed broker is missed, and may come back under its number; by default 9 s.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        # How soon a killed member is missed where the broker decides (KIP-848); by default 45 s.
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "3000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.min.session.timeout.ms": "3000",
        "log.cleaner.backoff.ms": "1000",
        "log.segment.bytes": str(64 * 1024 * 1024),
        "log.segment.delete.delay.ms": "1000",
    }


LOGGING = {
    "appender.out.type": "Console",
    "appender.out.name": "out",
    "appender.out.layout.type": "PatternLayout",
    "appender.out.layout.pattern": "[%d] %p %m (%c)%n",
    "rootLogger.level": "INFO",
    "rootLogger.appenderRef.out.ref": "out",
}


def render(properties: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def cluster_id(layout: Layout) -> str:
    """22 characters of URL-safe base64, as Kafka wants; the same for all nodes of a stack."""
    digest = hashlib.sha256(f"{layout.root}/{layout.brokers}".encode()).digest()
    text = base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")
    return text.replace("-", "A")  # at its head the tool would take it for an option


def jar_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hongyan" / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def jars(say: Say, logs: Path) -> None:
    """Fetch the jars unless they are there; whole or not at all."""
    target = jar_folder()
    if target.exists():
        return
    system.need(["maven"], say)
    say("kafka: fetching its jars from Maven Central (44 MB, once)")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="fetching-", dir=target.parent))
    try:
        _fetch(draft, logs / "maven.log")
        if not target.exists():  # another stack may have been quicker
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch(folder: Path, log: Path) -> None:
    command = ["mvn", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=FETCH_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoKafkaJars(_no_jars(log)) from None
    if done.returncode:
        raise NoKafkaJars(_no_jars(log))


def _no_jars(log: Path) -> str:
    return (
        f"Kafka's jars could not be fetched from Maven Central ({log} says why); "
        "check the network and run this again."
    )
