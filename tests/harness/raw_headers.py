"""A producer whose header names are bytes: confluent_kafka takes only text, as do most clients."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Message

_P: Final = ctypes.c_void_p
_SIZE: Final = ctypes.c_size_t
_TEXT: Final = ctypes.c_char_p
_PRODUCER: Final = 0
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS = 0, 1, 3, 4, 5, 7, 10
"""rd_kafka_vtype_t in rdkafka.h."""
_COPY: Final = 2
_ERROR_BYTES: Final = 512
_FLUSH_MS: Final = 30_000
_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "rd_kafka_conf_new": (_P, []),
    "rd_kafka_conf_set": (ctypes.c_int, [_P, _TEXT, _TEXT, _TEXT, _SIZE]),
    "rd_kafka_new": (_P, [ctypes.c_int, _P, _TEXT, _SIZE]),
    "rd_kafka_headers_new": (_P, [_SIZE]),
    "rd_kafka_header_add": (ctypes.c_int, [_P, _TEXT, ctypes.c_ssize_t, _TEXT, ctypes.c_ssize_t]),
    "rd_kafka_flush": (ctypes.c_int, [_P, ctypes.c_int]),
    "rd_kafka_destroy": (None, [_P]),
}


def produce_named(
    bootstrap: str, topic: str, name: bytes, value: bytes, *, key: bytes = b"k", partition: int = 0
) -> None:
    """Produces one record with a header of this name, and waits for its acknowledgement."""
    library = _library()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    conf = library.rd_kafka_conf_new()
    for one in ((b"bootstrap.servers", bootstrap.encode()), (b"log_level", b"0")):
        assert library.rd_kafka_conf_set(conf, *one, error, _ERROR_BYTES) == 0, error.value
    client = _P(library.rd_kafka_new(_PRODUCER, conf, error, _ERROR_BYTES))
    assert client.value, error.value
    headers = _P(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, name, len(name), b"v", 1)
    refused = library.rd_kafka_producev(  # variadic: its arguments have no signature
        client,
        *(_TOPIC, _TEXT(topic.encode()), _PARTITION, ctypes.c_int32(partition), _FLAGS, _COPY),
        *(_VALUE, _TEXT(value), _SIZE(len(value)), _KEY, _TEXT(key), _SIZE(len(key))),
        *(_HEADERS, headers, _END),
    )
    assert refused == 0, refused
    assert library.rd_kafka_flush(client, _FLUSH_MS) == 0
    library.rd_kafka_destroy(client)


def _library() -> Any:
    """Returns the librdkafka that confluent_kafka has loaded."""
    assert Message is not None
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "librdkafka" in line))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
