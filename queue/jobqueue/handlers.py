"""The built-in kind `http.post`, and the handlers of the demo: each shows one way in which a job can go.

`text.index` and `http.call` are what real work looks like; the `demo.…` kinds fail in the ways that jobs fail.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core import signing

from jobqueue import JobContext, Permanent, Release, Transient, Uncertain, handler, safe_to_repeat
from jobqueue.demo import TENANTS, folders, receiver_file
from jobqueue.posting import kind, payload

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
CALL_SECONDS_MAX: Final = 5
SLEEP_SECONDS_MAX: Final = 300
GRANT_SALT: Final = "jobqueue.text.index"

handler(payload.KIND, external_effects=True, reconcile=safe_to_repeat)(kind.post)


# text.index


@handler("text.index")
def index_text(job: JobContext) -> dict[str, object]:
    """Count words, lines and bytes. Payload: `text`, or `base64`, or `path` of a file that may be read."""
    data = _input(job.payload)
    text = data.decode("utf-8", "replace")
    lines = data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
    digest = hashlib.sha256(data).hexdigest()
    return {"words": len(text.split()), "lines": lines, "bytes": len(data), "sha256": digest}


def grant(path: Path) -> str:
    """A signed permission to index one file outside the demo's folders, for whoever has this machine's secret."""
    return signing.dumps(str(path), salt=GRANT_SALT)


def _input(payload: object) -> bytes:
    match payload:
        case {"text": str(text)}:
            return text.encode()
        case {"base64": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise Permanent(f"base64 cannot be decoded: {error}") from None
        case {"path": str(name), **more}:
            return _file(settings.BASE_DIR / name, more.get("grant"))
    raise Permanent('the payload must have "text", "base64" or "path"')


def _file(path: Path, granted: object) -> bytes:
    """The bytes of a file. Where it really lies decides, after all links; of other places nothing is told."""
    try:
        real = path.resolve()
    except (OSError, ValueError, RuntimeError):
        raise Permanent("the path cannot be followed") from None
    if not (_is_open_to_all(real) or _is_granted(real, granted)):
        raise Permanent("the file lies outside the folders of JOBS_DEMO_FOLDERS")
    if not real.exists():
        raise Permanent("there is no such file")
    if not real.is_file() or real.stat().st_size > FILE_BYTES_MAX:
        raise Permanent(f"not a file of at most {FILE_BYTES_MAX:,} bytes")
    try:
        with real.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise Transient(f"the file cannot be read: {error.strerror}") from None


def _is_open_to_all(real: Path) -> bool:
    return any(real.is_relative_to(folder) for folder in folders())


def _is_granted(real: Path, granted: object) -> bool:
    if not isinstance(granted, str):
        return False
    try:
        return bool(signing.loads(granted, salt=GRANT_SALT) == str(real))
    except signing.BadSignature:
        return False


# http.call


@handler("http.call", external_effects=True, reconcile=safe_to_repeat)
def call_http(job: JobContext) -> object:
    """Send the payload to the demo's receiver, which acts once per Idempotency-Key however often it is called."""
    request = urllib.request.Request(  # noqa: S310  (the address is ours, on loopback)
        _receiver(),
        data=(job.payload_text or "null").encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": job.operation_id},
    )
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS_MAX) as response:  # noqa: S310
            return json.loads(response.read(64 * 1024))
    except urllib.error.HTTPError as error:
        raise Transient(f"the receiver answered {error.code}") from None
    except urllib.error.URLError as error:
        raise Transient(f"the receiver cannot be reached: {error.reason}") from None
    except (OSError, ValueError) as error:  # sent, but the answer was lost: it may have acted
        raise Uncertain(f"the receiver's answer was lost: {error}") from None


def _receiver() -> str:
    try:
        return receiver_file().read_text("ascii").strip()
    except OSError:
        raise Transient("the demo's receiver does not run (manage.py rundemo)") from None


# The ways in which jobs fail


@handler("demo.invalid")
def fail_permanently(job: JobContext) -> dict[str, object]:
    """Becomes a dead letter at once, until an operator corrects the payload to `{"valid": true}`."""
    if isinstance(job.payload, dict) and job.payload.get("valid") is True:
        return {"valid": True}
    raise Permanent('the payload can never be processed: correct it to {"valid": true} and redrive')


@handler("demo.flaky")
def fail_twice(job: JobContext) -> dict[str, object]:
    """Succeeds at the third attempt."""
    if job.attempt < 3:
        raise Transient(f"attempt {job.attempt} failed, as it should", retry_after_s=1)
    return {"attempt": job.attempt}


@handler("demo.crash")
def crash(job: JobContext) -> None:
    """Kills its own process, and with it whatever else runs there: only the demo's tenants may."""
    if job.tenant not in TENANTS:
        raise Permanent("only the tenants of the demo may kill a worker's process")
    os.kill(os.getpid(), signal.SIGKILL)


@handler("demo.sleep")
def sleep(job: JobContext) -> dict[str, Any]:
    """Sleeps `seconds`; stops early when it is cancelled or its lease is lost."""
    payload = job.payload if isinstance(job.payload, dict) else {}
    seconds = payload.get("seconds", 1)
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds <= SLEEP_SECONDS_MAX
    ):
        raise Permanent(f"seconds must be a number from 0 to {SLEEP_SECONDS_MAX}")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if job.cancelled or job.lease_lost:
            raise Release
        time.sleep(min(left, 0.1))
    return {"slept_s": seconds}


# bench


@handler("bench.noop")
def do_nothing(job: JobContext) -> None:
    """What `manage.py bench` measures the worker with."""
