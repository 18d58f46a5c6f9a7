"""ApiVersions (key 18), versions 0 to 4: the supported APIs, versions and features (KIP-35, KIP-511, KIP-584).

Every client sends it first. Keys and ranges are those of the registered handlers, so the response contains exactly the
APIs that the broker serves. A request from version 3 on contains the name and version of the client's software, which
the broker validates; the response contains the features that this broker supports and the finalized features of the
cluster. Before version 4 no range may begin at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.metadata.features import SUPPORTED, FeatureLevels
from odradek.protocol import client_software
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

LEVEL_0_FROM = 4


class ApiVersions:
    """Handles ApiVersions."""

    KEY = 18
    VERSIONS = (0, 4)

    def __init__(self, versions: Callable[[], list[tuple[int, int, int]]], features: FeatureLevels) -> None:
        """`versions()` returns (key, lowest, highest) of every API."""
        self._versions = versions
        self._features = features

    def handle(self, call: Call, request: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
        if not client_software.is_valid(request, call.version):
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
