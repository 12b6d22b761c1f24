"""Workers: claim jobs, run their handlers, keep their leases, tell how they ended.

One invariant: an end is told only under the lease that its handler ran under, and the platform refuses any other.
"""
