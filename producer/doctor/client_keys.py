"""Keys of a producer's configuration that only Java's client knows, and keys that only librdkafka knows.

A librdkafka client refuses to start with a key that it does not know. Java's client warns of one.
"""

from __future__ import annotations

from typing import Final

ONLY_LIBRDKAFKA: Final = frozenset(
    {
        *(
            "metadata.broker.list",
            "client.software.name",
            "builtin.features",
            "plugin.library.paths",
        ),
        *("debug", "log_level", "log.queue", "log.thread.name", "log.connection.close"),
        *("statistics.interval.ms", "internal.termination.signal", "enable.random.seed"),
        *("broker.address.family", "broker.address.ttl", "broker.version.fallback"),
        *("api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms"),
        *("allow.auto.create.topics", "enable.sparse.connections", "topic.blacklist"),
        *("topic.metadata.refresh.interval.ms", "topic.metadata.refresh.fast.interval.ms"),
        *("topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.sparse"),
        *("topic.metadata.propagation.max.ms", "metadata.request.timeout.ms"),
        *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable"),
        *("socket.max.fails", "socket.send.buffer.bytes", "socket.receive.buffer.bytes"),
        *("reconnect.backoff.jitter.ms", "max.in.flight", "receive.message.max.bytes"),
        *("message.max.bytes", "message.copy.max.bytes", "message.timeout.ms"),
        *("message.send.max.retries", "request.required.acks", "queuing.strategy"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes", "queue.buffering.max.ms"),
        *("queue.buffering.backpressure.threshold", "sticky.partitioning.linger.ms"),
        *("partitioner", "batch.num.messages", "compression.codec", "compression.level"),
        *("delivery.report.only.error", "enable.gapless.guarantee"),
        *("sasl.username", "sasl.password", "sasl.mechanisms", "sasl.kerberos.principal"),
        *("sasl.kerberos.keytab", "sasl.oauthbearer.config", "sasl.oauthbearer.method"),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        *("enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.ca.certificate.stores", "ssl.crl.location"),
        *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"),
        *("ssl.curves.list", "ssl.sigalgs.list", "ssl.engine.location", "ssl.engine.id"),
    }
)
"""Of librdkafka 2.16."""
ONLY_JAVA: Final = frozenset(
    {
        *("key.serializer", "value.serializer", "interceptor.classes", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("auto.include.jmx.reporter", "security.providers", "metadata.max.idle.ms"),
        *("buffer.memory", "max.block.ms", "max.request.size"),
        *("send.buffer.bytes", "receive.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
        *("partitioner.class", "partitioner.ignore.keys", "partitioner.availability.timeout.ms"),
        *("partitioner.adaptive.partitioning.enable", "transaction.two.phase.commit.enable"),
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("sasl.jaas.config", "sasl.client.callback.handler.class", "sasl.login.class"),
        *("sasl.login.callback.handler.class", "sasl.kerberos.ticket.renew.jitter"),
        *("sasl.kerberos.ticket.renew.window.factor", "ssl.truststore.location"),
        *("ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates"),
        *("ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        *("ssl.protocol", "ssl.provider", "ssl.enabled.protocols", "ssl.engine.factory.class"),
        *("ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"),
        "ssl.secure.random.implementation",
    }
)
"""Of Java's client 4.0."""
