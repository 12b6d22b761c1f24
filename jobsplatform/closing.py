"""Makes `Connection: close` true under gunicorn, which drops that header of an application and keeps the line open.

After a refused body its rest is still on the line. Said to be open, the line would be closed under the client's next
request; closed and said so, the client takes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def closing(application: Application) -> Application:
    """The application, with its wish to close passed on to the server's response object."""

    def passing_on(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if any(name.lower() == "connection" and value == "close" for name, value in headers):
                close = getattr(getattr(start_response, "__self__", None), "force_close", None)
                if close is not None:
                    close()
            return start_response(status, headers, *rest)

        return application(environ, start)

    return passing_on
