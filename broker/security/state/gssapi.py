"""SASL/GSSAPI, RFC 4752: Kerberos (Java: GssKrb5Server, GssKrb5Client).

    client: AP-REQ                                    server: AP-REP
    client: empty                                     server: wrapped: the security layers, the largest message
    client: wrapped: its choice, authorization id     server: nothing

Kafka uses no security layer: with SASL_SSL, TLS protects the requests. The tokens are those of a GSSAPI library, behind
`GssContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from odradek.protocol.sasl.exchange import IllegalSaslStateError, SaslError

MECHANISM: Final = "GSSAPI"
NO_LAYER: Final = 1
"""The bit of a choice without a security layer."""
_NO_LAYER_MESSAGE: Final = bytes((NO_LAYER, 0, 0, 0))
"""That choice with the size 0, which RFC 4752 requires without a layer."""


class GssContext(Protocol):
    """The security context of one end (GSSAPI: gss_ctx_id_t). Every method raises SaslError, and may block."""

    @property
    def complete(self) -> bool:
        """Whether both ends are authenticated."""
        ...

    @property
    def initiator(self) -> str:
        """The Kerberos principal of the client, once the context is complete."""
        ...

    def step(self, token: bytes | None) -> bytes | None:
        """Take a token of the other end; return the token to send, if there is one."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """A message with its integrity protected."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """The content of such a message."""
        ...


class GssapiState(Enum):
    """What an exchange waits for."""

    TOKEN = auto()
    EMPTY_MESSAGE = auto()
    CHOICE = auto()
    COMPLETE = auto()
    FAILED = auto()


class GssapiServer:
    """The server's side of one exchange. After an error it accepts nothing."""

    credential_expiry_ms: int | None = None
    """Kafka sets none: a session may outlive the ticket, unless connections.max.reauth.ms limits it."""
    token_authenticated = False

    def __init__(self, context: GssContext, user_of: Callable[[str], str]) -> None:
        """`user_of` maps the name of a Kerberos principal to a user. It raises SaslError."""
        self.state = GssapiState.TOKEN
        self.authorization_id = ""
        self._context = context
        self._user_of = user_of

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""
        return self.state is GssapiState.COMPLETE

    def evaluate(self, response: bytes) -> bytes | None:
        """The challenge after a message of the client; None after its last one. Raises SaslError."""
        try:
            match self.state:
                case GssapiState.TOKEN:
                    return self._evaluate_token(response)
                case GssapiState.EMPTY_MESSAGE:
                    return self._offer_layers(response)
                case GssapiState.CHOICE:
                    self._evaluate_choice(response)
                    return None
            raise IllegalSaslStateError(f"Unexpected message in the state {self.state.name} of SASL/GSSAPI")
        except SaslError:
            self.state = GssapiState.FAILED
            raise

    def _evaluate_token(self, response: bytes) -> bytes:
        if not response:  # a library may answer it with the mechanisms that it could negotiate
            raise SaslError("The first message of SASL/GSSAPI is empty")
        token = self._context.step(response)
        if not self._context.complete:
            return token or b""
        if not token:
            return self._offer_layers(b"")
        self.state = GssapiState.EMPTY_MESSAGE
        return token

    def _offer_layers(self, response: bytes) -> bytes:
        if response:
            raise SaslError("Handshake expecting no response data from the client")
        self.state = GssapiState.CHOICE
        return self._context.wrap(_NO_LAYER_MESSAGE)

    def _evaluate_choice(self, response: bytes) -> None:
        """The client may name an authorization id; as in Kafka, it does not count."""
        choice = self._context.unwrap(response)
        if len(choice) < len(_NO_LAYER_MESSAGE) or choice[0] != NO_LAYER:
            raise SaslError("Client selected unsupported protection")
        self.authorization_id = self._user_of(self._context.initiator)
        self.state = GssapiState.COMPLETE


class GssapiClient:
    """The client's side of one exchange, for connections to other brokers."""

    def __init__(self, context: GssContext) -> None:
        self.complete = False
        self._context = context

    def first_message(self) -> bytes:
        """The message that begins the exchange. Raises SaslError."""
        return self._context.step(None) or b""

    def evaluate(self, challenge: bytes) -> bytes:
        """The message after a challenge. Raises SaslError."""
        context = self._context
        if not context.complete:
            return context.step(challenge) or b""
        layers = context.unwrap(challenge)
        if len(layers) != len(_NO_LAYER_MESSAGE) or not layers[0] & NO_LAYER:
            raise SaslError("The server requires a security layer of SASL/GSSAPI")
        self.complete = True
        return context.wrap(_NO_LAYER_MESSAGE)
