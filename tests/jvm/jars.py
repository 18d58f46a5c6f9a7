"""The jars of the stock Kafka releases that Odradek is compared with, pinned and fetched once.

Maven fetches them where it is installed. Elsewhere Apache Ivy does, whose jar PySpark carries: an installed PySpark
gives it, or the package's archive from PyPI, of which only that one jar is kept. Both resolve the releases' own
dependency lists.

The tools log through slf4j. In place of each release's own backend stands slf4j-simple: it writes to stderr, is set by
one system property and starts at once.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from tests.jvm.cache import FetchError, Say, cache_folder, holds, obtain, run_quietly, say_to_stderr
from tests.jvm.java import find_java, is_from_pypi, java_home
from tests.jvm.trust import trust_options

MAVEN_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
MAVEN_UNPACK_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
"""Later releases also read the parent POM of what they unpack, which a mirror need not have."""
PYSPARK = "pyspark==4.2.0"


class Artifact(NamedTuple):
    """A Maven coordinate. Printed as Maven prints it."""

    group: str
    name: str
    version: str

    def __str__(self) -> str:
        return ":".join(self)


_KAFKA = "org.apache.kafka"
_LOGGING = Artifact("org.slf4j", "slf4j-simple", "1.7.36")
# Kafka's classes up to 3.9 name log4j 1 ones, so those must be loadable; 2.8 leaves them to its distribution.
_LOG4J_CLASSES = Artifact("ch.qos.reload4j", "reload4j", "1.2.25")

PINNED: dict[str, tuple[Artifact, ...]] = {
    # The last of the releases without record batches; it brings its own log4j.
    "0.10.2.2": (Artifact(_KAFKA, "kafka_2.11", "0.10.2.2"), _LOGGING),
    # The oldest releases whose tools and clients are documented to work; 2.2.2 also writes the oldest data directory.
    "0.11.0.3": (Artifact(_KAFKA, "kafka_2.11", "0.11.0.3"), _LOGGING),
    "1.1.1": (Artifact(_KAFKA, "kafka_2.11", "1.1.1"), _LOGGING),
    # ZooKeeper 3.4.11 to 3.4.14 cannot resolve an address on Java 14 and newer, so an earlier one takes its place.
    "2.2.2": (
        Artifact(_KAFKA, "kafka_2.12", "2.2.2"),
        Artifact("org.apache.zookeeper", "zookeeper", "3.4.10"),
        _LOG4J_CLASSES,
        _LOGGING,
    ),
    "2.8.2": (Artifact(_KAFKA, "kafka_2.13", "2.8.2"), _LOG4J_CLASSES, _LOGGING),
    "3.9.2": (
        Artifact(_KAFKA, "kafka_2.13", "3.9.2"),
        Artifact(_KAFKA, "kafka-tools", "3.9.2"),
        _LOG4J_CLASSES,
        _LOGGING,
    ),
    "4.3.0": (Artifact(_KAFKA, "kafka_2.13", "4.3.0"), Artifact(_KAFKA, "kafka-tools", "4.3.0"), _LOGGING),
    # Without the tools, which do not use the connectors, nor RocksDB's 60 MB.
    "connect-3.9.2": (
        Artifact(_KAFKA, "connect-runtime", "3.9.2"),
        Artifact(_KAFKA, "connect-file", "3.9.2"),
        Artifact(_KAFKA, "connect-mirror", "3.9.2"),
        _LOG4J_CLASSES,
        _LOGGING,
    ),
    "streams-3.9.2": (
        Artifact(_KAFKA, "kafka-streams", "3.9.2"),
        # TopologyTestDriver: the reference of the streams runtime in tests/streams.
        Artifact(_KAFKA, "kafka-streams-test-utils", "3.9.2"),
        _LOGGING,
    ),
    "streams-1.1.1": (Artifact(_KAFKA, "kafka-streams", "1.1.1"), _LOGGING),
    # The Kafka clients of Spark's jobs; Spark itself comes with PySpark, and brings the logging.
    "spark-4.2.0": (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
        Artifact(_KAFKA, "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    # Hadoop forks a chmod for each file that it makes; with these classes Java makes files itself.
    "spark-files": (Artifact("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0"),),
    # The Java libraries of the formats of a schema registry; Confluent's serializers are in a repository of their own.
    "formats": (
        Artifact("org.apache.avro", "avro", "1.12.1"),
        Artifact("com.google.protobuf", "protobuf-java", "4.33.5"),
        _LOGGING,
    ),
    "jmx-exporter": (Artifact("io.prometheus.jmx", "jmx_prometheus_javaagent", "0.20.0"),),
}
APICURIO = Artifact("io.apicurio", "apicurio-registry-app", "3.0.9")
"""A schema registry: a program with its jars, in the artifact with the classifier `all`. Later ones need Java 21."""

# A pinned artifact is taken without its dependencies: those come with PySpark, and Spark's projects name a repository
# of their own for them, which need not be reachable.
_COMPLETE = frozenset({"spark-4.2.0", "spark-files"})
# Backends of slf4j that come with the releases: with two on one class path it warns on every start.
_EXCLUDED = (("org.slf4j", "slf4j-reload4j"), ("org.slf4j", "slf4j-log4j12"), ("ch.qos.logback", "logback-classic"))
_JARS = "jars"


def classpath(version: str, say: Say = say_to_stderr) -> list[Path]:
    """The jars of Kafka `version` (a key of PINNED), fetched if need be.

    Raises FetchError, in one line, if they are not available.
    """
    if version not in PINNED:
        raise FetchError(f"Kafka {version} is not pinned; pinned are {', '.join(PINNED)}")

    def fill(folder: Path) -> None:
        _fetch(version, folder, say)

    return sorted(obtain(_folder(version), _stamp(version), fill).glob("*.jar"))


def fetch_all(say: Say = say_to_stderr) -> int:
    """Fetch the jars of all pinned releases that are not in the cache, and return how many jars there are.

    Maven fetches them in one run: most of the time of a run for one release is the start of Maven itself.

    Raises FetchError, in one line, if they are not available.
    """
    missing = [version for version in PINNED if not holds(_folder(version), _stamp(version))]
    maven = shutil.which("mvn")
    if maven and len(missing) > 1:
        say(f"fetching the jars of Kafka {', '.join(missing)} with Maven (once)")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            _fetch_with_maven(maven, missing, Path(scratch))
            for version in missing:
                obtain(_folder(version), _stamp(version), partial(_move_jars, version, Path(scratch)))
    return sum(len(classpath(version, say)) for version in PINNED)


def _folder(version: str) -> Path:
    return cache_folder() / "jars" / version


def _stamp(version: str) -> str:
    return "\n".join(map(str, PINNED[version]))


def unpacked(program: Artifact, say: Say = say_to_stderr) -> Path:
    """The folder of a program that is published with its jars as `all.tar.gz`, fetched if need be.

    Raises FetchError, in one line, if it is not available. Maven alone can fetch it.
    """

    def fill(folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise FetchError(f"no Maven on this machine to fetch {program}")
        say(f"fetching {program} with Maven (once)")
        with tempfile.TemporaryDirectory() as scratch:
            pom = Path(scratch) / "pom.xml"  # a project of its own, in whose folder the plugin leaves its marks
            pom.write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                "<groupId>odradek</groupId><artifactId>program</artifactId><version>1</version>"
                "<packaging>pom</packaging></project>"
            )
            run_quietly(
                [
                    *(maven, "-q", "-B", "-f", str(pom), f"{MAVEN_UNPACK_PLUGIN}:unpack"),
                    *(f"-Dartifact={program}:tar.gz:all", f"-DoutputDirectory={folder}"),
                ],
                failure=f"Maven could not fetch {program}",
                environment=_maven_environment(Path(scratch)),
            )

    return obtain(cache_folder() / "programs" / f"{program.name}-{program.version}", str(program), fill)


def _fetch(version: str, folder: Path, say: Say) -> None:
    maven = shutil.which("mvn")
    say(f"fetching the jars of Kafka {version} with {'Maven' if maven else 'the Ivy inside PySpark'} (once)")
    if maven:
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _fetch_with_maven(maven, [version], Path(scratch))
            _move_jars(version, Path(scratch), folder)
    else:
        _fetch_with_ivy(_ivy_jar(say), PINNED[version], folder, transitive=version not in _COMPLETE)
        _check(version, folder)
    say(f"Kafka {version}: {len(list(folder.glob('*.jar')))} jars")


def _check(version: str, folder: Path) -> None:
    wanted = {f"{artifact.name}-{artifact.version}.jar" for artifact in PINNED[version]}
    missing = sorted(wanted - {path.name for path in folder.iterdir()})
    if missing:
        raise FetchError(f"the jars of Kafka {version} were fetched without {', '.join(missing)}; try again")


def _move_jars(version: str, fetched: Path, folder: Path) -> None:
    """Move what `_fetch_with_maven` has left in `fetched` for a release."""
    for jar in (fetched / version / _JARS).glob("*.jar"):
        jar.rename(folder / jar.name)
    _check(version, folder)


def _fetch_with_maven(maven: str, versions: Sequence[str], folder: Path) -> None:
    """A project with a module for each release, whose jars are in `folder/<version>/jars` afterwards."""
    modules = "".join(f"<module>{version}</module>" for version in versions)
    (folder / "pom.xml").write_text(_pom("all", f"<modules>{modules}</modules>"))
    for version in versions:
        excluded = (("*", "*"),) if version in _COMPLETE else _EXCLUDED
        exclusions = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, name in excluded
        )
        dependencies = "".join(
            f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId><version>{a.version}</version>"
            f"<exclusions>{exclusions}</exclusions></dependency>"
            for a in PINNED[version]
        )
        (folder / version).mkdir()
        (folder / version / "pom.xml").write_text(_pom(version, f"<dependencies>{dependencies}</dependencies>"))
    run_quietly(
        [
            *(maven, "-q", "-B", "-T", "2", "-f", str(folder / "pom.xml")),
            *(f"{MAVEN_DEPENDENCY_PLUGIN}:copy-dependencies", "-DincludeScope=runtime"),
            f"-DoutputDirectory={_JARS}",  # relative to each module
        ],
        failure="Maven could not fetch the jars",
        environment=_maven_environment(folder),
    )


def _pom(name: str, content: str) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>odradek</groupId><artifactId>jars-{name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging>{content}</project>"
    )


def _maven_environment(scratch: Path) -> dict[str, str]:
    """Maven on its own may find another Java than the tests', or none."""
    java = find_java()
    environment = {**os.environ, "JAVA_HOME": str(java_home(java))}
    if is_from_pypi(java):
        environment["MAVEN_OPTS"] = " ".join([*trust_options(scratch), os.environ.get("MAVEN_OPTS", "")])
    return environment


