"""ElectLeaders (key 43), versions 0 to 2: elect leaders now, the preferred ones or, if need be, unclean ones (KIP-460).

Version 0 knows only the preferred election. A request for every partition is answered with those for which there was
something to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.background import Background
from odradek.broker.controller import Controller
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

PREFERRED: Final = 0
UNCLEAN: Final = 1
TopicResult = m.ElectLeadersResponse.ReplicaElectionResult
PartitionResult = m.ElectLeadersResponse.PartitionResult


class ElectLeaders:
    """Elections on request."""

    KEY = 43
    VERSIONS = (0, 2)

    def __init__(self, controller: Controller, background: Background) -> None:
        self._controller = controller
        self._background = background

    def handle(self, call: Call, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse | None:
        if request.election_type not in (PREFERRED, UNCLEAN):
            return m.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        self._background.run(self._elect(call, request), call.connection.close)
        return None

    async def _elect(self, call: Call, request: m.ElectLeadersRequest) -> None:
        wanted = request.topic_partitions
        partitions = None if wanted is None else [(each.topic, index) for each in wanted for index in each.partitions]
        try:
            outcomes = await self._controller.elect_leaders(request.election_type == UNCLEAN, partitions)
        except KafkaError as error:
            if partitions is None:
                call.reply(m.ElectLeadersResponse(error_code=error.code))
                return
            outcomes = dict.fromkeys(partitions, (error.code, error.message))
        topics: dict[str, m.ElectLeadersResponse.ReplicaElectionResult] = {}
        for (topic, index), (code, message) in outcomes.items():
            if partitions is None and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result = topics.setdefault(topic, TopicResult(topic=topic))
            result.partition_result.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        call.reply(m.ElectLeadersResponse(replica_election_results=list(topics.values())))
