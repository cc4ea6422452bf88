"""The console shows its requests by route at /metrics."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import closing
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from admin.metrics import ConsoleMetrics, timed
from admin.parts import ConsoleParts
from admin.process import run_console
from backends.settings import ConsoleSettings, DatabaseSettings, Settings
from tests.admin.conftest import served_with
from tests.harness.waiting import await_

pytestmark = pytest.mark.parametrize("parts", ["sqlite"], indirect=True)


def counted(metrics: ConsoleMetrics, route: str, status: int) -> float | None:
    labels = {"route": route, "status": str(status)}
    return metrics.registry.get_sample_value("hongyan_console_requests_total", labels)


def seconds(metrics: ConsoleMetrics, route: str, name: str = "count") -> float | None:
    return metrics.registry.get_sample_value(
        f"hongyan_console_request_seconds_{name}", {"route": route}
    )


def routes(metrics: ConsoleMetrics) -> set[str]:
    return {
        sample.labels["route"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if "route" in sample.labels
    }


def test_answers_are_counted_and_timed_by_route(parts: ConsoleParts) -> None:
    metrics = ConsoleMetrics()
    clock = iter((1.0, 1.25, 2.0, 2.25, 3.0, 3.5, 4.0, 4.25))
    app: Any = timed(served_with(parts), metrics, monotonic=lambda: next(clock))
    with TestClient(app) as client:
        assert client.get("/login").status_code == 200
        assert client.get("/deliveries/abc", follow_redirects=False).status_code == 303
        assert client.get("/no/such/page", follow_redirects=False).status_code in (303, 404)
        client.request("BREW", "/login")
    assert counted(metrics, "GET /login", 200) == 1
    assert seconds(metrics, "GET /login") == 1
    assert seconds(metrics, "GET /login", "sum") == pytest.approx(0.25)
    (delivery,) = (one for one in routes(metrics) if one.startswith("GET /deliveries"))
    assert "abc" not in delivery, "a label holds no key of a delivery"
    assert seconds(metrics, "GET /{rest}") == 1, "paths that are no page share one label"
    assert seconds(metrics, "none") == 1, "methods of strangers share one label"


def test_a_live_stream_is_counted_but_not_timed(parts: ConsoleParts) -> None:
    metrics = ConsoleMetrics()
    app: Any = timed(served_with(parts), metrics)
    with TestClient(app) as client:
        client.get("/live/overview", follow_redirects=False)
    (route,) = routes(metrics)
    assert route == "GET /live/{name}"
    assert seconds(metrics, route) is None


def free_address() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_the_process_shows_them(parts: ConsoleParts) -> None:
    url = parts.databases.primary.url.render_as_string(hide_password=False)
    health = free_address()
    console = ConsoleSettings(secret="s" * 32, health_address=health)
    settings = Settings(database=DatabaseSettings(url=url), console=console)
    stop, addresses = threading.Event(), list[str]()
    thread = threading.Thread(
        target=run_console, args=(settings, stop, "127.0.0.1:0", addresses.append)
    )
    thread.start()
    try:
        await_(lambda: bool(addresses), what="the console listens")
        with httpx.Client(trust_env=False) as client:
            await_(lambda: _answers(client, f"http://{addresses[0]}/login"), what="it answers")
            shown = client.get(f"http://{health}/metrics").text
    finally:
        stop.set()
        thread.join(20)
    assert re.search(
        r'^hongyan_console_requests_total\{route="GET /login",status="200"\} 1.0$', shown, re.M
    )
    assert 'hongyan_console_request_seconds_bucket{le="0.05",route="GET /login"}' in shown


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False
