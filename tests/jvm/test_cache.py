"""The contents of the cache are complete, with any number of fetchers and however a fetch ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.jvm.cache import FetchError, cache_folder, obtain, run_quietly
from tests.jvm.jars import PINNED, classpath
from tests.jvm.java import find_java, java_home
from tests.jvm.trust import key_store


def test_the_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "odradek"
    assert cache_folder().is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "odradek"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match=r"cannot create .*file/odradek.*XDG_CACHE_HOME"):
        cache_folder()


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half.jar").touch()
        raise FetchError("the network went away")

    with pytest.raises(FetchError, match="went away"):
        obtain(tmp_path / "jars", "1", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".jars.lock"]


def test_another_stamp_is_fetched_anew_and_the_same_is_not(tmp_path: Path) -> None:
    fetched: list[str] = []

    def get(stamp: str) -> Path:
        def fill(folder: Path) -> None:
            fetched.append(stamp)
            (folder / f"{stamp}.jar").touch()

        return obtain(tmp_path / "jars", stamp, fill)

    for stamp in ("one", "one", "two", "two"):
        assert [path.name for path in get(stamp).glob("*.jar")] == [f"{stamp}.jar"]
    assert fetched == ["one", "two"]


def test_of_many_fetchers_one_fetches(tmp_path: Path) -> None:
    fetched: list[Path] = []
    together = threading.Barrier(8)

    def get() -> None:
        together.wait()
        obtain(tmp_path / "jars", "1", fetched.append)

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1


def test_a_failing_command_is_reported_in_one_line() -> None:
    script = "import sys; print('working'); print('[ERROR] no such artifact'); print('ERRORS'); sys.exit(1)"
    with pytest.raises(FetchError) as caught:
        run_quietly([sys.executable, "-c", script], failure="could not fetch")
    assert str(caught.value) == "could not fetch: [ERROR] no such artifact"


def test_only_pinned_releases_are_available() -> None:
    with pytest.raises(FetchError, match=r"Kafka 1\.0\.0 is not pinned; pinned are .*2\.8\.2, 3\.9\.2, 4\.3\.0"):
        classpath("1.0.0")


@pytest.mark.jvm
@pytest.mark.parametrize("version", PINNED)
def test_the_class_path_holds_the_release_and_one_logging_backend(version: str) -> None:
    names = [path.name for path in classpath(version)]
    assert {f"{artifact.name}-{artifact.version}.jar" for artifact in PINNED[version]} <= set(names)
    backends = [name for name in names if name.startswith(("slf4j-", "logback-")) and "-api-" not in name]
    alone = version in ("jmx-exporter", "spark-4.2.0", "spark-files")  # their runtime has its own
    assert backends == ([] if alone else ["slf4j-simple-1.7.36.jar"])


@pytest.mark.jvm
def test_java_reads_our_key_store(tmp_path: Path) -> None:
    keytool = java_home(find_java()) / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip(f"{keytool} is not there: the runtime from PyPI comes without it")
    subprocess.run(
        [
            *(keytool, "-genkeypair", "-keyalg", "EC", "-dname", "CN=Somebody", "-alias", "own"),
            *("-storepass", "changeit", "-keystore", tmp_path / "own.p12", "-storetype", "PKCS12"),
        ],
        check=True,
        capture_output=True,
    )
    certificate = subprocess.run(
        [keytool, "-exportcert", "-alias", "own", "-storepass", "changeit", "-keystore", tmp_path / "own.p12"],
        check=True,
        capture_output=True,
    ).stdout
    (tmp_path / "trusted.jks").write_bytes(key_store([certificate, certificate]))
    listed = subprocess.run(
        [keytool, "-list", "-storepass", "changeit", "-keystore", tmp_path / "trusted.jks"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "Your keystore contains 2 entries" in listed
    assert listed.count("trustedCertEntry") == 2
