"""Whether this process is told to stop, for those that wait: they end at once. Set in a signal handler."""

import threading

stopping = threading.Event()
