"""Reads a topic from end to end, outside of any group and without commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from backends.kafka.clients import (
    AdminClient,
    Consumer,
    KafkaError,
    KafkaException,
    KafkaUnavailable,
    Message,
    TopicPartition,
    consumer,
    is_embedded,
)
from backends.settings import KafkaSettings

_ASK_S: Final = 10.0
_POLL_S: Final = 0.5
_ELECTION_S: Final = 5.0
"""Longest wait for a partition's leader: a new topic has none for a moment."""
_SILENCE_S: Final = 15.0
"""Time without a message, while some are missing, after which the broker counts as away."""
_PAUSE_S: Final = 0.2
_BATCH: Final = 500
_NEAR: Final = 500
"""Records between two wanted ones that are read rather than sought over."""
Place = tuple[str, int, int]
"""Topic, partition and offset."""
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NOT_THERE: Final = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)  # noqa: SLF001 - its name
_ELECTED: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def _no_pause() -> None:
    """Lets a reading go on."""


def read_topic(settings: KafkaSettings, topic: str, since_ms: int = 0) -> Iterator[Message]:
    """Yields the topic's records up to now and since `since_ms` (epoch milliseconds), in no order across
    partitions. Nothing for a topic that is not there. Raises KafkaUnavailable."""
    with closing(consumer(_alone(settings), protocol="classic")) as reader:
        try:
            bounds = _bounds(reader, topic, since_ms)
            reader.assign([TopicPartition(topic, p, start) for p, (start, _) in bounds.items()])
        except KafkaException as exc:
            raise KafkaUnavailable(f"{topic} cannot be read ({exc.args[0].str()})") from exc
        ends = {p: end for p, (start, end) in bounds.items() if start < end}
        yield from _until(reader, topic, ends)


