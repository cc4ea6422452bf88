"""Logging in to a mail server (RFC 4954): by one method, once a connection.

    a password   PLAIN (RFC 4616), else LOGIN, else CRAM-MD5 (RFC 2195): the first that the server offers
    a token      XOAUTH2 (https://developers.google.com/workspace/gmail/imap/xoauth2-protocol)

No other method follows one that failed: each is a try of the same password, and servers lock accounts after
a few. The session is over TLS or ends on this machine, so PLAIN shows the password to nobody else.
"""

from __future__ import annotations

import smtplib
from base64 import b64encode
from typing import Final

from channels.smtp_client.client import SmtpClient
from channels.smtp_client.mail_request import Login

_GO_ON: Final = 334
_CRAM: Final = "CRAM-MD5"
_BY_PASSWORD: Final = ("PLAIN", "LOGIN", _CRAM)
XOAUTH2: Final = "XOAUTH2"


def log_in(client: SmtpClient, login: Login) -> tuple[int, bytes]:
    """Returns the server's last reply; 235 is success. Raises SMTPException, also if no method fits."""
    offered = client.esmtp_features.get("auth", "").upper().split()
    if login.by_token:
        # Some servers know it and do not list it.
        return _by_token(client, login)
    method = next((one for one in _BY_PASSWORD if one in offered), "")
    if method == "PLAIN":
        return client.docmd("AUTH", f"PLAIN {_text(f'{chr(0)}{login.user}{chr(0)}', login)}")
    if method == "LOGIN":
        return _by_login(client, login)
    if method == _CRAM:
        return _by_cram(client, login)
    raise smtplib.SMTPNotSupportedError("the server offers no way of logging in that is known here")


def _by_login(client: SmtpClient, login: Login) -> tuple[int, bytes]:
    """Logs in by LOGIN, which is no standard: the server asks for the name, then for the password."""
    reply = client.docmd("AUTH", "LOGIN")
    if reply[0] == _GO_ON:
        reply = client.docmd(b64encode(login.user.encode()).decode())
    if reply[0] == _GO_ON:
        reply = client.docmd(_text("", login))
    return reply


def _by_cram(client: SmtpClient, login: Login) -> tuple[int, bytes]:
    client.user, client.password = login.user, login.password.reveal()
    try:
        return client.auth(_CRAM, client.auth_cram_md5)
    except smtplib.SMTPAuthenticationError as exc:
        error = exc.smtp_error
        return exc.smtp_code, error if isinstance(error, bytes) else error.encode()


def _by_token(client: SmtpClient, login: Login) -> tuple[int, bytes]:
    """Logs in by XOAUTH2. A refusal begins with 334 and its cause; the code comes after an empty line."""
    bearer = f"user={login.user}\x01auth=Bearer {login.password.reveal()}\x01\x01"
    reply = client.docmd("AUTH", f"{XOAUTH2} {b64encode(bearer.encode()).decode()}")
    return client.docmd("") if reply[0] == _GO_ON else reply


def _text(before: str, login: Login) -> str:
    return b64encode(f"{before}{login.password.reveal()}".encode()).decode()
