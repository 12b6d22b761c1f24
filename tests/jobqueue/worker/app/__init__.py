"""An installed app with the handlers that the worker's tests enqueue for."""
