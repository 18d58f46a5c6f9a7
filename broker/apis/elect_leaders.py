"""ElectLeaders (key 43), versions 0 to 2: elect preferred leaders or, if necessary, unclean ones (KIP-460).

Version 0 supports only preferred elections. The response to a request for all partitions omits those that need no
election.

The controller answers when this broker's metadata contain the elected leaders; a partition for which they still contain
another leader after `timeout_ms` gets REQUEST_TIMED_OUT (Kafka: DelayedElectLeader).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.controller.auto_topic_creation import TopicsKnown
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

PREFERRED: Final = 0
UNCLEAN: Final = 1
ONE_CODE_FROM: Final = 1
"""The first version with an error code for the request as a whole."""
TopicResult = m.ElectLeadersResponse.ReplicaElectionResult
PartitionResult = m.ElectLeadersResponse.PartitionResult
Outcome = tuple[ErrorCode, str | None]
MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "Failed to elect leader for partition under strategy PreferredReplica",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Failed to elect leader for partition under strategy Offline",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
}


class ElectLeaders:
    """Handles ElectLeaders."""

    KEY = 43
    VERSIONS = (0, 2)

    def __init__(
        self,
        controller: Controller,
        metadata_cache: MetadataCache,
        known: TopicsKnown,
        request_tasks: RequestTasks,
        auth: AuthHelper,
    ) -> None:
        self._controller = controller
        self._metadata_cache = metadata_cache
        self._known = known
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse | None:
        if request.election_type not in (PREFERRED, UNCLEAN):
            return m.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not self._auth.authorize_cluster(call, AclOperation.ALTER):
            code, wanted = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request.topic_partitions or ()
            refused = _response(
                keep({(each.topic, index): (code, None) for each in wanted for index in items_of(each.partitions)})
            )
            refused.error_code = code if call.version >= ONE_CODE_FROM else ErrorCode.NONE
            return refused
        self._request_tasks.run(self._elect(call, request), call.connection.close)
        return None

    async def _elect(self, call: Call, request: m.ElectLeadersRequest) -> None:
        wanted = request.topic_partitions
        partitions = (
            None
            if wanted is None
            else keep([(each.topic, index) for each in wanted for index in items_of(each.partitions)])
        )
        try:
            elections = await self._controller.elect_leaders(request.election_type == UNCLEAN, partitions)
        except KafkaError as error:
            if partitions is None:  # version 0 has no top-level error code, so each partition has it
                partitions = [(topic.name, each.index) for topic in self._metadata_cache for each in topic.partitions]
            call.reply(_response(keep(dict.fromkeys(items_of(partitions), (error.code, None)))))
            return
        missing = [(each, leader) for each, (code, leader) in items_of(elections.items()) if code is ErrorCode.NONE]

        def is_known(elected: tuple[TopicPartition, int]) -> bool:
            known = self._metadata_cache.leader(*elected[0])
            return known is not None and known[0] == elected[1]

        def answer() -> None:
            outcomes: dict[TopicPartition, Outcome] = keep(
                {
                    each: (code, MESSAGES.get(code))
                    for each, (code, _) in items_of(elections.items())
                    if partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED
                }
            )
            late: Outcome = ErrorCode.REQUEST_TIMED_OUT, None
            for elected in items_of(missing):
                if not is_known(elected):
                    outcomes[elected[0]] = late
            call.reply(_response(outcomes))

        self._known.wait_for_each(missing, is_known, request.timeout_ms, answer)


def _response(outcomes: dict[TopicPartition, Outcome]) -> m.ElectLeadersResponse:
    topics: dict[str, m.ElectLeadersResponse.ReplicaElectionResult] = {}
    for (topic, index), (code, message) in items_of(outcomes.items()):
        result = topics.setdefault(topic, TopicResult(topic=topic))
        result.partition_result.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
    return m.ElectLeadersResponse(replica_election_results=list(topics.values()))
