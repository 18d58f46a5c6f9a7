"""A metrics page that commands read: the text of a URL, or of HOST:PORT."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Final

_TIMEOUT_S: Final = 10.0


class PageError(Exception):
    """The metrics page cannot be read; the message contains the reason."""


class MetricsSource:
    """The address of a metrics page."""

    def __init__(self, address: str) -> None:
        """`address` is a URL, or host:port of one."""
        url = address if "://" in address else f"http://{address}"
        self.url = url if url.count("/") > 2 else f"{url}/metrics"

    def read(self) -> str:
        """The page. Raises PageError."""
        try:
            with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as response:
                page: str = response.read().decode("utf-8", "replace")
        except urllib.error.URLError as error:
            raise PageError(f"cannot read {self.url}: {error.reason}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PageError(f"cannot read {self.url}: {error}") from error
        return page
