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


def test_one_answer_halves_the_metadata_once_whatever_the_number_of_its_partitions() -> None:
    bench = Bench(max_records=100_000)
    bench.assign(*range(12))
    for partition in range(12):
        bench.step(*(message(offset, partition=partition) for offset in range(4_000)))
    bench.done.put([one for one in bench.inbox.records if one.offset % 2])
    bench.step()
    bench.answer_commit(KafkaError("OFFSET_METADATA_TOO_LARGE"))
    bench.step()
    assert METADATA_LIMIT // 4 < _size(bench) <= METADATA_LIMIT // 2


def _size(bench: Bench) -> int:
    return len(bench.consumer.commits[-1][0].metadata)
