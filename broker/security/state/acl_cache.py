"""ACL cache: the ACLs of the cluster in memory, by resource and by principal (Kafka: AclCache, AclAuthorizer).

The cost of a lookup does not depend on the number of unrelated ACLs. The patterns that apply to a resource are the
literal name, the wildcard, and the prefixes of the name, which a binary search finds in the sorted names of all
prefixed patterns. Within a pattern, entries are found by their principal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping

from odradek.broker.security.state.acls import (
    WILDCARD_RESOURCE,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.hosts import host_matches

Entries = tuple[AccessControlEntry, ...]


class AclCache:
    """All ACLs; the entries of a pattern are replaced as a whole, as a znode holds them."""

    def __init__(self) -> None:
        self._acls: dict[ResourcePattern, Entries] = {}
        self._by_principal: dict[ResourcePattern, dict[str, list[AccessControlEntry]]] = {}
        self._prefixes: dict[ResourceType, list[str]] = {}
        self._names = _NamesByPrincipal()

    def __len__(self) -> int:
        return sum(map(len, self._acls.values()))

    @property
    def acls(self) -> Mapping[ResourcePattern, Entries]:
        """The entries of each pattern that has any."""
        return self._acls

    def select(self, selection: AclBindingFilter) -> Iterator[AclBinding]:
        """The bindings that a filter selects, for DescribeAcls."""
        for pattern, entries in self._acls.items():
            if selection.pattern.matches(pattern):
                yield from (AclBinding(pattern, each) for each in entries if selection.entry.matches(each))

    def update(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the entries of a pattern; without entries the pattern is removed."""
        old, new = self._acls.pop(pattern, ()), tuple(dict.fromkeys(entries))
        self._by_principal.pop(pattern, None)
        for entry in old:
            self._names.remove(pattern, entry)
        for entry in new:
            self._names.add(pattern, entry)
        if new:
            self._acls[pattern] = new
            by_principal = self._by_principal[pattern] = {}
            for entry in new:
                by_principal.setdefault(entry.principal, []).append(entry)
        if pattern.pattern_type == PatternType.PREFIXED and bool(old) != bool(new):
            self._update_prefixes(pattern, present=bool(new))

    def _update_prefixes(self, pattern: ResourcePattern, *, present: bool) -> None:
        prefixes = self._prefixes.setdefault(pattern.resource_type, [])
        if present:
            insort(prefixes, pattern.name)
        else:
            del prefixes[bisect_left(prefixes, pattern.name)]

    def patterns_of(self, resource_type: ResourceType, name: str) -> list[ResourcePattern]:
        """The patterns with entries that apply to a resource."""
        literal = (WILDCARD_RESOURCE, name) if name != WILDCARD_RESOURCE else (name,)
        patterns = [ResourcePattern(resource_type, each, PatternType.LITERAL) for each in literal]
        found = [each for each in patterns if each in self._acls]
        prefixes = self._prefixes_of(resource_type, name)
        return found + [ResourcePattern(resource_type, each, PatternType.PREFIXED) for each in prefixes]

    def _prefixes_of(self, resource_type: ResourceType, name: str) -> Iterator[str]:
        """Steps from the longest prefix to the shortest; a step over other names shortens the text that is searched."""
        prefixes = self._prefixes.get(resource_type, [])
        place = bisect_right(prefixes, name)
        while place:
            candidate = prefixes[place - 1]
            if name.startswith(candidate):
                yield candidate
                place -= 1
            else:
                common = next(
                    (at for at, (a, b) in enumerate(zip(name, candidate, strict=False)) if a != b), len(candidate)
                )
                place = bisect_right(prefixes, name[:common], 0, place - 1)

    def entries_of(self, pattern: ResourcePattern, principals: Iterable[str]) -> Iterator[AccessControlEntry]:
        """The entries of a pattern for one of these principals."""
        by_principal = self._by_principal.get(pattern, {})
        for principal in principals:
            yield from by_principal.get(principal, ())

    def names_of(
        self,
        resource_type: ResourceType,
        pattern_type: PatternType,
        permission_type: AclPermissionType,
        principals: Iterable[str],
        host: str,
        operation: AclOperation,
    ) -> list[set[str]]:
        """The names of patterns with an entry for one of the principals, the host, and the operation or ALL."""
        keys = ((resource_type, pattern_type, permission_type, principal) for principal in principals)
        return [names for key in keys for names in self._names.matching(key, host, operation)]


_Key = tuple[ResourceType, PatternType, AclPermissionType, str]


class _NamesByPrincipal:
    """The names of all patterns with entries of a principal, by host and operation (Kafka: resourceCache)."""

    def __init__(self) -> None:
        self._names: dict[_Key, dict[tuple[str, AclOperation], set[str]]] = {}

    def add(self, pattern: ResourcePattern, entry: AccessControlEntry) -> None:
        grants = self._names.setdefault(_key(pattern, entry), {})
        grants.setdefault((entry.host, entry.operation), set()).add(pattern.name)

    def remove(self, pattern: ResourcePattern, entry: AccessControlEntry) -> None:
        key, grant = _key(pattern, entry), (entry.host, entry.operation)
        grants = self._names[key]
        grants[grant].discard(pattern.name)
        if not grants[grant]:
            del grants[grant]
        if not grants:
            del self._names[key]

    def matching(self, key: _Key, host: str, operation: AclOperation) -> Iterator[set[str]]:
        for (pattern, granted), names in self._names.get(key, {}).items():
            if granted in (operation, AclOperation.ALL) and host_matches(pattern, host):
                yield names


def _key(pattern: ResourcePattern, entry: AccessControlEntry) -> _Key:
    return pattern.resource_type, pattern.pattern_type, entry.permission_type, entry.principal
