"""Callback handlers of Java's SASL classes, in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jpype

from tests.security.kafka_classes import KafkaClasses


def handler(classes: KafkaClasses, **on: Callable[[Any], None]) -> Any:
    """An AuthenticateCallbackHandler that calls `on` by the simple name of each callback's class."""

    def handle(callbacks: Any) -> None:
        for callback in callbacks:
            name = str(callback.getClass().getSimpleName())
            if name not in on:
                raise jpype.JClass("javax.security.auth.callback.UnsupportedCallbackException")(callback)
            on[name](callback)

    methods = {"handle": handle, "close": lambda: None, "configure": lambda *_: None}
    return jpype.JProxy(classes.common("security.auth.AuthenticateCallbackHandler"), dict=methods)
