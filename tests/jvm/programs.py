"""Java programs of the tests, compiled once: a JVM that starts from a source compiles it each time, which takes it ten
times as long as starting.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import zipfile
from pathlib import Path

from tests.jvm.cache import cache_folder, obtain, run_quietly
from tests.jvm.jars import classpath
from tests.jvm.java import find_java


@functools.cache
def compiled(version: str, source: Path) -> Path:
    """The jar of a program in one file, compiled for the jars of Kafka `version`; its main class has the file's name.

    Raises FetchError where it cannot be compiled.
    """
    text, jars, java = source.read_bytes(), ":".join(map(str, classpath(version))), find_java()
    stamp = f"{java.resolve()}\n{jars}\n{hashlib.sha256(text).hexdigest()}"

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="odradek-classes-") as classes:
            compiler = [str(java), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-Xlint:none"]
            command = [*compiler, "-cp", jars, "-d", classes, str(source)]
            run_quietly(command, failure=f"{source.name} cannot be compiled for {version}")
            with zipfile.ZipFile(folder / "program.jar", "w") as jar:
                for each in sorted(Path(classes).rglob("*.class")):
                    jar.write(each, each.relative_to(classes))

    name = f"{source.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    return obtain(cache_folder() / "programs" / name, stamp, fill) / "program.jar"
