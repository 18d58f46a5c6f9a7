"""Page views, joined with user profiles (a table) and with the searches just before them (another stream).

One command; the example generates views, searches and profiles:

    python -m odradek.streams.examples.clicks --seconds 20
    clicks: RUNNING
    Josef K. (Prague) looked at /castle after searching for "land surveyor"
    Grete (Prague) looked at /violin

A view is joined with the profile at that time: a table returns the latest row of each key. It is joined with a search
of the same user of the second before the view, in a window. Views without either are results, too (left joins). A view
without a search becomes a result when its window is closed, once the timestamp of another record shows that this much
time has passed. The three topics have the same keys and the same number of partitions, so that one task processes all
equal keys.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from odradek.streams import (
    JSON,
    STRING,
    Consumed,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Topology,
)
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run

VIEWS: Final = "clicks-views"
PROFILES: Final = "clicks-profiles"
SEARCHES: Final = "clicks-searches"
ACTIVITY: Final = "clicks-activity"
BEFORE: Final = timedelta(seconds=1)
"""The longest time between a search and a view."""

Json = dict[str, Any]


def with_profile(view: Json, profile: Json | None) -> Json:
    """A view and its profile."""
    known = profile or {}
    return {"page": view["page"], "name": known.get("name"), "city": known.get("city")}


def with_search(activity: Json, search: Json | None) -> Json:
    """The same and its search."""
    return {**activity, "search": search and search["terms"]}


def show(user: str, activity: Json) -> None:
    """Print one view."""
    who = f"{activity['name']} ({activity['city']})" if activity["name"] else user
    why = f' after searching for "{activity["search"]}"' if activity["search"] else ""
    print(f"{who} looked at {activity['page']}{why}", flush=True)


def topology() -> Topology:
    """Views joined with a table, and then with another stream."""
    builder = StreamsBuilder()
    views = builder.stream(VIEWS, Consumed(STRING, JSON))
    profiles = builder.table(PROFILES, Consumed(STRING, JSON), Materialized("profiles", STRING, JSON))
    searches = builder.stream(SEARCHES, Consumed(STRING, JSON))
    earlier = JoinWindows.of_time_difference_with_no_grace(BEFORE).after(0)
    (
        views.left_join(profiles, with_profile, joined=Joined(STRING, JSON, JSON))
        .left_join(searches, with_search, earlier, StreamJoined(STRING, JSON, JSON))
        .peek(show)
        .to(ACTIVITY, Produced(STRING, JSON))
    )
    return builder.build()


def clicks() -> Iterator[Written]:
    """Profiles, and random searches and views."""
    people = {
        "k": {"name": "Josef K.", "city": "Prague"},
        "grete": {"name": "Grete", "city": "Prague"},
        "karl": {"name": "Karl", "city": "New York"},
    }
    interests = {"land surveyor": "/castle", "advocate": "/court", "violin": "/violin", "theatre": "/oklahoma"}
    for user, profile in people.items():
        yield _json(PROFILES, user, profile)
    chance = random.Random(1)
    while True:
        user = chance.choice([*people, "a stranger"])
        terms, page = chance.choice(list(interests.items()))
        if chance.random() < 0.5:
            yield _json(SEARCHES, user, {"terms": terms})
        yield _json(VIEWS, user, {"page": page})


def _json(topic: str, key: str, value: Json) -> Written:
    return Written(topic, key.encode(), json.dumps(value).encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    chosen = parser(__doc__, "clicks", rate=5).parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [VIEWS, PROFILES, SEARCHES, ACTIVITY])
    return run(topology(), configuration(chosen), chosen, made_up=clicks())


if __name__ == "__main__":
    sys.exit(main())
