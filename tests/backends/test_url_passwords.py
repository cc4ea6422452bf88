"""Passwords in URLs, as SQLAlchemy and redis-py read them."""

from __future__ import annotations

from time import process_time
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis import ConnectionPool
from sqlalchemy.engine import make_url

from backends.url_passwords import HIDDEN, has_password, hide_password, hide_passwords

SIGNS = "abcXYZ019/?#:@&=%.-_~ !'\"[]"
PASSWORDS = st.text(SIGNS, min_size=1, max_size=12)
MARK = "s3cretMARK"
"""No part of a URL around the password."""
LONG = 1 << 20
LONG_S = 2.0
"""CPU time for a long text, of which a function in proportion to it needs a hundredth."""


@given(PASSWORDS.filter(lambda text: "@" not in text))
@example("Zm9v/YmFy")
def test_no_password_that_sqlalchemy_takes_is_shown(password: str) -> None:
    url = f"postgresql://hongyan:{password}@db:5432/hongyan"
    assert make_url(url).password == unquote(password)
    assert has_password(url)
    assert hide_password(url) == f"postgresql://hongyan:{HIDDEN}@db:5432/hongyan"


@given(st.text(SIGNS.replace("/", "").replace("?", "").replace("#", ""), max_size=12))
@example("p@ss")
def test_no_password_that_redis_takes_is_shown(around: str) -> None:
    url = f"redis://:{around}{MARK}@cache:6379/0"
    try:
        assert MARK in ConnectionPool.from_url(url).connection_kwargs["password"]
    except ValueError:  # brackets that urllib takes for an IPv6 address
        assert "[" in around or "]" in around
    assert has_password(url)
    assert hide_password(url) == f"redis://:{HIDDEN}@cache:6379/0"


@given(PASSWORDS.filter(lambda text: " " not in text))
@example("Zm9v/YmFy")
def test_no_password_stays_in_a_line(password: str) -> None:
    line = f"cannot reach postgresql://hongyan:{password}{MARK}@db/hongyan, tried 3 times"
    assert hide_passwords(line) == (
        f"cannot reach postgresql://hongyan:{HIDDEN}@db/hongyan, tried 3 times"
    )


@pytest.mark.parametrize(
    "url",
    [
        *(
            "sqlite:////var/lib/a:b@c.db",
            "postgresql://db:5432/hongyan",
            "postgresql://me@db/hongyan",
        ),
        *("redis://[::1]:6379/0", "postgresql://me@[::1]:5432/d", "postgresql://me:@db/d"),
        *("https://h/users/a@b.c", "postgresql://db/d?sslkey=/k.pem&passfile=/p", ""),
    ],
)
def test_a_url_without_a_password_stays_as_it_is(url: str) -> None:
    assert not has_password(url)
    assert hide_password(url) == hide_passwords(url) == url


@pytest.mark.parametrize(
    "option", ["password=x", "a=b&password=x", "sslpassword=x", "passwd=x", "oauth_client_secret=x"]
)
def test_a_password_may_be_an_option(option: str) -> None:
    assert has_password(f"postgresql://db/d?{option}")


def test_each_url_of_a_line_is_looked_at() -> None:
    line = "http://h:80/p https://a:b@c redis://:d/e@f a@b x://y"
    assert (
        hide_passwords(line) == f"http://h:80/p https://a:{HIDDEN}@c redis://:{HIDDEN}@f a@b x://y"
    )


@pytest.mark.parametrize("part", ["://", "://a:", "://a", "a://b:c@", "@", "a@b ://", "a:", "/"])
def test_a_long_text_costs_no_more_than_its_length(part: str) -> None:
    text = f"a@b {part * (LONG // len(part))}"
    begun = process_time()
    hide_passwords(text)
    hide_password(text)
    has_password(text)
    assert process_time() - begun < LONG_S
