"""The worker: claims jobs, runs their handlers, keeps their leases alive and settles them.

Two levels of processes. The *keeper* (`keeper.py`, the process that `runworker` starts) renews every lease
and watches the *executors* (`engine.py` in a process each), which claim, run handlers in threads and settle
in batches. Renewing lives outside the handlers' process, so a handler that holds the interpreter for minutes
keeps its lease.

One invariant: a result is sent only under the lease that its handler ran under; what a lost lease's handler
returns is dropped, and the queue would refuse it anyway.
"""
