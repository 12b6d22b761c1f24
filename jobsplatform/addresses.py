"""Reads addresses of databases: one URL, with several hosts where a cluster fails over, or a list of them."""

from __future__ import annotations

import re
from typing import Any

import environ

BACKEND = "jobsplatform.postgresql"
_DJANGOS = "django.db.backends.postgresql"

# `postgresql://user:password@host1:5432,host2:5433/name?options`: libpq takes several hosts, Python's URLs do not.
_HOSTS = re.compile(r"(?P<before>[a-z0-9+]+://(?:[^@/?]*@)?)(?P<hosts>[^/?@]+)(?P<after>.*)", re.DOTALL)


def split(text: str) -> list[str]:
    """The elements of a list with commas; a comma between the hosts of one URL separates nothing."""
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if found and _is_open(found[-1]):
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found


def _is_open(place: str) -> bool:
    """Whether a URL ends among its hosts."""
    _, scheme, rest = place.partition("://")
    return bool(scheme) and "/" not in rest and "?" not in rest


def entry(url: str) -> dict[str, Any]:
    """What Django's DATABASES says of a URL; several hosts are told with their ports, in their order."""
    match = _HOSTS.fullmatch(url)
    hosts = match["hosts"].split(",") if match else []
    if match is None or len(hosts) < 2:
        return _read(url)
    read = _read(f"{match['before']}{hosts[0]}{match['after']}")
    places = [_host_and_port(host) for host in hosts]
    return {
        **read,
        "HOST": ",".join(host for host, _ in places),
        "PORT": ",".join(port for _, port in places),
    }


def _read(url: str) -> dict[str, Any]:
    """Django's own reading, with our backend in the place of its PostgreSQL's; others are refused by a check."""
    read = dict(environ.Env.db_url_config(url))
    return {**read, "ENGINE": BACKEND if read.get("ENGINE") == _DJANGOS else read.get("ENGINE")}


def _host_and_port(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    return (host.strip("[]"), port) if colon and port.isdecimal() else (text.strip("[]"), "5432")
