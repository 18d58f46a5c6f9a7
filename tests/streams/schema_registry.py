"""A schema registry for tests: the part of Confluent's REST API that serializers use, in a thread.

The requests come from Confluent's client for Python, the bytes are checked with the Java libraries of the formats, and
this server only stores schemas under ids and subjects, so it starts at once. test_serdes_apicurio.py has a registry by
others, Apicurio's.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class SchemaStore:
    """Schemas by id, and the ids of each subject in the order of their versions."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.users: set[str | None] = set()
        """The credentials of requests, as their headers have them."""
        self.rejected: set[str | None] = set()
        """Credentials that get 401."""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema, the same for every subject that has it."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def version(self, subject: str, number: int) -> dict[str, Any]:
        """The description of the version of a subject that has the schema of an id. Raises KeyError."""
        versions = self.subjects[subject]
        if number not in versions:
            raise KeyError(number)
        return {"subject": subject, "id": number, "version": versions.index(number) + 1, **self.schemas[number - 1]}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """The response to a request. Raises LookupError for what is not there."""
        self.requests.append(f"{method} {path}")
        parts = ("schema", "schemaType", "references")
        schema = {"schemaType": "AVRO", **{name: body[name] for name in parts if body.get(name)}}
        match method, path.strip("/").split("/"):
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self.register(subject, schema)}
            case "POST", ["subjects", subject]:
                if schema not in self.schemas:
                    raise LookupError("Schema not found")
                return self.version(subject, self.schemas.index(schema) + 1)
            case "GET", ["subjects"]:
                return sorted(self.subjects)
            case "GET", ["subjects", subject, "versions", "latest"]:
                return self.version(subject, self.subjects[subject][-1])
            case "GET", ["subjects", subject, "versions", number]:
                return self.version(subject, self.subjects[subject][int(number) - 1])
            case "GET", ["schemas", "ids", number]:
                return self.schemas[int(number) - 1]
        raise LookupError(path)


class SchemaRegistryServer:
    """The server: `with SchemaRegistryServer() as registry: registry.url`."""

    def __init__(self) -> None:
        self.store = store = SchemaStore()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                user = self.headers.get("Authorization")
                store.users.add(user)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    content = json.loads(body) if body else {}
                    status, answer = 200, store.answer(self.command, self.path.partition("?")[0], content)
                except LookupError as error:
                    status, answer = 404, {"error_code": 40401, "message": str(error)}
                if user in store.rejected:
                    status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - the name that the base class calls

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> SchemaRegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
