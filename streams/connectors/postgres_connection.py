"""Connection to PostgreSQL: opens it at the first use and after a failure, with psycopg 3 (the extra `postgres`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odradek.streams.connectors.errors import RetriableError
from odradek.streams.extras import extra_module

if TYPE_CHECKING:
    import psycopg


class PostgresConnection:
    """One connection, which transactions open when they need it."""

    def __init__(self, conninfo: str, user: str, stall_timeout_s: float) -> None:
        """`conninfo` is a connection string of libpq; `user` is the class that needs it. The server ends a transaction
        in which this process sends nothing for `stall_timeout_s`: a process that is paused in it would hold its locks,
        and stop the process that takes over. Raises MissingExtraError.
        """
        self._psycopg: Any = extra_module("psycopg", "postgres", user)
        self._conninfo = conninfo
        self._stall_timeout_ms = max(1, int(stall_timeout_s * 1000))
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        """A cursor in a transaction, which is committed at the end and rolled back by an exception.

        Raises RetriableError where the server is away, or has ended the transaction for another one (deadlock,
        serialization failure): the transaction may have been committed if its end was lost.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor
        except self._psycopg.Error as error:
            passes = isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
            if not passes and self._connection is not None and not self._connection.closed:
                raise
            self.close()
            raise RetriableError(f"PostgreSQL: {error}") from error

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        made: psycopg.Connection[tuple[Any, ...]] = self._psycopg.connect(self._conninfo, autocommit=True)
        made.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false)", (str(self._stall_timeout_ms),)
        )
        return made

    def close(self) -> None:
        """Close the connection; the next transaction opens another one."""
        if self._connection is not None:
            with contextlib.suppress(self._psycopg.Error):
                self._connection.close()
            self._connection = None
