"""Aggregations by name, for the methods of grouped streams and tables, and for `agg(...)`, several in one store.

    from odradek.streams import aggregations as agg

    orders.group_by_key().sum("amount")
    orders.group_by_key().agg(total=agg.sum("amount"), orders=agg.count(), best=agg.top_k(3, by="amount"))

Each function returns an Aggregation: how a value changes the state of its key, and the result of a state. A field is
the key of a dict or an attribute, a path of those ("customer.age"), or a function of the value; without one it is the
value itself.

As in SQL, an aggregation ignores a value that is null: None, a missing key of a dict, and NaN, too, as in pandas. Only
`count()` without a field counts every record. Of nothing but nulls the result is None; counts are 0, lists are empty.

States are CBOR (RFC 8949), so a later release, and other languages, can read them: state.py has the format.
"""

from __future__ import annotations

from odradek.streams.aggregations.aggregation import Aggregation as Aggregation
from odradek.streams.aggregations.aggregation import Combined as Combined
from odradek.streams.aggregations.distinct import count_distinct as count_distinct
from odradek.streams.aggregations.fields import Field as Field
from odradek.streams.aggregations.lists import collect as collect
from odradek.streams.aggregations.lists import top_k as top_k
from odradek.streams.aggregations.numbers import count as count
from odradek.streams.aggregations.numbers import max as max
from odradek.streams.aggregations.numbers import mean as mean
from odradek.streams.aggregations.numbers import min as min
from odradek.streams.aggregations.numbers import sum as sum
