"""What a call costs under threads: over sockets, over libcurl's connections, and by httpx.Client.

    python -m benchmarks.transport_threads [--json] [--threads 1,100] [--latency-ms 0,10] [--rounds 5]

One call: build the request of a 300-byte notification as a channel does, POST it over a kept-alive
connection, read status and body. CPU is that of this process alone (time.process_time); the provider
(channels.simulator, without fsync) runs in another. The candidates take turns within each round, so
that a noisy machine disturbs them alike; each figure is the median of its rounds. Read the ratios.

It must be measured with many threads: alone, a thread never waits for the interpreter's lock, and
that is most of what sets the candidates apart (docs/decisions/021-socket-transport.md).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.transport import (
    BODY,
    HEADERS,
    TIMEOUT_S,
    MakeCall,
    httpx_client,
    measure,
    raw_socket,
)
from channels.channel import Failure
from channels.requests import post_json
from channels.simulator import Faults, spawn
from channels.transport import Transport

HTTPX, LIBCURL, SOCKETS, FLOOR = "httpx.Client", "ours, libcurl", "ours, sockets", "bare socket"
BAR = 0.75
"""What sockets may cost at most of libcurl's CPU, to be the default."""
CALLS = {1: 500, 100: 4_000}
"""A round. One thread waits out each call's latency by itself, so it makes fewer."""

Rounds = dict[str, list[tuple[float, float]]]


def ours(url: str, transport: Transport) -> MakeCall:
    prepared = httpx.URL(url)
    fields = [(b"Host", prepared.netloc), (b"User-Agent", b"hongyan"), *HEADERS[1:]]
    extensions = {"timeout": {"total": TIMEOUT_S}}

    def call() -> None:
        answer = transport.send(post_json(prepared, fields, BODY, extensions))
        assert not isinstance(answer, Failure), answer
        assert answer.status_code == 200, answer
        assert answer.content

    return lambda: call


CANDIDATES: dict[str, Callable[[str], MakeCall]] = {
    HTTPX: httpx_client,
    LIBCURL: lambda url: ours(url, Transport()),
    SOCKETS: lambda url: ours(url, Transport(sockets=True)),
    FLOOR: raw_socket,
}


def compare(threads: int, latency_ms: int, rounds: int) -> Rounds:
    """All rounds of all candidates at that many threads."""
    faults = Faults(latency_ms=str(latency_ms))
    calls = CALLS.get(threads, 40 * threads)
    found: Rounds = {name: [] for name in CANDIDATES}
    with (
        tempfile.TemporaryDirectory() as folder,
        spawn(folder, fsync=False, rules=[faults]) as provider,
    ):
        makers = {name: make(f"{provider.url}/hook") for name, make in CANDIDATES.items()}
        for _ in range(rounds):
            for name, make in makers.items():
                found[name].append(measure(make, threads, calls))
    return found


def result(threads: int, latency_ms: int, found: Rounds) -> dict[str, Any]:
    """One block of the output."""
    rows = {
        name: {
            "cpu_us": round(statistics.median(cpu for cpu, _ in pairs), 1),
            "per_s": round(statistics.median(per_s for _, per_s in pairs)),
            "rounds_cpu_us": [round(cpu) for cpu, _ in pairs],
        }
        for name, pairs in found.items()
    }
    return {
        "threads": threads,
        "latency_ms": latency_ms,
        "sockets_of_libcurl": _ratio(rows, LIBCURL),
        "sockets_of_httpx": _ratio(rows, HTTPX),
        "clients": rows,
    }


def _ratio(rows: dict[str, dict[str, Any]], other: str) -> float:
    ratio: float = rows[SOCKETS]["cpu_us"] / rows[other]["cpu_us"]
    return round(ratio, 3)


def show(block: dict[str, Any]) -> None:
    """The same for people."""
    title = (
        f"{block['threads']} threads, {block['latency_ms']} ms: "
        f"sockets / libcurl = {block['sockets_of_libcurl']}"
    )
    table = Table("client", "CPU µs a call", "calls/s", "rounds, CPU µs", title=title)
    for name, row in block["clients"].items():
        rounds = " ".join(str(cpu) for cpu in row["rounds_cpu_us"])
        table.add_row(name, str(row["cpu_us"]), f"{row['per_s']:,}", rounds)
    Console().print(table)


def main() -> int:
    """0 when sockets keep the bar wherever there are many threads, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", default="1,100")
    parser.add_argument("--latency-ms", default="0,10")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--switch-interval", type=float, default=sys.getswitchinterval())
    flags = parser.parse_args()
    sys.setswitchinterval(flags.switch_interval)
    blocks = []
    for threads in _numbers(flags.threads):
        for latency_ms in _numbers(flags.latency_ms):
            found = compare(threads, latency_ms, flags.rounds)
            blocks.append(result(threads, latency_ms, found))
            if not flags.json:
                show(blocks[-1])
    if flags.json:
        print(json.dumps(blocks, indent=2))
    many = [block for block in blocks if block["threads"] > 1]
    return 0 if all(block["sockets_of_libcurl"] <= BAR for block in many) else 1


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
