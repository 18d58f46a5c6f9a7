"""UpdateFeatures (key 57), versions 0 to 2: raise or lower finalized feature levels (KIP-584, KIP-778).

Only the controller serves it. In Odradek the level of a feature is computed from the levels that all brokers support,
so no update is necessary or possible: the controller refuses each one, with a reason, as Kafka 3.9 with ZooKeeper
refuses updates of unknown features. Version 2 has one error for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.features import FeatureLevels
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

ONE_ERROR_FROM = 2
UPGRADE = 1
UNSAFE_DOWNGRADE = 3
SAFE_DOWNGRADE = 2
Response = m.UpdateFeaturesResponse


class UpdateFeatures:
    """Handles UpdateFeatures."""

    KEY = 57
    VERSIONS = (0, 2)

    def __init__(self, features: FeatureLevels, controller: Controller, auth: AuthHelper) -> None:
        self._features = features
        self._controller = controller
        self._auth = auth

    def handle(self, call: Call, request: m.UpdateFeaturesRequest) -> m.UpdateFeaturesResponse:
        try:
            self._auth.require_cluster(call, AclOperation.ALTER)
        except KafkaError as error:
            return Response(error_code=error.code, error_message=error.message)
        if not self._controller.is_active:
            return Response(error_code=ErrorCode.NOT_CONTROLLER, error_message="this broker is not the controller")
        if call.version >= ONE_ERROR_FROM:  # this version has no error for an update to the present level
            wanted = [
                each
                for each in request.feature_updates
                if self._features.levels.get(each.feature) != each.max_version_level
            ]
        else:
            wanted = request.feature_updates
        results = []
        for name, update in items_of({each.feature: each for each in items_of(wanted)}.items()):
            kind = update.upgrade_type
            if call.version == 0 and update.allow_downgrade:
                kind = SAFE_DOWNGRADE
            message = self._features.refusal(
                name,
                update.max_version_level,
                is_known_kind=UPGRADE <= kind <= UNSAFE_DOWNGRADE,
                is_downgrade=kind > UPGRADE,
            )
            results.append(
                Response.UpdatableFeatureResult(
                    feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message
                )
            )
        if call.version >= ONE_ERROR_FROM and results:
            return Response(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=results[0].error_message)
        return Response(error_message=None, results=results)
