"""S51: which addresses may be sent to, as text and once resolved."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.posting import target
from jobqueue.posting.target import Refused, Target, Unresolved

REFUSED = [
    "http://example.org/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://sub.localhost/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fe80::1]/",
    "https://[fec0::1]/",
    "https://[fd00::1]/",
    "https://[ff02::1]/",
    "https://169.254.169.254/latest/meta-data",
    "https://10.0.0.8/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://0.0.0.0/",
    "https://224.0.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://example.127/",
    "https://user@example.org/",
    "https://user:secret@example.org/",
    "https://@example.org/",
    "https://example.org:5432/",
    "https://example.org:80/",
    "https://example.org:0/",
    "https://example.org:99999/",
    "https://example.org:x/",
    "https://example.org#@127.0.0.1/",
    "https://example.org/#part",
    "https://example.org\\@127.0.0.1/",
    "https://exa mple.org/",
    "https://example.org/\r\nHost: evil",
    "https://example.org/\u2028",
    "https://пример.рф/",
    "https://-example.org/",
    "https://example..org/",
    "https://intranet/",
    "https:///path",
    "https:example.org",
    "//example.org/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "HTTPS//example.org",
    "",
    "https://example.org/" + "a" * 2_048,
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_may_be_ours_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        target.parse(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org", Target("https", "example.org", 443, "/")),
        ("https://Hooks.Example.ORG./in?a=1", Target("https", "hooks.example.org", 443, "/in?a=1")),
        ("https://example.org:8443/x", Target("https", "example.org", 8443, "/x")),
        ("https://xn--e1afmkfd.xn--p1ai/", Target("https", "xn--e1afmkfd.xn--p1ai", 443, "/")),
        ("https://9.9.9.9/", Target("https", "9.9.9.9", 443, "/")),
        ("https://[2620:fe::fe]/", Target("https", "2620:fe::fe", 443, "/")),
    ],
)
def test_a_public_https_address_is_taken_apart(url: str, expected: Target) -> None:
    assert target.parse(url) == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/", "http://localhost:80/", "https://[::1]:9443/"])
def test_this_machine_is_open_to_development_alone(url: str) -> None:
    assert target.parse(url, allow_loopback=True).path == "/"
    with pytest.raises(Refused):
        target.parse(url)


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://example.org/", "https://169.254.169.254/"])
def test_development_opens_no_other_private_address(url: str) -> None:
    with pytest.raises(Refused):
        target.parse(url, allow_loopback=True)


@given(st.text(max_size=60))
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    for url in (text, f"https://{text}/", f"https://example.org/{text}"):
        try:
            found = target.parse(url)
        except Refused:
            continue
        assert found.scheme == "https"
        assert found.port in target.PORTS


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_every_ipv6_dress(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    translated = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    assert target.is_public(mapped) == target.is_public(address)
    assert target.is_public(translated) <= target.is_public(address)


def _names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let each question about a name have the next answer; returns the questions."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers[len(asked) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


PUBLIC = Target("https", "hooks.example.org", 443, "/")


def test_a_name_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S51: a second answer, private, has nobody who asks for it."""
    asked = _names(monkeypatch, ["9.9.9.9"], ["127.0.0.1"])
    assert target.resolve(PUBLIC) == ["9.9.9.9"]
    assert asked == ["hooks.example.org"]


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_a_name_with_one_private_address_is_refused_whole(
    monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    _names(monkeypatch, ["9.9.9.9", private])
    with pytest.raises(Refused):
        target.resolve(PUBLIC)


def test_a_public_name_never_leads_to_this_machine_in_development_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _names(monkeypatch, ["127.0.0.1"])
    with pytest.raises(Refused):
        target.resolve(PUBLIC, allow_loopback=True)


def test_a_name_without_an_address_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(Unresolved):
        target.resolve(PUBLIC)


def test_a_resolver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    held = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: held.wait(30) and [])
    monkeypatch.setattr(target, "RESOLVE_SECONDS_MAX", 0.1)
    with pytest.raises(Unresolved):
        target.resolve(PUBLIC)
    held.set()
