"""`hongyan bench gateway`: single POSTs to a gateway, beside the same one that answers without producing.

Both are whole processes over the same database: keys, rates, checks and answers are the same. The twin's
publisher acknowledges at once. Rounds alternate, and the median of their ratios is the figure.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from backends.kafka.topics import Wish, apply
from backends.settings import KafkaSettings
from benchmarks.ground import Servers
from message.vocabulary import Lane
from tests.harness.business_side import new_api_token
from tests.harness.databases import fresh_ledger
from tests.harness.ground import fresh_topics

BAR: Final = 0.5
CLIENTS: Final = 32
VARIANTS: Final = ("produces", "answers_only")
RATIO: Final = "produces / answers_only"
LANE: Final = Lane("webhook", "notice")
_BODY: Final = {
    "channel": LANE.channel,
    "kind": LANE.kind,
    "receivers": ["receiver-1"],
    "content": {"text": "your parcel has left"},
}
_CONFIG: Final = """
allow_literal_secrets = true
[kafka]
bootstrap = "{bootstrap}"
topic_prefix = "{prefix}"
[database]
url = "{url}"
[trace]
kafka = false
database = false
[gateway]
listen = "127.0.0.1:0"
health_address = "127.0.0.1:0"
access_log = false
"""
_MAIN: Final = {
    "produces": "from hongyan.program import main; main()",
    "answers_only": "from benchmarks.gateway_twin import main; main()",
}


def measure(
    servers: Servers, *, rounds: int = 3, seconds: float = 5.0, say: Callable[[str], None]
) -> dict[str, Any]:
    """Returns medians of requests a second and p99, and the ratio."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    with ExitStack() as stack:
        url = stack.enter_context(fresh_ledger(servers.database_url))
        prefix = stack.enter_context(fresh_topics(servers.bootstrap))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        apply(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix), [LANE], Wish())
        config = folder / "hongyan.toml"
        config.write_text(_CONFIG.format(bootstrap=servers.bootstrap, prefix=prefix, url=url))
        token = new_api_token(url, ["send"])
        bases = {name: stack.enter_context(_gateway(_MAIN[name], config)) for name in VARIANTS}
        for number in range(rounds + 1):  # the first round warms both up
            for name in VARIANTS:
                one = asyncio.run(_load(bases[name], token, seconds if number else 1.0))
                say(f"round {number} {name}: {one['per_s']:.0f}/s, p99 {one['p99_ms']:.1f} ms")
                if number:
                    found[name].append(one)
    return _report(found)


def _report(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    medians = {
        name: {key: statistics.median(one[key] for one in some) for key in some[0]}
        for name, some in found.items()
    }
    pairs = zip(*(found[name] for name in VARIANTS), strict=True)
    ratio = statistics.median(ours["per_s"] / twin["per_s"] for ours, twin in pairs)
    held = {"ratio": RATIO, "median": ratio, "wanted": BAR, "holds": ratio >= BAR}
    return {"medians": medians, "ratios": [held]}


@contextmanager
def _gateway(main: str, config: Path) -> Iterator[str]:
    """Yields the address of a gateway of its own process."""
    process = subprocess.Popen(
        [sys.executable, "-c", main, "-c", str(config), "gateway"],
        stderr=subprocess.PIPE,
        text=True,
    )
    if process.stderr is None:
        raise RuntimeError("the gateway has no standard error")
    try:
        line = next(line for line in process.stderr if "gateway_started" in line)
        yield f"http://{json.loads(line)['address']}"
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


async def _load(base: str, token: str, seconds: float) -> dict[str, float]:
    """Asks from CLIENTS connections for that long."""
    until, times = time.monotonic() + seconds, list[float]()
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(limits=limits, headers=headers, timeout=30) as client:

        async def ask() -> None:
            while time.monotonic() < until:
                begun = time.monotonic()
                answer = await client.post(f"{base}/v1/notifications", json=_BODY)
                if answer.status_code != httpx.codes.ACCEPTED:
                    raise RuntimeError(f"{answer.status_code}: {answer.text}")
                times.append(time.monotonic() - begun)

        await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    times.sort()
    return {"per_s": len(times) / seconds, "p99_ms": times[int(len(times) * 0.99)] * 1_000}
