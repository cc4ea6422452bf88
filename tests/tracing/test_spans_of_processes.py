"""A real worker on the embedded Kafka: its deliveries arrive at a collector as spans."""

from __future__ import annotations

from pathlib import Path

from backends.kafka import clients as kafka
from backends.kafka.embedded import EmbeddedKafka
from backends.settings import load
from message.envelope import encode
from message.vocabulary import Lane
from tests.harness.databases import upgraded
from tests.harness.notifications import LANE, notification
from tests.harness.waiting import await_
from tests.harness.worker import WorkerProcess
from tests.tracing.collector import Collector, attributes_of
from tracing.spans import CALL, DELIVER

CONFIGURATION = """
[kafka]
bootstrap = "{bootstrap}"
[database]
url = "sqlite:///ledger.db"
[trace]
kafka = false
database = false
[telemetry]
otlp_endpoint = "{collector}"
service_name = "shop-worker"
[worker]
health_address = "127.0.0.1:0"
[accounts.main]
provider = "null"
"""
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_workers_delivery_continues_the_senders_trace(tmp_path: Path) -> None:
    topic = Lane(*LANE.split(".")).topic()
    with Collector() as collector, EmbeddedKafka(topics=[topic]) as broker:
        file = tmp_path / "hongyan.toml"
        file.write_text(
            CONFIGURATION.format(bootstrap=broker.bootstrap, collector=collector.endpoint)
        )
        settings = load(file, environ={})
        upgraded(settings)
        worker = WorkerProcess("w1", tmp_path, {"HONGYAN_CONFIG": str(file)}, lanes=[LANE])
        try:
            one = notification()
            client = kafka.producer(settings.kafka, client_id="shop")
            traceparent = f"00-{TRACE}-{PARENT}-01".encode()
            client.produce(topic, encode(one), one.id, headers=[("traceparent", traceparent)])
            assert client.flush(10) == 0
            await_(lambda: len(collector.spans) >= 2, what=f"two spans\n{worker.tail()}")
            assert worker.metric("trace_dropped") == 0
            assert worker.stop() == 0
        finally:
            worker.discard()
    deliver, call = sorted(collector.spans, key=lambda span: span.name, reverse=True)
    assert (deliver.name, call.name) == (DELIVER, CALL)
    assert {span.trace_id.hex() for span in (deliver, call)} == {TRACE}
    assert (deliver.parent_span_id.hex(), call.parent_span_id) == (PARENT, deliver.span_id)
    assert deliver.start_time_unix_nano <= call.start_time_unix_nano
    assert call.end_time_unix_nano <= deliver.end_time_unix_nano
    shown = attributes_of(deliver)
    assert shown["hongyan.message_id"] == one.id
    assert (shown["hongyan.state"], shown["hongyan.account"]) == ("SENT", "main")
    assert shown["hongyan.worker"] == "w1"
    assert one.receivers[0] not in str(shown)
