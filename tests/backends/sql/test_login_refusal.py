"""What is waited for and what is not, told by the server's own code and in any language."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from backends.sql.database import database_url
from backends.sql.login_refusal import refusal


def test_a_database_that_lets_us_in_refuses_nothing(database: str) -> None:
    assert refusal(database_url(database)) is None


def test_a_wrong_password_is_a_refusal(database: str) -> None:
    said = refusal(make_url(database).set(password="s3cret"))
    assert said == 'password authentication failed for user "hongyan"'


def test_a_missing_password_is_a_refusal(database: str) -> None:
    url = make_url(database)._replace(password=None)
    assert refusal(url) == "it wants a password, and there is none"


def test_a_name_that_is_not_there_is_a_refusal(database: str) -> None:
    assert refusal(make_url(database).set(database="nope")) == 'database "nope" does not exist'


def test_a_file_in_a_folder_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    assert refusal(database_url(f"sqlite:///{tmp_path}/none/a.db")) is not None
    assert refusal(database_url(f"sqlite:///{tmp_path}/a.db")) is None


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid"])
def test_a_server_that_is_away_refuses_nothing(host: str) -> None:
    assert refusal(database_url(f"postgresql://u:p@{host}/d")) is None


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("28P01", True),
        ("28000", True),
        ("3D000", True),
        ("42501", True),
        ("57P03", False),  # starting up
        ("53300", False),  # too many connections
        ("57P01", False),  # shutting down
        ("08P01", False),
    ],
)
def test_the_servers_code_decides_whatever_its_language(code: str, refused: bool) -> None:
    with server_that_says(code, "致命错误", "无法连接") as url:
        assert refusal(database_url(url)) == ("无法连接" if refused else None)


@contextmanager
def server_that_says(code: str, severity: str, message: str) -> Iterator[str]:
    """Answers every connection attempt with one error; gives its URL."""
    fields = {"S": severity, "V": "FATAL", "C": code, "M": message}
    body = b"".join(k.encode() + v.encode() + b"\0" for k, v in fields.items()) + b"\0"
    answer = b"E" + (len(body) + 4).to_bytes(4, "big") + body
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=_refuse, args=(listener, answer))
        serving.start()
        yield f"postgresql://u:p@127.0.0.1:{listener.getsockname()[1]}/d?sslmode=disable"
        serving.join(10)


def _refuse(listener: socket.socket, answer: bytes) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(4096)
        client.sendall(answer)
