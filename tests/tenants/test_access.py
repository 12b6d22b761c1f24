"""Tokens: shown once, kept as keyed digests, ended at once here and within seconds elsewhere."""

from __future__ import annotations

import hmac
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from jobsplatform.errors import Invalid, NotFound, Unauthenticated
from tenants import access
from tenants.models import ApiToken
from tests import cast
from tests.cast import OPS, acme

pytestmark = pytest.mark.django_db


def _token(**more: object) -> tuple[ApiToken, str]:
    options = {"tenant": acme(), "scopes": ["read"], "actor": OPS, **more}
    return access.create_token(**options)  # type: ignore[arg-type]


def _secret(text: str) -> str:
    return text.split("_", 2)[2]


def _knows(text: str) -> bool:
    access.forget()
    try:
        access.authenticate(f"Bearer {text}")
    except Unauthenticated:
        return False
    return True


def test_a_token_names_its_tenant_and_scopes() -> None:
    token, text = _token(scopes=["read", "work"], queues=["b", "a"])
    caller = access.authenticate(f"Bearer {text}")
    assert (caller.token_id, caller.scopes, caller.queue_names) == (
        token.pk,
        frozenset({"read", "work"}),
        frozenset({"a", "b"}),
    )
    assert caller.tenant is not None
    assert caller.tenant.slug == "acme"


def test_a_fleet_token_has_no_tenant() -> None:
    _, text = _token(tenant=None)
    assert access.authenticate(f"Bearer {text}").tenant is None


def test_the_scheme_s_case_does_not_matter() -> None:
    _, text = _token()
    assert access.authenticate(f"bearer {text}").public_id


def test_the_secret_is_nowhere_in_the_database() -> None:
    """S49."""
    _, text = _token()
    secret = _secret(text)
    tables = cast.read(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
        alias="default",
    )
    for (table,) in tables:
        dump = "\n".join(str(row) for row in cast.read(f"SELECT t::text FROM {table} t", alias="default"))
        assert text not in dump
        assert secret not in dump
        assert secret.encode().hex() not in dump


def test_the_digest_is_keyed(settings: object) -> None:
    token, text = _token()
    kept = bytes(ApiToken.objects.get(pk=token.pk).digest)
    settings.TOKEN_PEPPER = b"another pepper of thirty-two bytes"  # type: ignore[attr-defined]
    assert kept != access.digest(_secret(text))
    assert not _knows(text)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer jp_x_y",
        "Bearer jp_000000000000_" + "A" * 32,
        "Bearer \udcff",
        "x" * 9_999,
    ],
)
def test_a_bad_header_is_refused(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        access.authenticate(header)


def test_a_right_id_with_a_wrong_secret_is_refused() -> None:
    _, text = _token()
    flipped = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert not _knows(flipped)


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown id costs the same comparison as a known one."""
    compared: list[int] = []
    compare = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append(1)
        return compare(a, b)

    monkeypatch.setattr("tenants.access.hmac.compare_digest", counted)
    _, text = _token()
    access.authenticate(f"Bearer {text}")
    known = len(compared)
    with pytest.raises(Unauthenticated):
        access.authenticate("Bearer jp_000000000000_" + "A" * 32)
    assert len(compared) == 2 * known > 0


def test_a_revoked_token_is_refused_at_once() -> None:
    token, text = _token()
    access.authenticate(f"Bearer {text}")
    access.revoke_token(token, actor=OPS)
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {text}")


def test_a_revoked_token_is_refused_elsewhere_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = _token()
    access.authenticate(f"Bearer {text}")
    ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())  # another process did it
    moment = time.monotonic()
    monkeypatch.setattr("tenants.access.time.monotonic", lambda: moment + 5.01)
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {text}")


def test_an_expired_token_is_refused() -> None:
    _, text = _token(expires_at=timezone.now() - timedelta(seconds=1))
    assert not _knows(text)


def test_a_token_works_until_it_expires() -> None:
    _, text = _token(expires_at=timezone.now() + timedelta(minutes=1))
    assert _knows(text)


def test_a_remembered_token_is_not_used_past_its_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = _token(expires_at=timezone.now() + timedelta(minutes=1))
    access.authenticate(f"Bearer {text}")
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now())
    moment = time.monotonic()
    monkeypatch.setattr("tenants.access.time.monotonic", lambda: moment + 5.01)
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {text}")


def test_an_unknown_token_that_is_made_a_moment_later_works() -> None:
    """Absent tokens are never remembered."""
    token, text = _token()
    ApiToken.objects.filter(pk=token.pk).update(public_id="0" * 12)
    with pytest.raises(Unauthenticated):
        access.authenticate(f"Bearer {text}")
    ApiToken.objects.filter(pk=token.pk).update(public_id=token.public_id)
    assert access.authenticate(f"Bearer {text}").token_id == token.pk


def test_a_rotated_token_works_beside_the_old_for_a_while() -> None:
    token, old = _token()
    _, new = access.rotate_token(token, overlap_s=60, actor=OPS)
    assert (_knows(old), _knows(new)) == (True, True)


def test_a_rotation_without_overlap_ends_the_old_secret() -> None:
    token, old = _token()
    _, new = access.rotate_token(token, overlap_s=0, actor=OPS)
    assert (_knows(old), _knows(new)) == (False, True)


def test_a_rotated_token_keeps_its_id() -> None:
    token, old = _token()
    rotated, new = access.rotate_token(token, overlap_s=60, actor=OPS)
    assert rotated.public_id == token.public_id
    assert old.split("_")[:2] == new.split("_")[:2]


def test_a_revoked_token_is_not_rotated() -> None:
    token, _ = _token()
    access.revoke_token(token, actor=OPS)
    with pytest.raises(NotFound):
        access.rotate_token(token, overlap_s=60, actor=OPS)


def test_what_happens_to_tokens_is_audited_without_secrets() -> None:
    token, text = _token()
    _, new = access.rotate_token(token, overlap_s=60, actor=OPS)
    access.revoke_token(token, actor=OPS)
    access.revoke_token(token, actor=OPS)
    entries = cast.read(
        "SELECT action, t::text FROM tenants_auditentry t WHERE action LIKE 'token.%%' ORDER BY id",
        alias="default",
    )
    assert [entry[0] for entry in entries] == ["token.create", "token.rotate", "token.revoke"]
    for secret in (_secret(text), _secret(new)):
        assert all(secret not in entry[1] for entry in entries)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["read", "rule"]}, "/scopes/1"),
        ({"name": "x" * 201}, "/name"),
    ],
)
def test_a_token_without_sense_is_refused(fields: dict[str, object], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        _token(**fields)
    assert refused.value.errors[0].pointer == pointer


def test_use_is_noted_to_the_minute() -> None:
    token, text = _token()
    access.authenticate(f"Bearer {text}")
    first = ApiToken.objects.get(pk=token.pk).last_used_at
    access.forget()
    access.authenticate(f"Bearer {text}")
    assert first is not None
    assert ApiToken.objects.get(pk=token.pk).last_used_at == first
