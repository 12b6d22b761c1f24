"""How many jobs a second live their whole life over HTTP, and how long each call takes at half of that.

A life is an enqueue, a claim and an end, each a call of its own: of a hundred jobs (the last call is a settle), or of
one. First clients with a connection each live one life after the other, as fast as answers come. Then lives begin at
half of the rate that was reached, by a schedule that waits for no answer, and each call is timed from the instant it
was due: one that is sent late because others are slow is slow itself.

Two web processes of gunicorn as `manage.py up` starts them, dispatcher and reaper beside them, all on loopback and on
one machine with the clients: what these cost is a column.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import bed as beds
from benchmarks.peers import page, tables
from benchmarks.peers.tables import Verdict
from benchmarks.stage import QUEUE, Stage, share, stage

KIND: Final = "bench.noop"
PAYLOAD: Final = {"n": 1, "pad": "x" * 100}
PROCESSES: Final = 2
CLIENTS: Final = 16  # that live as fast as they can
SENDERS: Final = 64  # that keep the schedule: more than lives are under way at once
GAP_S: Final = 0.02  # from when a call is due until the next of its life is
WARM_S: Final = 3.0
STANDING: Final = 20  # batches that wait all the time: no claim finds too little
RECEIVED_BYTES: Final = 65_536
CALLS: Final = ("enqueue", "claim", "end")
RATES_LEAST: Final = {100: 8_000.0, 1: 700.0}  # jobs/s
P99_MS_MOST: Final = 20.0
COLUMNS: Final = {
    "rate": "jobs/s",
    **{f"{call}_{part}": f"{call} {part} ms" for call in CALLS for part in ("p50", "p99")},
    "web_us": "web CPU µs/job",
    "server_us": "server CPU µs/job",
    "client_us": "client CPU µs/job",
    "wal": "WAL B/job",
}
Row = dict[str, float]


class Line:
    """One connection that stays, and no more HTTP than that takes."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = (
            f" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )

    def post(self, path: str, body: bytes) -> bytes:
        """The answer's body. Raises RuntimeError for a refusal."""
        self.socket.sendall(f"POST {path}{self.head}{len(body)}\r\n\r\n".encode() + body)
        head, _, text = self._received(b"").partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(text) < length:
            text = self._received(text)
        if head[9:12] not in (b"200", b"201"):
            raise RuntimeError(f"{path}: {head[:80]!r} {text[:300]!r}")
        return text

    def _received(self, before: bytes) -> bytes:
        """What was received and what comes next; at the beginning of an answer, at least its head."""
        while True:
            part = self.socket.recv(RECEIVED_BYTES)
            if not part:
                raise RuntimeError("The server closed the connection.")
            before += part
            if not before.startswith(b"HTTP/") or b"\r\n\r\n" in before:
                return before


class Life:
    """The calls of `size` jobs at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        job = {"queue": QUEUE, "kind": KIND, "payload": PAYLOAD}
        self._new = json.dumps(job if size == 1 else {"jobs": [job] * size}).encode()
        self._claim = json.dumps({"queue": QUEUE, "limit": size, "worker": "bench"}).encode()

    def calls(self, line: Line) -> Sequence[Callable[[], None]]:
        """Its three calls, to be made one after the other."""
        leases: list[dict[str, Any]] = []
        return (
            lambda: self.enqueue(line),
            lambda: leases.extend(self.claim(line)),
            lambda: self.end(line, leases),
        )

    def enqueue(self, line: Line) -> None:
        answer = line.post("/v1/jobs" if self.size == 1 else "/v1/jobs/batch", self._new)
        if self.size > 1 and answer.count(b'"status":201') != self.size:
            raise RuntimeError(f"A job was refused: {answer[:300]!r}")

    def claim(self, line: Line) -> list[dict[str, Any]]:
        leases: list[dict[str, Any]] = json.loads(line.post("/v1/leases/claim", self._claim))["leases"]
        if len(leases) != self.size:
            raise RuntimeError(f"A claim gave {len(leases)} of {self.size}.")
        return leases

    def end(self, line: Line, leases: Sequence[dict[str, Any]]) -> None:
        ends = [{name: one[name] for name in ("job_id", "generation", "lease_token")} for one in leases]
        if self.size == 1:
            line.post(f"/v1/jobs/{ends[0].pop('job_id')}/complete", json.dumps(ends[0]).encode())
            return
        answer = line.post("/v1/leases/settle", json.dumps({"complete": ends}).encode())
        if answer.count(b'"status":200') != self.size:
            raise RuntimeError(f"A completion was refused: {answer[:300]!r}")


@dataclass(slots=True)
class Crowd:
    """Threads with a connection each that do the same; the first failure of one ends all."""

    port: int
    token: str
    failures: list[BaseException] = field(default_factory=list)

    def run(self, count: int, work: Callable[[Line], None]) -> None:
        def one() -> None:
            try:
                work(Line(self.port, self.token))
            except BaseException as error:
                self.failures.append(error)

        threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


def as_fast_as_it_goes(crowd: Crowd, life: Life, seconds: float) -> float:
    """Jobs a second, of clients that wait for each answer."""
    done = itertools.count()
    start = time.perf_counter()

    def live(line: Line) -> None:
        while time.perf_counter() < start + seconds and not crowd.failures:
            for call in life.calls(line):
                call()
            next(done)

    crowd.run(CLIENTS, live)
    return next(done) * life.size / (time.perf_counter() - start)


def by_schedule(crowd: Crowd, life: Life, rate: float, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each call from when it was due; `rate` is in jobs a second."""
    found: dict[str, list[float]] = {name: [] for name in CALLS}
    step, numbers = life.size / rate, itertools.count()
    start = time.perf_counter() + 0.5  # all are connected by then

    def keep(line: Line) -> None:
        while (due := start + next(numbers) * step) < start + seconds and not crowd.failures:
            for name, call in zip(CALLS, life.calls(line), strict=True):
                time.sleep(max(0.0, due - time.perf_counter()))
                call()
                found[name].append((time.perf_counter() - due) * 1_000)
                due += GAP_S

    crowd.run(SENDERS, keep)
    return found


