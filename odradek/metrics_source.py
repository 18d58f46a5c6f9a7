"""A metrics page that commands read: the text of a URL, or of HOST:PORT.

Only that address is requested: a page that redirects is an error. What a page may cost is bounded: its size, and the
time until it is complete.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

METRICS_PATH: Final = "/metrics"
_TIMEOUT_S: Final = 10.0
_PART: Final = 256 * 1024
LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a page."""


class PageError(Exception):
    """The page cannot be read; the message contains the reason."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """`status` is that of HTTP, where the server answered with an error."""
        super().__init__(message)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the status is the error."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


class MetricsSource:
    """The address of a metrics page."""

    def __init__(self, address: str) -> None:
        """`address` is a URL, or host:port of one."""
        url = address if "://" in address else f"http://{address}"
        self.url = url if url.count("/") > 2 else f"{url}{METRICS_PATH}"

    def read(self) -> str:
        """The page. Raises PageError."""
        return read_page(self.url)


def address_of(text: str) -> str:
    """The address of an application, without the path of its metrics page: of a URL, or of HOST:PORT. Raises
    ValueError.
    """
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address of an application, as http://127.0.0.1:9404 is")
    _ = parts.port  # raises ValueError where it is no number
    return url.rstrip("/").removesuffix(METRICS_PATH)


def read_page(url: str, *, timeout_s: float = _TIMEOUT_S, largest: int = LARGEST) -> str:
    """The text of a page of at most `largest` bytes, complete within about `timeout_s`. Raises PageError."""
    if not url.startswith(("http://", "https://")):
        raise PageError(f"cannot read {url}: it is no address of HTTP")
    deadline = time.monotonic() + timeout_s
    found = bytearray()
    try:
        with _OPENER.open(url, timeout=timeout_s) as response:
            while part := response.read1(_PART):
                found += part
                if len(found) > largest:
                    raise PageError(f"cannot read {url}: it has more than {largest:,} bytes")
                if time.monotonic() > deadline:
                    raise PageError(f"cannot read {url}: it is not complete after {timeout_s:g} s")
    except urllib.error.HTTPError as error:
        with error:
            raise PageError(f"cannot read {url}: {error.code} {error.reason}", error.code) from error
    except urllib.error.URLError as error:
        raise PageError(f"cannot read {url}: {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PageError(f"cannot read {url}: {error}") from error
    return found.decode("utf-8", "replace")
