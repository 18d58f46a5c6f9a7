"""ApiVersions (key 18), versions 0 to 4: what is spoken here (KIP-35, KIP-511, KIP-584).

The first request of every client. Keys and ranges are those of the handlers that are there, so an API is announced
exactly when it is served. A request from version 3 on names the client's software, which must be named sanely; its
answer tells which features are supported here and which the whole cluster has. Before version 4 no range may begin
at 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.metadata.features import SUPPORTED, FeatureLevels
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

LEVEL_0_FROM = 4
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The table of APIs."""

    KEY = 18
    VERSIONS = (0, 4)

    def __init__(self, versions: Callable[[], list[tuple[int, int, int]]], features: FeatureLevels) -> None:
        """`versions()` gives (key, lowest, highest) of every API."""
        self._versions = versions
        self._features = features

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
        lowest = 0 if call.version >= LEVEL_0_FROM else 1
        return m.ApiVersionsResponse(
            api_keys=keys,
            supported_features=[
                m.ApiVersionsResponse.SupportedFeatureKey(
                    name=name, min_version=max(lowest, each.lowest), max_version=each.highest
                )
                for name, each in SUPPORTED.items()
            ],
            finalized_features_epoch=self._features.epoch,
            finalized_features=[
                m.ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.levels.items()
            ],
        )
