"""Names and versions of client software in ApiVersions requests (KIP-511; Kafka: ApiVersionsRequest.isValid)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.protocol import messages as m

FIRST_VERSION: Final = 3
"""The first version of ApiVersions whose requests contain them."""
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_valid(request: m.ApiVersionsRequest, version: int) -> bool:
    """Whether the name and version of the software have the form that Kafka requires."""
    return version < FIRST_VERSION or bool(
        _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version)
    )
