"""Requests for jobs that do not come over HTTP: command-line arguments, lines of JSON, files of a folder.

They are read and refused by the same rules as the body of `POST /v1/jobs`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from django.http import HttpRequest

from jobqueue.api.bodies import NEW_JOB
from jobqueue.api.calls import queue_in_body
from jobqueue.api.producing import new_job
from jobqueue.enqueue import NewJob
from jobqueue.handlers import FILE_BYTES_MAX, grant
from jobqueue.limits import JOB_BODY_BYTES_MAX, PAYLOAD_BYTES_MAX
from jobsplatform import scopes, strictjson
from jobsplatform.errors import Invalid, JobsPlatformError, TooLarge
from jobsplatform.fields import Fault
from jobsplatform.http import Call
from jobsplatform.strictjson import Node
from tenants.access import TenantRef

Members = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One job asked for: where it was found (for people), and the job or why it is refused."""

    place: str
    job: NewJob | JobsPlatformError


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes requests of one tenant. `defaults` are members that a request need not name itself."""

    tenant: TenantRef
    defaults: Members

    def single(self, payload: str | None) -> Iterator[Request]:
        """The one job that the defaults and a payload (JSON text) describe."""
        yield self._request("", lambda: _with_payload(Node(), payload))

    def lines(self, stream: BinaryIO) -> Iterator[Request]:
        """One job a line of JSON; empty lines are passed over."""
        number = 0
        while line := stream.readline(JOB_BODY_BYTES_MAX + 1):
            number += 1
            text = line.strip(b" \t\r\n")
            if len(line) > JOB_BODY_BYTES_MAX and not line.endswith(b"\n"):
                _skip_rest(stream, line)
                yield Request(f"line {number}", TooLarge(f"A line has at most {JOB_BODY_BYTES_MAX:,} bytes."))
            elif text:
                yield self._request(
                    f"line {number}", lambda text=text: strictjson.read(text, NEW_JOB.template)
                )

    def files(self, folder: Path) -> Iterator[Request]:
        """One job a file below a folder, by name, except hidden ones."""
        for path in files_of(folder):
            yield self._request(_name(path, folder), lambda path=path: _of_file(path, folder))

    def _request(self, place: str, read: Any) -> Request:
        try:
            return Request(place, self._job(read()))
        except JobsPlatformError as error:
            return Request(place, error)

    def _job(self, node: Node) -> NewJob:
        for name, value in self.defaults.items():
            node.setdefault(name, value)
        checked = NEW_JOB.check(node)
        if (refusal := checked.refusal) is not None:
            raise refusal
        call = Call(HttpRequest(), {}, scopes.OPEN, tenant=self.tenant)
        return new_job(call, checked.values, queue_in_body, checked.values["request_key"])


def from_texts(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Members of a job from texts, as a command line has them. Raises Invalid."""
    members: dict[str, Any] = {}
    for name, text in texts.items():
        if text is not None:
            try:
                members[name] = NEW_JOB.fields[name].from_text(text)
            except Fault as fault:
                raise Invalid.at(f"/{name}", f"{name}: {fault.detail}", fault.code) from None
    return members


def files_of(folder: Path) -> list[Path]:
    """The files below a folder, sorted, except hidden ones."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path for path in found if not any(part[0] == "." for part in path.relative_to(folder).parts)
    )


def _with_payload(node: Node, payload: str | None) -> Node:
    if payload is not None:
        try:
            node["payload"] = strictjson.raw(payload)
        except Invalid as error:
            raise Invalid.at(
                "/payload", f"The payload is not JSON (a text needs quotes): {error.detail}"
            ) from None
    return node


def _name(path: Path, folder: Path) -> str:
    """A file's name below the folder, with a mark for what is no character."""
    return str(path.relative_to(folder)).encode("utf-8", "replace").decode()


def _of_file(path: Path, folder: Path) -> Node:
    """A file's content where it fits into a payload; else its path, with leave to read it on this machine."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= PAYLOAD_BYTES_MAX else b""
    except OSError as error:
        raise Invalid(f"It cannot be read: {error.strerror}.") from None
    if size > FILE_BYTES_MAX:
        raise TooLarge(f"It has {size:,} bytes; at most {FILE_BYTES_MAX:,} can be indexed.")
    name = _name(path, folder)
    if size <= PAYLOAD_BYTES_MAX:
        for members in _contents(data):
            text = json.dumps({"name": name} | members, ensure_ascii=False)
            if len(text.encode()) <= PAYLOAD_BYTES_MAX:
                return _with_payload(Node(), text)
    real = path.resolve()
    return _with_payload(Node(), json.dumps({"path": str(real), "bytes": size, "grant": grant(real)}))


def _contents(data: bytes) -> Iterator[dict[str, str]]:
    try:
        if b"\0" not in data:
            yield {"text": data.decode("utf-8")}
            return
    except UnicodeDecodeError:
        pass
    yield {"base64": base64.b64encode(data).decode("ascii")}


def _skip_rest(stream: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(JOB_BODY_BYTES_MAX)