def _fetch_with_ivy(ivy: Path, artifacts: tuple[Artifact, ...], folder: Path, *, transitive: bool) -> None:
    # Forced: of two versions Ivy takes the newer one, Maven the one that is requested here.
    conf = f"conf='default->default' force='true' transitive='{str(transitive).lower()}'"
    dependencies = "".join(f"<dependency org='{a.group}' name='{a.name}' rev='{a.version}' {conf}/>" for a in artifacts)
    exclusions = "".join(f"<exclude org='{group}' module='{name}'/>" for group, name in _EXCLUDED)
    with tempfile.TemporaryDirectory() as scratch:
        wanted, settings = Path(scratch) / "ivy.xml", Path(scratch) / "settings.xml"
        wanted.write_text(
            "<ivy-module version='2.0'><info organisation='odradek' module='jars'/>"
            "<configurations><conf name='default'/></configurations>"
            f"<dependencies>{dependencies}{exclusions}</dependencies></ivy-module>"
        )
        settings.write_text(
            # Without the properties Ivy requests sources and documentation of every module: minutes, for nothing.
            "<ivysettings><property name='ivy.maven.lookup.sources' value='false'/>"
            "<property name='ivy.maven.lookup.javadoc' value='false'/><settings defaultResolver='central'/>"
            f"<caches defaultCacheDir={quoteattr(str(Path(scratch) / 'cache'))}/>"
            "<resolvers><ibiblio name='central' m2compatible='true' useMavenMetadata='false'/></resolvers>"
            "</ivysettings>"
        )
        java = find_java()
        trust = trust_options(Path(scratch)) if is_from_pypi(java) else []
        run_quietly(
            [
                *(str(java), *trust, "-cp", str(ivy), "org.apache.ivy.Main"),
                *("-settings", str(settings), "-ivy", str(wanted), "-confs", "default", "-types", "jar", "bundle"),
                *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
            ],
            failure="Ivy could not fetch the jars (installing Maven may help)",
        )


def _ivy_jar(say: Say) -> Path:
    """Apache Ivy: from an installed PySpark, else cut out of the package's archive."""
    package = importlib.util.find_spec("pyspark")
    if package is not None and package.origin is not None:
        for jar in Path(package.origin).parent.glob("jars/ivy-*.jar"):
            return jar

    def fill(folder: Path) -> None:
        say(f"no Maven on this machine: fetching {PYSPARK} from PyPI for its Ivy (about 450 MB, once; one jar is kept)")
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            run_quietly(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "-q",
                    "--no-deps",
                    "--no-binary",
                    "pyspark",
                    "-d",
                    scratch,
                    PYSPARK,
                ],
                failure="no Maven here (install it, for example apt-get install maven), and pip failed",
            )
            (archive,) = Path(scratch).glob("pyspark-*.tar.gz")
            _extract_ivy(archive, folder)

    (jar,) = obtain(cache_folder() / "ivy", PYSPARK, fill).glob("ivy-*.jar")
    return jar


def _extract_ivy(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name.startswith("ivy-") and name.endswith(".jar"):
                content = tar.extractfile(member)
                if content is not None:
                    (folder / name).write_bytes(content.read())
                    return
    raise FetchError(f"{archive.name} holds no Ivy; install Maven")
