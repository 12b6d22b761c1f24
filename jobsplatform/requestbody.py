"""Takes in the bytes of a request's body: only JSON in UTF-8, and never more than a route allows."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest

from jobsplatform.errors import Invalid, TooLarge, UnsupportedMediaType

LENGTH_DIGITS_MAX: Final = 18  # of a Content-Length; a longer one is too large all the same


def read_body(request: HttpRequest, bytes_max: int) -> bytes:
    """The body, of which at most one byte too many is read. Raises UnsupportedMediaType, TooLarge."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    is_chunked = not declared and "HTTP_TRANSFER_ENCODING" in request.META
    length = int(declared[:LENGTH_DIGITS_MAX]) if declared.isascii() and declared.isdigit() else 0
    if request.META.get("HTTP_CONTENT_ENCODING"):
        raise UnsupportedMediaType("A Content-Encoding is not understood.")
    media_type = request.META.get("CONTENT_TYPE") or ""
    if (media_type or length or is_chunked) and not _is_json(media_type):
        raise UnsupportedMediaType
    if length > bytes_max:
        raise TooLarge(f"The body has {length:,} bytes; at most {bytes_max:,} are allowed.")
    if not length and not is_chunked:
        return b""
    body = _read(request, bytes_max + 1 if is_chunked else length)
    if len(body) > bytes_max:
        raise TooLarge(f"The body has more than {bytes_max:,} bytes.")
    if len(body) < length:
        raise Invalid("The body ended early.")
    return body


def _read(request: HttpRequest, size: int) -> bytes:
    # Django reads nothing of a chunked body: this is the server's own stream, which ends where the body does.
    stream = request.META["wsgi.input"]
    parts: list[bytes] = []
    while size > 0:
        try:
            part = stream.read(size)
        except Exception as error:  # each server raises its own for a broken chunk
            raise Invalid("The body cannot be read.") from error
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _is_json(media_type: str) -> bool:
    kind, *parameters = (part.strip().lower() for part in media_type.split(";"))
    return kind == "application/json" and all(
        part in ("", "charset=utf-8", 'charset="utf-8"') for part in parameters
    )
