"""CSRF tokens: an HMAC under the session's own token, with a nonce, so that no two pages hold the same.

The session's token is known to the browser's cookie alone; another site can neither read it nor the page.
Before a login the token of a cookie without a session takes its place. The browser's own word
(`Sec-Fetch-Site`, `Origin`) is checked, too.

A token comes as a field of its form. htmx keeps the attributes of the first page's body, so a header of it
would have the token of a session that may have ended.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

FIELD = "csrf"
_PORTS = {"https": ":443", "http": ":80"}


def csrf_token(cookie: str) -> str:
    """Returns a new token for a page; empty without a cookie."""
    if not cookie:
        return ""
    nonce = secrets.token_hex(8)
    return nonce + _mac(cookie, nonce)


def csrf_fits(cookie: str, token: str) -> bool:
    """Returns whether the token was made for this cookie."""
    nonce, mac = token[:16], token[16:]
    return bool(cookie) and hmac.compare_digest(mac.encode(), _mac(cookie, nonce).encode())


def is_own_site(headers: Mapping[str, str], host: str) -> bool:
    """Returns whether the browser says that the request comes from our own pages, or says nothing."""
    site = headers.get("sec-fetch-site", "")
    if site and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin", "")
    try:
        return not origin or urlsplit(origin).netloc == host
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Returns the host of an address as browsers name it in `Origin`: in lower case, and without the port
    that its scheme means. Empty without an address."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].lower()
    return host.removesuffix(_PORTS.get(scheme, ""))


def _mac(cookie: str, nonce: str) -> str:
    return hmac.new(cookie.encode(), b"csrf " + nonce.encode(), "sha256").hexdigest()
