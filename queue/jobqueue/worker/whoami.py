"""The name under which this process claims: what leases and attempts say of who did the work."""

worker = ""  # set once, by an executor
