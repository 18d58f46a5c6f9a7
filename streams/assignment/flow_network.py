"""Flow networks: the maximum flow, and the cheapest one (Kafka: processor.internals.assignment.Graph).

Of several cheapest flows the result is the one of Kafka's Graph. Both start with a valid flow and cancel negative
cycles: the Bellman-Ford algorithm relaxes the edges in the order of their ends, for as many rounds as there are nodes,
and the cycle through the node that the last round relaxes is canceled. With n nodes and m edges, each cycle takes
O(n * m) steps.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class _Edge(NamedTuple):
    start: int
    end: int
    cost: int


class FlowNetwork:
    """A network whose nodes are the numbers from 0."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._edges: list[_Edge] = []
        """Edge 2i, and its reverse 2i + 1."""
        self._residual: list[int] = []
        self._numbers: dict[tuple[int, int], int] = {}

    def add_edge(self, start: int, end: int, capacity: int, cost: int, flow: int = 0) -> None:
        """Add an edge with a flow of at most its capacity. The reverse edge must not exist."""
        self._numbers[start, end] = len(self._edges)
        self._edges += (_Edge(start, end, cost), _Edge(end, start, -cost))
        self._residual += (capacity - flow, flow)

    def flow(self, start: int, end: int) -> int:
        """The flow through an edge; 0 where there is none."""
        number = self._numbers.get((start, end))
        return 0 if number is None else self._residual[number + 1]

    def total_cost(self) -> int:
        """The cost of the flow."""
        return sum(edge.cost * self._residual[2 * at + 1] for at, edge in enumerate(self._edges[::2]))

    def maximize(self, source: int, sink: int) -> int:
        """Make the flow from `source` to `sink` as large as possible; returns its amount. Costs do not count.

        Each path is one with the fewest edges (Edmonds-Karp).
        """
        neighbors: list[list[int]] = [[] for _ in range(self._nodes)]
        for number in self._in_order():
            neighbors[self._edges[number].start].append(number)
        amount = 0
        while path := self._path(source, sink, neighbors):
            amount += self._push(path)
        return amount

    def minimize_cost(self) -> None:
        """Make the flow as cheap as possible; its amount stays."""
        order = self._in_order()
        while cycle := self._negative_cycle(order):
            self._push(cycle)

    # ---- internals

    def _in_order(self) -> list[int]:
        """The edges, reverse ones included, in the order of their ends."""
        return sorted(range(len(self._edges)), key=lambda number: self._edges[number][:2])

    def _push(self, path: list[int]) -> int:
        """Send as much as possible along a path or around a cycle; returns the amount."""
        amount = min(self._residual[number] for number in path)
        for number in path:
            self._residual[number] -= amount
            self._residual[number ^ 1] += amount
        return amount

    def _path(self, source: int, sink: int, neighbors: list[list[int]]) -> list[int]:
        """The edges of a shortest path with room, from its end; none where there is no such path."""
        arrived: dict[int, int] = {}
        waiting = deque((source,))
        while waiting:
            for number in neighbors[waiting.popleft()]:
                end = self._edges[number].end
                if end == source or end in arrived or not self._residual[number]:
                    continue
                arrived[end] = number
                if end == sink:
                    return self._back(sink, source, arrived)
                waiting.append(end)
        return []

    def _negative_cycle(self, order: list[int]) -> list[int]:
        """The edges of a cycle with room and a negative cost; none where there is no such cycle."""
        edges = [(*self._edges[number], number) for number in order if self._residual[number]]
        distances = [0] * self._nodes
        arrived: dict[int, int] = {}
        for last in (*(False,) * self._nodes, True):
            relaxed = False
            for start, end, cost, number in edges:
                if distances[end] > distances[start] + cost:
                    distances[end] = distances[start] + cost
                    arrived[end] = number
                    relaxed = True
                    if last:
                        return self._cycle(end, arrived)
            if not relaxed:
                return []
        return []

    def _cycle(self, node: int, arrived: dict[int, int]) -> list[int]:
        visited = set()
        while node not in visited:
            visited.add(node)
            node = self._edges[arrived[node]].start
        return self._back(node, node, arrived)

    def _back(self, node: int, to: int, arrived: dict[int, int]) -> list[int]:
        path = [arrived[node]]
        while (node := self._edges[path[-1]].start) != to:
            path.append(arrived[node])
        return path