def ends_of(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Returns the end of each partition: the offset of its next record. None for a topic that is not
    there. Raises KafkaUnavailable."""
    with closing(consumer(_alone(settings), protocol="classic")) as reader:
        try:
            return {partition: high for partition, (_, high) in _bounds(reader, topic, 0).items()}
        except KafkaException as exc:
            raise KafkaUnavailable(f"{topic} cannot be read ({exc.args[0].str()})") from exc


def read_from(
    settings: KafkaSettings,
    topic: str,
    starts: Mapping[int, int],
    until_ms: int,
    keep_going: Callable[[], None] = _no_pause,
) -> Iterator[Message]:
    """Yields the records from these offsets on, up to now, in each partition up to the first one at or
    after `until_ms`. A partition that `starts` does not name is read whole. `keep_going` is called before
    each poll, at least every half second while the broker is silent; it raises what shall end the reading.
    Raises KafkaUnavailable."""
    with closing(consumer(_alone(settings), protocol="classic")) as reader:
        try:
            wide, short = _bounds(reader, topic, 0), _bounds(reader, topic, until_ms)
            if not is_embedded(reader):  # it finds no offset by a time
                wide = {p: (low, min(high, short[p][0])) for p, (low, high) in wide.items()}
            ranges = {p: (max(low, starts.get(p, low)), high) for p, (low, high) in wide.items()}
            reader.assign([TopicPartition(topic, p, start) for p, (start, _) in ranges.items()])
        except KafkaException as exc:
            raise KafkaUnavailable(f"{topic} cannot be read ({exc.args[0].str()})") from exc
        ends = {p: end for p, (start, end) in ranges.items() if start < end}
        yield from _until(reader, topic, ends, keep_going)


def _alone(settings: KafkaSettings) -> KafkaSettings:
    """Returns the settings of a reader that is in no group of ours."""
    return msgspec.structs.replace(
        settings, group_id=f"{settings.group_id}-reader", group_instance_id=""
    )


def record_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> Message | None:
    """Returns the record at that place; None if there is none (any more). Raises KafkaUnavailable."""
    with closing(consumer(_alone(settings), protocol="classic")) as reader:
        try:
            low, high = _bounds(reader, topic, 0).get(partition, (0, 0))
            if not low <= offset < high:
                return None
            reader.assign([TopicPartition(topic, partition, offset)])
        except KafkaException as exc:
            raise KafkaUnavailable(f"{topic} cannot be read ({exc.args[0].str()})") from exc
        records = _until(reader, topic, {partition: offset + 1})
        return next((record for record in records if record.offset() == offset), None)


def records_at(settings: KafkaSettings, places: Iterable[Place]) -> dict[Place, Message]:
    """Returns the records at those places, without places that hold none (any more). Reads over what lies
    between two places that are near. Raises KafkaUnavailable."""
    wanted = set(places)
    found: dict[Place, Message] = {}
    if not wanted:
        return found
    with closing(consumer(_alone(settings), protocol="classic")) as reader:
        for topic in sorted({place[0] for place in wanted}):
            for record in _picked(reader, topic, wanted):
                place = (topic, record.partition(), record.offset())
                if place in wanted:
                    found[place] = record
    return found


def _picked(reader: Consumer, topic: str, wanted: Collection[Place]) -> Iterator[Message]:
    """Yields the records of these places, and others near them; each round reads one run of each
    partition."""
    try:
        bounds = _bounds(reader, topic, 0)
        runs = {
            partition: _runs(
                sorted(o for t, p, o in wanted if (t, p) == (topic, partition)), *of_log
            )
            for partition, of_log in bounds.items()
        }
        while any(runs.values()):
            round_ = {p: some.pop(0) for p, some in runs.items() if some}
            reader.assign([TopicPartition(topic, p, first) for p, (first, _) in round_.items()])
            yield from _until(reader, topic, {p: last + 1 for p, (_, last) in round_.items()})
    except KafkaException as exc:
        raise KafkaUnavailable(f"{topic} cannot be read ({exc.args[0].str()})") from exc


def _runs(offsets: Iterable[int], low: int, high: int) -> list[tuple[int, int]]:
    """Returns the first and last of each run of near offsets that the log still holds."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if not low <= offset < high:
            continue
        if runs and offset - runs[-1][1] <= _NEAR:
            runs[-1] = runs[-1][0], offset
        else:
            runs.append((offset, offset))
    return runs


def log_bounds(
    client: AdminClient, places: Iterable[tuple[str, int]], ask_s: float = _ASK_S
) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns the first offset and the end of each existing partition. Raises KafkaUnavailable."""
    wanted = [TopicPartition(topic, partition) for topic, partition in places]
    first = _listed(client, wanted, _EARLIEST, ask_s)
    ends = _listed(client, wanted, _LATEST, ask_s)
    return {place: (first[place], ends[place]) for place in first.keys() & ends.keys()}


def _listed(
    client: AdminClient, wanted: list[TopicPartition], spec: OffsetSpec, ask_s: float
) -> dict[tuple[str, int], int]:
    asked = client.list_offsets(dict.fromkeys(wanted, spec), request_timeout=ask_s)
    found = {}
    for place, answer in asked.items():
        try:
            found[place.topic, place.partition] = answer.result().offset
        except KafkaException as exc:
            if exc.args[0].code() not in _NOT_THERE:
                raise KafkaUnavailable(f"offsets are not listed ({exc.args[0].str()})") from exc
    return found


def _until(
    reader: Consumer,
    topic: str,
    ends: dict[int, int],
    keep_going: Callable[[], None] = _no_pause,
) -> Iterator[Message]:
    heard = time.monotonic()
    while ends:
        keep_going()
        for message in reader.consume(_BATCH, _POLL_S):
            if message.error() is None:
                heard = time.monotonic()
                partition, offset = message.partition(), message.offset()
                if partition in ends and offset is not None and offset < ends[partition]:
                    yield message
        # By position, since the last records of a partition may never reach a reader.
        for place in reader.position([TopicPartition(topic, p) for p in ends]):
            if place.offset >= ends[place.partition]:
                del ends[place.partition]
        if ends and time.monotonic() - heard > _SILENCE_S:
            raise KafkaUnavailable(f"{topic}: no broker gave the rest of it; try again")


def _bounds(reader: Consumer, topic: str, since_ms: int) -> dict[int, tuple[int, int]]:
    """Returns, by partition, the first offset wanted and the end. Waits for leaders that are being
    elected."""
    patiently = Retrying(
        retry=retry_if_exception(_is_election),
        wait=wait_fixed(_PAUSE_S),
        stop=stop_after_delay(_ELECTION_S),
        reraise=True,
    )
    return patiently(_bounds_now, reader, topic, since_ms)


def _is_election(exc: BaseException) -> bool:
    return isinstance(exc, KafkaException) and exc.args[0].code() in _ELECTED


def _bounds_now(reader: Consumer, topic: str, since_ms: int) -> dict[int, tuple[int, int]]:
    metadata = reader.list_topics(topic, timeout=_ASK_S).topics[topic]
    if metadata.error is not None:
        if metadata.error.code() in _NOT_THERE:
            return {}
        raise KafkaException(metadata.error)  # a leader is being elected, or we may not read it
    bounds = {}
    for partition in metadata.partitions:
        place = TopicPartition(topic, partition)
        low, high = reader.get_watermark_offsets(place, timeout=_ASK_S)
        bounds[partition] = (low, high)
    if not since_ms or is_embedded(reader):
        return bounds
    wanted = [TopicPartition(topic, partition, since_ms) for partition in bounds]
    for place in reader.offsets_for_times(wanted, timeout=_ASK_S):
        low, high = bounds[place.partition]
        bounds[place.partition] = (place.offset if place.offset >= 0 else high, high)
    return bounds
