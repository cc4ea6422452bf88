"""Clients of Redis before they connect."""

import pytest

from backends.redis.client import connect
from backends.settings import RedisSettings


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
