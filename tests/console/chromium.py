"""A real browser: Chromium of the system, driven by Playwright, and axe-core, fetched once into the user's cache."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.jvm.cache import FetchError, cache_folder, obtain, run_quietly

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parent / "axe"
SERIOUS = ("serious", "critical")


class AbsentError(Exception):
    """What a browser test needs is not on this machine."""


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Chromium without a window. Raises AbsentError."""
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if path is None:
        raise AbsentError("no Chromium on this machine (Debian: chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise AbsentError(f"no playwright: {error}") from error
    # Chromium's sandbox does not run as root, and /dev/shm of a container may be small.
    arguments = ["--disable-gpu", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@functools.cache
def axe_source() -> str:
    """axe-core's script. Raises AbsentError."""
    npm = shutil.which("npm")
    if npm is None:
        raise AbsentError("no npm on this machine, which fetches axe-core")

    def fill(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(AXE / name, folder)
        run_quietly(
            [npm, "ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"],
            failure="axe-core cannot be fetched",
        )

    stamp = hashlib.sha256((AXE / "package-lock.json").read_bytes()).hexdigest()
    try:
        folder = obtain(cache_folder() / "console" / "axe", stamp, fill)
    except FetchError as error:
        raise AbsentError(str(error)) from error
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def faults_of(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """The serious faults that axe-core finds on a page, by these rules or by all."""
    page.evaluate(axe_source())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]
