"""Handlers that behave in every way a worker must stand."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from jobqueue import Done, JobContext, NotDone, Transient, handler


def note(job: JobContext, word: str) -> None:
    """One line in the file that the payload names: the test's own record of what ran."""
    with open(job.payload["log"], "a") as file:
        file.write(f"{word} {job.job_id} {job.generation} {job.attempt}\n")
        file.write(f"pid {job.job_id} {os.getpid()}\n")


@handler("test.noop")
def noop(job: JobContext) -> None:
    return None


@handler("test.note")
def note_only(job: JobContext) -> dict[str, object]:
    note(job, "start")
    return {"attempt": job.attempt, "checkpoint": job.checkpoint_data}


@handler("test.sleep")
def sleep(job: JobContext) -> str:
    """`s` seconds; where `again_s` is given, that long from the second attempt on."""
    note(job, "start")
    if "checkpoint" in job.payload:
        job.checkpoint(job.payload["checkpoint"])
    time.sleep(job.payload["s"] if job.attempt == 1 else job.payload.get("again_s", job.payload["s"]))
    note(job, "end")
    return "slept"


@handler("test.hog")
def hog(job: JobContext) -> str:
    """Holds the interpreter: no other thread of this process runs meanwhile."""
    note(job, "start")
    ctypes.PyDLL(None).usleep(int(job.payload["s"] * 1_000_000))
    return "hogged"


@handler("test.crash")
def crash(job: JobContext) -> None:
    note(job, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@handler("test.crash-once")
def crash_once(job: JobContext) -> str:
    note(job, "start")
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "second time lucky"


@handler("test.nul")
def nul(job: JobContext) -> str:
    return "a\0b"


@handler("test.nul-error")
def nul_error(job: JobContext) -> None:
    raise Transient("bad\0text", retry_after_s=60)


@handler("test.cancel")
def until_cancelled(job: JobContext) -> str:
    note(job, "start")
    while not job.cancelled:
        time.sleep(0.01)
    return "saw it"


@handler("test.until-lost")
def until_lost(job: JobContext) -> str:
    note(job, "start")
    while not job.lease_lost:
        time.sleep(0.01)
    note(job, "lost")
    return "too late"


@handler("test.memory")
def memory(job: JobContext) -> int:
    """Resident kilobytes of this executor."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


@handler("test.crash-by-payload")
def crash_by_payload(job: JobContext) -> str:
    """Dies of one payload, and of no other."""
    note(job, "start")
    if job.payload.get("deadly"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"lived under redrive {job.redrive_generation}"


@handler("test.runaway")
def runaway(job: JobContext) -> None:
    """Listens to nobody and never ends."""
    note(job, "start")
    while True:
        time.sleep(0.1)


@handler("test.kill-all")
def kill_all(job: JobContext) -> str:
    """At the first try it takes its keeper along, once the test says that it is known to have begun."""
    note(job, "start")
    if job.attempt == 1:
        while not os.path.exists(f"{job.payload['log']}.go"):
            time.sleep(0.01)
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    return "alone"


@handler("test.crash-then-eat")
def crash_then_eat(job: JobContext) -> int:
    note(job, "start")
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(bytearray(job.payload["mb"] * 2**20))


@handler("test.crash-then-hang")
def crash_then_hang(job: JobContext) -> None:
    note(job, "start")
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3_600)


def find_payment(job: JobContext) -> Done | NotDone:
    """Asks the receiver, here the test's file, by the operation id."""
    with open(job.payload["log"]) as file:
        paid = any(line.startswith(f"paid {job.operation_id} ") for line in file)
    return Done({"found": True, "earlier": list(job.earlier_generations)}) if paid else NotDone()


@handler("test.pay-then-die", external_effects=True, reconcile=find_payment)
def pay_then_die(job: JobContext) -> None:
    note(job, "paid")
    os.kill(os.getpid(), signal.SIGKILL)


@handler("test.pay-slowly", external_effects=True, reconcile=find_payment)
def pay_slowly(job: JobContext) -> None:
    note(job, "paid")
    time.sleep(3_600)


@handler("test.effect")
def effect(job: JobContext) -> str:
    """An effect and the completion in one transaction; then it goes on for a while, and fails or kills itself."""
    from django.db import connections

    note(job, "start")
    with job.transaction() as ending:
        with connections[ending.alias].cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (%s, %s)", [job.lease.job_id, job.generation])
        ending.result = {"in": "time"}
    end = time.monotonic() + job.payload["s"]
    while time.monotonic() < end:
        if job.lease_lost:
            note(job, "lost")
        time.sleep(0.01)
    note(job, "after")
    if job.payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    raise Transient("too late to fail")


@handler("test.crash-on-bad")
def crash_on_bad(job: JobContext) -> str:
    note(job, "start")
    if job.payload["bad"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return "good"
