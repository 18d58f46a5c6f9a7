"""The hook of MkDocs (mkdocs.yml) that gives every page of the site the path that it has in the repository.

A link between pages, or from a page to a source file, is then the same text in both places. MkDocs reads one folder,
docs/; this adds that folder's name to the paths, and the files outside of it.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
    "tests/README.md",
    "streams/examples/*.py",
)
"""Pages outside of docs/, and the files that pages link to."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The files of docs/ below docs/, those of OUTSIDE, and the theme's own."""
    docs = Path(config.docs_dir)
    found = [path for path in docs.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    found += [path for pattern in OUTSIDE for path in ROOT.glob(pattern)]
    site = [File(str(path.relative_to(ROOT)), str(ROOT), config.site_dir, config.use_directory_urls) for path in found]
    return Files([*site, *(file for file in files if file.src_dir != str(docs))])
