"""What the payload of an `http.post` job may hold; judged when the job is made and again when it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from jobqueue.limits import PAYLOAD_BYTES_MAX
from jobqueue.posting import target
from jobqueue.posting.target import Target
from jobsplatform import strictjson
from jobsplatform.errors import FieldError, Invalid, TooLarge
from jobsplatform.fields import Fault, Field, Json, Number, Schema
from jobsplatform.shapes import Shape

KIND: Final = "http.post"
HEADERS_MAX: Final = 20
TIMEOUT_SECONDS: Final = 30.0
TIMEOUT_SECONDS_MAX: Final = 300.0

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}").fullmatch
_HEADER_VALUE = re.compile(r"[ -~]{0,1024}").fullmatch
# Ours to set, or such that they change where the request goes or how long it is.
_OURS = re.compile(
    r"host|connection|content-length|content-type|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*"
    r"|accept-encoding|idempotency-key|webhook-.*|forwarded|x-forwarded-.*|x-real-ip|cookie|metadata.*|x-.*metadata.*"
).fullmatch


@dataclass(frozen=True, kw_only=True)
class _Url(Field):
    def check(self, value: Any) -> Target:
        if not isinstance(value, str):
            raise Fault("type", "Must be a string.")
        try:
            return target.parse(value, allow_loopback=settings.JOBS_POST_LOOPBACK)
        except target.Refused as refused:
            raise Fault("url", f"Cannot be sent to: {refused}.") from None

    def schema(self) -> Schema:
        return {"type": "string", "format": "uri", "maxLength": target.URL_CHARS_MAX}


@dataclass(frozen=True, kw_only=True)
class _Headers(Field):
    def check(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise Fault("type", "Must be an object.")
        if len(value) > HEADERS_MAX:
            raise Fault("length", f"Must have at most {HEADERS_MAX} members.")
        lower = [str(name).lower() for name in value]
        if len(set(lower)) < len(lower):
            raise Fault("duplicate", "A header is named twice.")
        for name, text in value.items():
            if _HEADER_NAME(name) is None or not isinstance(text, str) or _HEADER_VALUE(text) is None:
                raise Fault("header", "Must hold names and values of visible ASCII.")
            if _OURS(name.lower()):
                raise Fault("header", f"{name} cannot be set.")
        return dict(value)

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": HEADERS_MAX}


SHAPE: Final = Shape(
    "HttpPost",
    _Url(name="url", required=True, doc="https, a public address, port 443 or 8443"),
    Json(name="body", bytes_max=PAYLOAD_BYTES_MAX, default="null", doc="sent as it stands, digit for digit"),
    _Headers(name="headers", doc="more request headers"),
    Number(
        name="timeout_s", low=1, high=TIMEOUT_SECONDS_MAX, default=TIMEOUT_SECONDS, doc="of the whole call"
    ),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A payload that passed. `body` is JSON text, `timeout_s` seconds of the whole call."""

    target: Target
    body: str
    headers: dict[str, str]
    timeout_s: float


def read(payload: str | None) -> Call:
    """The call that a payload's JSON text describes. Raises Invalid with pointers into the payload, TooLarge."""
    if payload is None:
        raise Invalid(errors=[FieldError("", "type", "Must be an object, not a payload_ref.")])
    result = SHAPE.check(strictjson.read(payload.encode(), SHAPE.template))
    if (refusal := result.refusal) is not None:
        raise refusal
    values = result.values
    return Call(values["url"], values["body"], values["headers"] or {}, values["timeout_s"])


def refusal(payload: str | None) -> Invalid | None:
    """Why no job of this kind may have that payload (None: a reference), with pointers into the request."""
    try:
        read(payload)
    except Invalid as error:
        named = [FieldError(f"/payload{one.pointer}", one.code, one.detail) for one in error.errors]
        return Invalid(errors=named)
    except TooLarge as error:
        return Invalid.at("/payload/body", error.detail)
    return None
