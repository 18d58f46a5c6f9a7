"""Operations on the registry for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from odradek.broker.registry.interface import Check, Create, Delete, Set

# Few names and a shallow tree, so that the calls affect the same nodes. "s" takes part with the number of a sequential
# node.
PATHS = ["", "/a", "/b", "/a/a", "/a/b", "/b/a", "/s0000000000", "/s0000000001", "/a/s0000000000"]
paths = st.sampled_from(PATHS)
data = st.sampled_from([b"", b"x", b"yy"])
versions = st.sampled_from([-1, -1, -1, 0, 1, 2, -2])

creates = st.one_of(
    st.builds(Create, st.sampled_from(PATHS[1:]), data, st.booleans()),
    st.builds(Create, st.sampled_from(["/s", "/a/s", "/b/s"]), data, st.booleans(), st.just(True)),
)
# A name that is the number alone; kazoo drops the slash in a transaction, so it is tried outside of one.
bare_creates = st.builds(Create, st.sampled_from(["/", "/b/"]), data, st.booleans(), st.just(True))
writes = st.one_of(
    creates,
    creates,
    st.builds(Set, paths, data, versions),
    st.builds(Delete, st.sampled_from(PATHS[1:]), versions),
)
checks = st.builds(Check, paths, versions)
transactions = st.lists(st.one_of(writes, checks), min_size=1, max_size=5)
