"""What a refused commit changes about the next one. The rest: test_source.py."""

from __future__ import annotations

from dispatcher.kafka.offset_metadata import METADATA_LIMIT
from tests.dispatcher.fakes import Bench, KafkaError, message


def test_metadata_that_a_broker_finds_too_large_is_halved_until_it_fits() -> None:
    bench = Bench(max_records=10_000)
    bench.assign(0)
    bench.step(*(message(offset) for offset in range(4_000)))
    bench.done.put(bench.inbox.records[1::2])
    bench.step()
    sizes = [_size(bench)]
    for _ in range(2):
        bench.answer_commit(KafkaError("OFFSET_METADATA_TOO_LARGE"))
        bench.step()
        sizes.append(_size(bench))
    assert METADATA_LIMIT // 2 < sizes[0] <= METADATA_LIMIT
    assert METADATA_LIMIT // 4 < sizes[1] <= METADATA_LIMIT // 2
    assert METADATA_LIMIT // 8 < sizes[2] <= METADATA_LIMIT // 4


def _size(bench: Bench) -> int:
    return len(bench.consumer.commits[-1][0].metadata)
