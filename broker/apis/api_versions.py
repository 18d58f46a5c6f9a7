"""ApiVersions (key 18), versions 0 to 4: what is spoken here (KIP-35, KIP-511, KIP-584).

The first request of every client. Keys and ranges are those of the handlers that are there, so an API is announced
exactly when it is served. A request from version 3 on names the client's software, which must be named sanely.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The table of APIs."""

    KEY = 18
    VERSIONS = (0, 4)

    def __init__(self, versions: Callable[[], list[tuple[int, int, int]]]) -> None:
        """`versions()` gives (key, lowest, highest) of every API."""
        self._versions = versions

    def handle(self, call: Call, request: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
        if call.version >= 3 and not (
            SOFTWARE_NAME.fullmatch(request.client_software_name)
            and SOFTWARE_NAME.fullmatch(request.client_software_version)
        ):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        keys = [
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in self._versions()
        ]
        return m.ApiVersionsResponse(api_keys=keys)
