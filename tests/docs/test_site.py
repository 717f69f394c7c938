"""The documentation as a site builds without a warning, and loads nothing from elsewhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """What a page loads and leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADS and (target := given.get(LOADS[tag])) is not None:
            self.loads.append(target)
        if tag == "a" and (target := given.get("href")) is not None:
            self.leads.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "docs"), "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Page]]:
    for file in site.rglob("*.html"):
        yield file, Page(file.read_text(encoding="utf-8"))


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    written = {
        page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for page in (ROOT / "docs").rglob("*.md")
    } - {"design/README.html"}

    there = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert written - there == set()
    assert {"about.html", "CHANGELOG.html", "design/index.html"} <= there


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    broken = [
        f"{file.relative_to(site)}: {target}"
        for file, page in pages(site)
        for target in (*page.leads, *page.loads)
        if (path := unquote(urlsplit(target).path))
        and not urlsplit(target).scheme
        and file.name != "404.html"  # its links begin at the root, wherever that will be
        and not (file.parent / path).exists()
    ]
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    foreign = {
        target for _, page in pages(site) for target in page.loads if urlsplit(target).netloc
    }
    assert foreign == set()


def test_words_are_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if "sbatch" in entry["text"]
    }

    assert "guides/from-sbatch.html" in found


def test_the_change_log_has_every_fragment_once() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import changelog; print(changelog.changelog())"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "docs")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    for fragment in (ROOT / "changes").glob("*.md"):
        sentence = " ".join(fragment.read_text(encoding="utf-8").split())
        assert made.count(f"- {sentence}\n") == 1, fragment.name
