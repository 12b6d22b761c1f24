"""Where `http.post` may send: https, a public address, port 443 or 8443, resolved once.

A tenant chooses the address and our worker sends: so nothing of our own network may be reachable. The name is judged
as text when the job is made, its addresses when it runs, and the connection goes to the addresses that were judged.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

URL_CHARS_MAX: Final = 2_048
PORTS: Final = frozenset({443, 8443})
RESOLVE_SECONDS_MAX: Final = 5.0

_PLAIN = re.compile(
    r"[!-\[\]-~]+"
).fullmatch  # visible ASCII without the backslash, which some parsers read as a slash
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?").fullmatch
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch  # what a C library would read as part of an address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """The address may never be sent to; the message says why."""


class Unresolved(Exception):
    """The name has no address at present."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that passed as text. `host` is lower case, an IPv6 address stands without its brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with its query, never empty


def parse(url: str, *, allow_loopback: bool = False) -> Target:
    """Judge a URL as text. With `allow_loopback`, http and any port of this machine's loopback pass too.

    Raises Refused.
    """
    if not isinstance(url, str) or not 0 < len(url) <= URL_CHARS_MAX or _PLAIN(url) is None:
        raise Refused(f"a URL is 1 to {URL_CHARS_MAX} visible ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("it is no URL") from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise Refused("a URL must not carry a user name or password")
    if parts.fragment or "#" in url:
        raise Refused("a fragment is never sent")
    host = (parts.hostname or "").removesuffix(".")
    local = allow_loopback and _is_loopback(host)
    _judge(parts.scheme, host, port, local=local)
    path = parts.path or "/"
    return Target(
        parts.scheme,
        host,
        port or (443 if parts.scheme == "https" else 80),
        f"{path}?{parts.query}" if parts.query else path,
    )


def _judge(scheme: str, host: str, port: int | None, *, local: bool) -> None:
    if scheme != "https" and not (local and scheme == "http"):
        raise Refused("only https is sent to")
    if port is not None and port not in PORTS and not local:
        raise Refused("only ports 443 and 8443 are sent to")
    address = _literal(host)
    if local:
        return
    if address is not None:
        if not is_public(address):
            raise Refused("only public addresses are sent to")
    elif not _is_public_name(host):
        raise Refused("the host is no public name")


def _literal(host: str) -> Address | None:
    """The address that the host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_public_name(host: str) -> bool:
    labels = host.split(".")
    if len(host) > 253 or len(labels) < 2 or any(_LABEL(label) is None for label in labels):
        return False
    # 127.1, 2130706433 and 0x7f.1 are addresses to some resolvers: a name's last label is never a number.
    return _NUMBER(labels[-1]) is None and labels[-1] not in ("localhost", "local", "internal")


def _is_loopback(host: str) -> bool:
    address = _literal(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def is_public(address: Address) -> bool:
    """Whether an address lies in the public internet; one that carries an IPv4 address is judged by that as well."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address.is_site_local:
            return False
        carried = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if carried is not None and not is_public(carried):
            return False
        if address.ipv4_mapped is not None:
            return True
    return address.is_global and not address.is_multicast and not address.is_reserved


def resolve(target: Target, *, allow_loopback: bool = False) -> list[str]:
    """The addresses to connect to, each judged. Asks once, for at most RESOLVE_SECONDS_MAX.

    Raises Refused when any of them is not public, Unresolved when there is none.
    """
    found = [ipaddress.ip_address(text) for text in _ask(target)]
    local = allow_loopback and _is_loopback(target.host)
    for address in found:
        if not (is_public(address) or (local and address.is_loopback)):
            raise Refused("the name leads to an address that is not public")
    return [str(address) for address in found]


def _ask(target: Target) -> Sequence[str]:
    """In a thread of its own: a resolver cannot be told when to give up."""
    answer: Future[Sequence[str]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(one[4][0]) for one in found)))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)

    Thread(target=ask, name="resolve", daemon=True).start()
    try:
        return answer.result(RESOLVE_SECONDS_MAX)
    except TimeoutError:
        raise Unresolved("the name was not resolved in time") from None
    except (OSError, UnicodeError):
        raise Unresolved("the name has no address") from None
