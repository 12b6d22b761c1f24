"""The secrets that a tenant's outgoing calls are signed with."""

from __future__ import annotations

import base64

import pytest

from tenants import signing
from tenants.models import SigningSecret
from tests import cast
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    made = signing.headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made["Webhook-Signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_tenants_have_different_secrets() -> None:
    assert signing.secrets_of(cast.acme().pk) != signing.secrets_of(cast.globex().pk)


def test_after_a_rotation_calls_carry_both_signatures_the_new_one_first() -> None:
    [before] = signing.secrets_of(cast.acme().pk)
    text = signing.rotate("acme", actor="test")
    now = signing.secrets_of(cast.acme().pk)
    assert (signing.as_text(now[0]), now[1:]) == (text, [before])


def test_without_an_overlap_the_old_secret_ends_at_once() -> None:
    cast.acme()
    signing.rotate("acme", actor="test")
    text = signing.rotate("acme", overlap_s=0, actor="test")
    valid = [signing.as_text(secret) for secret in signing.secrets_of(cast.acme().pk)]
    assert valid[0] == text


def test_a_second_rotation_does_not_lengthen_the_first_ones_overlap() -> None:
    tenant = cast.acme()
    signing.rotate("acme", overlap_s=60, actor="test")
    ends = SigningSecret.objects.get(tenant=tenant, number=1).ends_at
    signing.rotate("acme", overlap_s=3_600, actor="test")
    assert SigningSecret.objects.get(tenant=tenant, number=1).ends_at == ends


@pytest.mark.parametrize("verb", ["reveal", "rotate"])
def test_showing_and_rotating_are_audited(verb: str) -> None:
    cast.acme()
    getattr(signing, verb)("acme", actor="test")
    assert cast.audited(f"signing_secret.{verb}", alias="default") == 1


@pytest.mark.parametrize("verb", ["show", "rotate"])
def test_a_reason_is_kept_and_bounded(verb: str) -> None:
    cast.acme()
    assert "at most 2,000" in refused("signingsecret", verb, "acme", "--reason", "x" * 2_001)
    assert run("signingsecret", verb, "acme", "--reason", "leaked").code == 0
    stored = cast.read(
        "SELECT reason FROM tenants_auditentry WHERE starts_with(action, 'signing_secret.')", alias="default"
    )
    assert stored == [("leaked",)]


def test_no_secret_is_stored() -> None:
    text = signing.reveal(cast.acme().slug, actor="test")
    stored = cast.read("SELECT string_agg(details::text, '') FROM tenants_auditentry", alias="default")
    assert text not in str(stored)
