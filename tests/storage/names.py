"""The names on the simulated disk: directories, and the changes of names that wait for a sync of their directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.storage.pages import Choose, Content


class Directory:
    """`names` is the state that processes see, `durable` the state that surely survives a loss of power."""

    def __init__(self) -> None:
        self.names: dict[str, Directory | Content] = {}
        self.durable: dict[str, Directory | Content] = {}

    def settled(self, choose: Choose, *, any_order: bool) -> Directory:
        """The state after a loss of power, once the pending changes are settled."""
        found = Directory()
        for name, node in sorted(self.durable.items()):
            found.names[name] = node.settled(choose, any_order=any_order)
        found.durable = dict(found.names)
        return found

    def copy(self, copies: dict[int, Directory | Content]) -> Directory:
        """An independent copy; `copies` has the nodes that are copied already, by the identity of the original."""
        other = Directory()
        copies[id(self)] = other
        other.names = {name: copied(node, copies) for name, node in self.names.items()}
        other.durable = {name: copied(node, copies) for name, node in self.durable.items()}
        return other


def copied(node: Directory | Content, copies: dict[int, Directory | Content]) -> Directory | Content:
    """The copy of a node, made once."""
    found = copies.get(id(node))
    if found is None:
        found = copies[id(node)] = node.copy(copies) if isinstance(node, Directory) else node.copy()
    return found


class Pending:
    """From now on a name refers to `node`, or to nothing (None); a rename removes the node's other name."""

    def __init__(
        self,
        directory: Directory,
        name: str,
        node: Directory | Content | None,
        came_from: tuple[Directory, str] | None = None,
    ) -> None:
        self._directory, self._name, self._node, self._came_from = directory, name, node, came_from
        self._before = directory.names.get(name)

    def carry_out(self) -> None:
        """Visible to every process."""
        if self._came_from is not None:
            directory, name = self._came_from
            del directory.names[name]
        if self._node is None:
            del self._directory.names[self._name]
        else:
            self._directory.names[self._name] = self._node

    def make_durable(self) -> None:
        """Durable; every change that it depends on is durable already."""
        if self._came_from is not None:
            directory, name = self._came_from
            directory.durable.pop(name, None)
        if self._node is None:
            self._directory.durable.pop(self._name, None)
        else:
            self._directory.durable[self._name] = self._node

    def touches(self, directory: Directory) -> bool:
        """Whether a sync of the directory makes it durable."""
        return directory is self._directory or (self._came_from is not None and directory is self._came_from[0])

    def concerns(self) -> Iterator[tuple[int, str]]:
        """The names and files on which later changes depend through this one."""
        yield id(self._directory), self._name
        if self._came_from is not None:
            yield id(self._came_from[0]), self._came_from[1]
        for node in (self._node, self._before):
            if node is not None:
                yield id(node), ""

    def copy(self, copies: dict[int, Directory | Content]) -> Pending:
        """The same change of a copied disk."""
        other = Pending.__new__(Pending)
        other._name = self._name
        other._directory = _copied_directory(self._directory, copies)
        other._node = None if self._node is None else copied(self._node, copies)
        other._before = None if self._before is None else copied(self._before, copies)
        came_from = self._came_from
        other._came_from = None if came_from is None else (_copied_directory(came_from[0], copies), came_from[1])
        return other


def _copied_directory(directory: Directory, copies: dict[int, Directory | Content]) -> Directory:
    found = copied(directory, copies)
    assert isinstance(found, Directory)
    return found


def settle_names(pending: Iterable[Pending], choose: Choose, *, any_order: bool) -> None:
    """Make some of the waiting changes durable: the first ones, or in any order those that depend on no lost one."""
    waiting = list(pending)
    if not any_order:
        for each in waiting[: choose(len(waiting))]:
            each.make_durable()
        return
    lost: set[tuple[int, str]] = set()
    for each in waiting:
        concerned = set(each.concerns())
        if concerned.isdisjoint(lost) and choose(1):
            each.make_durable()
        else:
            lost |= concerned
