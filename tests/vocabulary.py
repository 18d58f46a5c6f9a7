"""One vocabulary: the check of `tests.lint` that identifiers, prose and log calls use Kafka's terms.

It reads every tracked file of code and documentation, and it exempts none but this one, which names what it rejects.
`python -m tests.vocabulary PATH...` checks files or folders by themselves.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("broker/", "protocol/", "storage/", "streams/", "spark_jobs/", "odradek/")

IDENTIFIERS: Final = {
    "admission": "validation",
    "believed": "accepted",
    "bury": "write a tombstone",
    "census": "connection quotas",
    "chapter": "scenario",
    "chapters": "scenarios",
    "crew": "members, workers",
    "figures": "metrics",
    "handover": "controlled shutdown, takeover",
    "heard": "received",
    "heeded": "applied",
    "housekeeping": "scheduler",
    "ledger": "pending writes",
    "lifted": "up-converted",
    "lowered": "down-converted",
    "nobody": "no member, none",
    "office": "active controller",
    "patience": "timeout",
    "roster": "members",
    "said": "returned, stated, output",
    "seat": "controller znode",
    "story": "scenario",
    "surroundings": "dependencies",
    "told": "sent, received, notified",
    "twin": "reference implementation",
    "twins": "implementations",
    "whoever": "name the actor",
    "wish": "pending ISR, request",
    "wishes": "requests",
}
"""Words of identifiers (of `snake_case` and `CamelCase`), and what stands in their place."""
BROKER_IDENTIFIERS: Final = {"orders": "control requests", "view": "metadata cache", "roles": "replica manager"}
"""The same in broker/ alone, where they had a meaning of their own."""
PHRASES: Final = {
    r"whoever|whomever|whatever": "name the actor",
    r"nobody|somebody|anybody|everybody": "name the actor: no client, each broker, another thread",
    r"(?<=[.:;] )who|^who": "name the actor",
    r"hears?|heard": "receive, be notified",
    r"tells?|told": "send, return, notify",
    r"says?|said": "return, state, contain",
    r"speaks?|spoke(?!n)": "send requests, use a protocol",
    r"knows?|knew": "have, store, detect",
    r"believe[sd]?": "accept",
    r"heed(?:s|ed)?": "apply",
    r"promise[sd]?": "guarantee",
    r"wish(?:es|ed)?": "request",
    r"figures": "metrics, measurements",
    r"seat": "controller znode",
    r"office": "controller epoch",
    r"rosters?|ledgers?": "members, pending writes",
    r"census": "connection quotas",
    r"bury|buried": "write a tombstone",
    r"admission": "validation",
    r"twins?": "reference implementation",
    r"patience": "timeout",
    r"housekeeping": "scheduler",
    r"in force": "effective",
    r"ours and theirs": "Odradek and Kafka",
}
"""Phrases of prose, as regular expressions of whole words without regard to case, and what stands in their place."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PROSE: Final = re.compile(
    r"(?<![\w`./-])(?:" + "|".join(f"(?:{each})" for each in PHRASES) + r")(?![\w-])", re.I | re.M
)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.S)
_SEVERAL_WORDS: Final = re.compile(r"\bin\W+force\b|\bours\W+and\W+theirs\b", re.I)
"""The phrases of more than one word, also where a text is written in parts."""
_LETTERS: Final = re.compile(r"[A-Za-z]+")
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_LOGGERS: Final = frozenset({"log", "_log", "logger", "_logger"})
_LOG_CALL: Final = re.compile(rf"(?:{'|'.join(_LOGGERS)})\.(?:{'|'.join(_LEVELS)})\(")
_LOG_TEXT: Final = re.compile(r"[A-Za-z][^%=]*[A-Za-z)](?:(?: [a-z_]+=%\S+)+)?")
"""A fixed phrase, then key=value pairs."""


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    what: str


