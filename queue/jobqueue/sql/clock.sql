-- clock: the shard's clock, by which leases and due times are judged.
SELECT clock_timestamp()
