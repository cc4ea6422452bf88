"""Publishers of the tests, on the in-process cluster unless a test asks for the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.publisher import Publisher


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as started:
        yield started


@pytest.fixture
def opened() -> Iterator[Callable[..., Publisher]]:
    """`opened(bootstrap, ...)` gives a publisher that is closed afterwards."""
    publishers: list[Publisher] = []

    def make(bootstrap: str, **changes: Any) -> Publisher:
        publishers.append(Publisher(bootstrap, **{"client_id": "tests", **changes}))
        return publishers[-1]

    yield make
    for publisher in publishers:
        publisher.close(0)
