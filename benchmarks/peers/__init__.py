"""Queues side by side: one adapter a peer, one runner, one table. `python -m benchmarks.peers --help`."""
