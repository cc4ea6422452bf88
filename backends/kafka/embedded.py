"""The embedded twin of Kafka: librdkafka's in-process cluster, in a process of its own.

    with EmbeddedKafka() as kafka:
        settings = KafkaSettings(bootstrap=kafka.bootstrap)

Produce, groups, commits and transactions work. Topics appear on first use with 4 partitions. There is no
CreateTopics, no topic configuration and no compaction. A partition keeps 5 MiB or 100,000 messages and
silently drops older ones. Good for a demo and for tests, never for a soak.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

from backends.kafka.clients import KafkaTrouble, KafkaUnavailable
from backends.kafka.mock_cluster import hosted

PARTITIONS: Final = 4
_READY_S = 15.0
_STOP_S = 5.0
_ASK_S = 5.0


class EmbeddedKafka:
    """Starts the cluster's process and knows its address. It reads our pipe, and so ends with us.

    It ignores an interrupt from the terminal, so that workers can still drain.
    """

    def __init__(self, *, brokers: int = 1, topics: Iterable[str] = ()) -> None:
        self.bootstrap = ""
        """`host:port,…`, once started."""
        self._command = [sys.executable, "-m", "backends.kafka.embedded", str(brokers), *topics]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Starts it and waits until it answers. Raises KafkaUnavailable. Idempotent."""
        if self._process is not None:
            return self
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        watchdog = threading.Timer(_READY_S, self._process.kill)
        watchdog.start()
        try:
            self.bootstrap = self._first_line(self._process)
        finally:
            watchdog.cancel()
        if not self.bootstrap:
            self.stop()
            raise KafkaUnavailable("the embedded Kafka did not start; see its output above")
        return self

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ends it and all its topics; idempotent, and safe before start."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes our end of the pipe, which is its signal to leave
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @staticmethod
    def _first_line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


def touch_topics(client: Producer, topics: Sequence[str]) -> None:
    """Makes topics by asking for them. Raises KafkaTrouble."""
    for topic in topics:
        try:
            client.list_topics(topic, timeout=_ASK_S)
        except KafkaException as exc:
            raise KafkaTrouble(f"the embedded Kafka did not make {topic}: {exc}") from exc


def host(brokers: int, topics: Sequence[str]) -> None:
    """Hosts a cluster, prints its address, and stays until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bootstrap, handle = hosted(brokers)
    touch_topics(Producer({"bootstrap.servers": bootstrap, "log_level": 0}), topics)
    print(bootstrap, flush=True)
    sys.stdin.read()
    del handle  # the cluster lived until here


if __name__ == "__main__":
    host(int(sys.argv[1]), sys.argv[2:])