def check_text(path: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Phrases in prose. What stands between backticks is code, not prose."""
    plain = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in _PROSE.finditer(plain):
        instead = next(
            new
            for old, new in PHRASES.items()
            if re.fullmatch(old.replace("^", ""), found[0], re.I) or (found[0].lower() == "who" and "who|" in old)
        )
        yield Finding(path, first_line + plain.count("\n", 0, found.start()), f'"{found[0]}": {instead}')


def check_identifier(path: str, name: str, line: int) -> Iterator[Finding]:
    """The words of one identifier."""
    for word in _WORD.findall(name):
        instead = IDENTIFIERS.get(word.lower())
        if instead is None and path.startswith("broker/"):
            instead = BROKER_IDENTIFIERS.get(word.lower())
        if instead is not None:
            yield Finding(path, line, f"identifier {name}: {instead}")


@cache
def _is_suspect(letters: str, in_broker: bool) -> bool:
    """Whether these letters can be part of a finding."""
    words = [word.lower() for word in _WORD.findall(letters)]
    return any(
        word in IDENTIFIERS or (in_broker and word in BROKER_IDENTIFIERS) or _PROSE.fullmatch(word) for word in words
    )


def _can_have_findings(path: str, source: str) -> bool:
    """Whether a file has to be parsed. Most have no word of those that the rules name, and no log call."""
    if path.startswith(PRODUCT) and _LOG_CALL.search(source):
        return True
    spaced = source.replace("\\n", " ").replace("\\t", " ")  # what is escaped separates words, too
    in_broker = path.startswith("broker/")
    return any(_is_suspect(each, in_broker) for each in set(_LETTERS.findall(spaced))) or bool(
        _SEVERAL_WORDS.search(spaced)
    )


def check_python(path: str, source: str) -> Iterator[Finding]:
    """Identifiers, comments, docstrings, log calls and, in the product, every other text."""
    if not _can_have_findings(path, source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield from check_identifier(path, token.string, token.start[0])
        elif token.type == tokenize.COMMENT:
            yield from check_text(path, token.string, token.start[0])
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in prose or (path.startswith(PRODUCT) and " " in node.value):
                yield from check_text(path, node.value, node.lineno)
        elif path.startswith(PRODUCT) and isinstance(node, ast.Call) and _is_log_call(node.func):
            yield from check_log_call(path, node)


def check_log_call(path: str, call: ast.Call) -> Iterator[Finding]:
    """A log call has a fixed English phrase, so that a line can be searched for, and key=value pairs behind it."""
    first = call.args[0] if call.args else None
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        yield Finding(path, call.lineno, "log call without a fixed phrase")
    elif not _LOG_TEXT.fullmatch(first.value):
        yield Finding(path, call.lineno, f"log call: a fixed phrase, then key=value pairs: {first.value!r}")


def _is_log_call(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in _LEVELS:
        return False
    owner = function.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)) in _LOGGERS


def check(path: Path) -> Iterator[Finding]:
    """One file."""
    name = path.relative_to(ROOT).as_posix()
    if path == Path(__file__).resolve():
        return
    text = path.read_text()
    if name.endswith(".py"):
        yield from check_python(name, text)
    else:
        yield from check_text(name, text)
    for part in Path(name).parts:
        yield from check_identifier(name, part.removesuffix(".py").removesuffix(".md"), 0)


def tracked(*under: str) -> list[Path]:
    """The files that are checked, below these paths; where git does not answer, all files of the source folders."""
    try:
        command = ["git", "ls-files", "-z", "--", *under]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        folders = under or (*PRODUCT, "tests", "docs")
        found = [
            each
            for folder in folders
            for each in ((ROOT / folder).rglob("*") if (ROOT / folder).is_dir() else [ROOT / folder])
        ]
        listed = [path.relative_to(ROOT).as_posix() for path in sorted([*found, *([] if under else ROOT.glob("*.md"))])]
    return [ROOT / name for name in listed if name.endswith((".py", ".md")) and (ROOT / name).exists()]


def main(arguments: list[str]) -> int:
    """Print every finding; the status is 1 where there is one."""
    findings = [each for path in tracked(*arguments) for each in check(path)]
    for path, line, what in findings:
        print(f"{path}:{line}: {what}")
    if findings:
        print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
