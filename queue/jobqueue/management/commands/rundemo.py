"""`manage.py rundemo`: the demo's trickle of jobs, and the receiver that its HTTP calls go to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobqueue import demo
from jobqueue.receiver import Receiver
from jobsplatform.loop import LoopCommand, Pass


class Command(LoopCommand):
    help = "Enqueue a small steady flow of work of the demo's tenants (`up` runs this)."

    def handle(self, *args: Any, **options: Any) -> None:
        receiver = Receiver()
        receiver.start()
        try:
            super().handle(*args, **options)
        finally:
            demo.forget_receiver()
            receiver.shutdown()
            receiver.server_close()

    def passes(self) -> Sequence[Pass]:
        flow = demo.Flow()

        def step() -> int:
            if flow.step == 0:
                demo.prepare()
            return flow.run()

        return [Pass("demo", step, interval_s=demo.FLOW_SECONDS)]