def measured(place: Stage, bed: beds.Bed, port: int, size: int, seconds: float) -> Row:
    """One row: the rate and what it costs, then latencies at half of it."""
    life, web = Life(size), [place.children[0].pid]
    standing, line = Life(100), Line(port, place.token)
    for _ in range(STANDING if size > 1 else 1):
        standing.enqueue(line)
    as_fast_as_it_goes(Crowd(port, place.token), life, WARM_S)
    before = (bed.cpu_s(), beds.cpu_s(web), time.process_time(), bed.wal_bytes())
    rate = as_fast_as_it_goes(Crowd(port, place.token), life, seconds)
    after = (bed.cpu_s(), beds.cpu_s(web), time.process_time(), bed.wal_bytes())
    server, web_s, client, wal = (
        (now - then) / (rate * seconds) for now, then in zip(after, before, strict=True)
    )
    row = {
        "rate": rate,
        "server_us": server * 1e6,
        "web_us": web_s * 1e6,
        "client_us": client * 1e6,
        "wal": wal,
    }
    for call, waits in by_schedule(Crowd(port, place.token), life, rate / 2, seconds).items():
        row |= {f"{call}_p50": share(waits, 0.5), f"{call}_p99": share(waits, 0.99)}
    return row


def judged(rows: dict[str, Row]) -> list[Verdict]:
    """What was wanted of each size's row, by its title."""
    found = []
    for size, least in RATES_LEAST.items():
        if (row := rows.get(titled(size))) is None:
            continue
        found.append(Verdict(f"{titled(size)}: jobs/s", row["rate"], least))
        found += [
            Verdict(f"{titled(size)}: {call} p99 ms at half load", row[f"{call}_p99"], P99_MS_MOST, True)
            for call in CALLS
        ]
    return found


def titled(size: int) -> str:
    return "one job a call" if size == 1 else f"{size} jobs a call"


def main() -> None:
    asked = _arguments()
    found: dict[str, list[Row]] = {}
    with stage() as place:
        bed = beds.Bed(place.server, Path(place.environment["JOBSPLATFORM_DATA"]))
        port = place.web(processes=PROCESSES)
        for upkeep in ("rundispatcher", "runreaper"):
            place.manage(upkeep)
        facts = bed.facts()
        gc.freeze()  # a collection here would be taken for a slow answer
        for _ in range(asked.repetitions):
            for size in asked.sizes:
                row = measured(place, bed, port, size, asked.seconds)
                found.setdefault(titled(size), []).append(row)
                print(f"{titled(size)}: {row['rate']:,.0f} jobs/s", file=sys.stderr, flush=True)
    rows = {title: tables.medians(some) for title, some in found.items()}
    claims = judged(rows)
    text = (
        f"{facts['date']}; {facts['machine']}; PostgreSQL {facts['postgresql']};"
        f" {asked.repetitions} repetitions in turns of {asked.seconds:g} s, medians.\n\n"
        f"{tables.table(rows, COLUMNS, 'life')}\n\n" + "\n".join(f"- {claim}" for claim in claims)
    )
    print(text)
    if asked.json:
        asked.json.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    if asked.write:
        command = "python -m benchmarks.over_http " + " ".join(sys.argv[1:])
        page.replace("over http", f"`{command}`\n\n{text}")
    sys.exit(0 if all(claim.is_kept for claim in claims) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.over_http", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each part of a repetition (default 10)"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="default 3")
    parser.add_argument("--sizes", type=_sizes, default=list(RATES_LEAST), help="jobs a call (default 100,1)")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    asked = parser.parse_args()
    if asked.repetitions < 1 or asked.seconds <= 0:
        parser.error("there must be something to do")
    return asked


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError("whole numbers with commas between them") from None
    if not all(1 <= size <= 100 for size in sizes):
        raise argparse.ArgumentTypeError("a claim gives 1 to 100 jobs")
    return sizes


if __name__ == "__main__":
    main()
