"""librdkafka's in-process cluster with a short first rebalance; its Python client cannot set that.

A new group waits 3 s for further members, as brokers do by default. That would be half of the start of
`hongyan dev`. So the library that confluent_kafka has loaded is called by ctypes. If it cannot be found,
the cluster comes from the Python client, with the long wait.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

REBALANCE_DELAY_MS: Final = 100
_PRODUCER: Final = 0
_OK: Final = 0
_ERROR_BYTES: Final = 512
_MAPS: Final = Path("/proc/self/maps")
_ASK_S: Final = 5.0
_P: Final = ctypes.c_void_p
_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "rd_kafka_conf_new": (_P, []),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        [_P, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "rd_kafka_new": (_P, [ctypes.c_int, _P, ctypes.c_char_p, ctypes.c_size_t]),
    "rd_kafka_handle_mock_cluster": (_P, [_P]),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, [_P]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_P, ctypes.c_int32]),
}
"""Result and arguments, as in rdkafka.h and rdkafka_mock.h."""


def hosted(brokers: int) -> tuple[str, object]:
    """Starts a cluster in this process. Returns its addresses, and the handle that keeps it alive."""
    library = _library()
    return _by_library(library, brokers) if library else _by_client(brokers)


def _library() -> Any:
    """Returns the loaded librdkafka; None if it is not found or lacks a function."""
    try:
        lines = _MAPS.read_text().splitlines()
        path = next(line.split()[-1] for line in lines if "librdkafka" in line)
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, StopIteration, AttributeError):
        return None
    return library


def _by_library(library: Any, brokers: int) -> tuple[str, object]:
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    conf = library.rd_kafka_conf_new()
    properties = {
        "bootstrap.servers": "embedded",
        "test.mock.num.brokers": str(brokers),
        "log_level": "0",
    }
    for key, value in properties.items():
        done = library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, _ERROR_BYTES)
        if done != _OK:
            return _by_client(brokers)
    handle = library.rd_kafka_new(_PRODUCER, conf, error, _ERROR_BYTES)
    cluster = library.rd_kafka_handle_mock_cluster(handle) if handle else None
    if not cluster:
        return _by_client(brokers)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, REBALANCE_DELAY_MS)
    return library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), handle


def _by_client(brokers: int) -> tuple[str, object]:
    client = Producer(
        {"bootstrap.servers": "embedded", "test.mock.num.brokers": brokers, "log_level": 0}
    )
    found = client.list_topics(timeout=_ASK_S).brokers.values()
    return ",".join(f"{b.host}:{b.port}" for b in found), client
