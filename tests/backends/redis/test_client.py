"""Clients of Redis before they connect, and after a failover."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from backends.redis.client import RedisAway, RedisStore, connect
from backends.settings import RedisSettings
from tests.harness.proxy import Proxy
from tests.harness.waiting import await_


@pytest.mark.parametrize(
    "url", ["redis://:s3cret/x@h:6379/0", "redis://:s3cret[x@h:6379/0", "redis://h:s3cret"]
)
def test_a_url_that_cannot_be_read_says_so_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="port is no number") as caught:
        connect(RedisSettings(url=url))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_password_may_be_quoted() -> None:
    client = connect(RedisSettings(url="redis://:s3cret%2Fx@h:6379/0"))
    assert client.connection_pool.connection_kwargs["password"] == "s3cret/x"


# -- failover --


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Yields the port of a server of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--dir", str(folder), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            await_(lambda: answers(port), what="the server answers")
            yield port
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        return bool(redis.Redis(port=port).ping())
    except redis.ConnectionError:
        return False


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server here")
def test_a_connection_to_a_former_master_is_replaced_after_a_failover(tmp_path: Path) -> None:
    with server(tmp_path) as first, server(tmp_path) as second, Proxy("127.0.0.1", first) as name:
        store = RedisStore(RedisSettings(url=f"redis://127.0.0.1:{name.port}/0", timeout_ms=5_000))
        store.set(["a"], [b"1"], 60_000)
        # The name leads to the second server from now on; the open connection stays with the first.
        name.lead_to("127.0.0.1", second)
        redis.Redis(port=first).replicaof("127.0.0.1", str(second))
        with pytest.raises(RedisAway, match="read only replica"):
            store.set(["b"], [b"1"], 60_000)
        store.set(["b"], [b"1"], 60_000)
        assert redis.Redis(port=second).get("b") == b"1"
        store.close()
