"""The documentation site: it builds without a warning, and its navigation reaches every page of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from tests.vocabulary import tracked

ROOT = Path(__file__).resolve().parents[2]


class Links(HTMLParser):
    """The targets of a page's links, pictures, scripts and styles, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors.add(attributes.get("id") or "")
        target = attributes.get("src") or attributes.get("href")
        if target is not None:
            (self.targets if tag == "a" else self.loaded).add(target)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, in the repository at `root`."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def pages() -> list[str]:
    """Every page of the repository."""
    return sorted(path.relative_to(ROOT).as_posix() for path in tracked() if path.suffix == ".md")


def rendered(site: Path, page: str) -> Path:
    """The file of a page on the site."""
    folder = re.sub(r"(^|/)README$", "", page.removesuffix(".md"))
    return site / folder / "index.html"


def target_of(page: Path, link: str) -> Path:
    """The file of the site that a relative link names."""
    path = (page.parent / link).resolve()
    return path / "index.html" if path.is_dir() else path


@pytest.mark.slow
def test_the_navigation_reaches_every_page(site: Path) -> None:
    home = site / "index.html"
    reached = {target_of(home, urldefrag(link).url) for link in Links(home).targets if "://" not in link}
    assert {page for page in pages() if rendered(site, page) not in reached} == set()


@pytest.mark.slow
def test_every_link_names_a_file_and_an_anchor_of_the_site(site: Path) -> None:
    links = {path: Links(path) for path in site.rglob("index.html")}
    wrong = []
    for path, found in links.items():
        for link in found.targets:
            url, anchor = urldefrag(link)
            if "://" in url:
                continue
            target = target_of(path, url) if url else path
            if not target.exists() or (anchor and anchor not in links[target].anchors):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = {target for path in site.rglob("*.html") for target in Links(path).loaded}
    assert loaded
    assert {target for target in loaded if "//" in target} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"@import|url\(.?(?:https?:)?//", styles) == []


def test_the_index_of_docs_lists_every_page_of_docs() -> None:
    linked = re.findall(r"\]\(([a-z-]+\.md)\)", (ROOT / "docs" / "README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in (ROOT / "docs").glob("[a-z]*.md"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "text", "warning"),
    [
        ("docs/soak.md", "\n[a page](lost.md)\n", "lost.md"),
        ("docs/soak.md", "\n[an anchor](spark.md#lost)\n", "#lost"),
        ("docs/lost.md", "# Lost\n", 'not included in the "nav"'),
    ],
)
def test_a_broken_link_or_a_page_outside_the_navigation_ends_the_build(
    tmp_path: Path, page: str, text: str, warning: str
) -> None:
    for folder in ("docs", "streams/examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "LICENSE", *(each for each in pages() if not each.startswith("docs/"))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / page).open("a") as changed:
        changed.write(text)
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert warning in built.stderr
    assert built.stderr.count("WARNING -") == 1
