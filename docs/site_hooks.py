"""What the site has that ``docs/`` has not: README, CONTRIBUTING, the change log, examples.

Pages link to files of the repository as they lie there; on the site these lie beside the
pages, and links are turned to them.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any, Final

from changelog import changelog

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {"about.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
"""Pages of the site, and the files that they are; a README would be the folder's index."""
FOLDERS: Final = ("examples", "deploy")
PLAIN: Final = ("Containerfile", "LICENSE", "Makefile", "constraints.txt")
CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?\)")
LISTED: Final = ("concepts", "reference", "results", "design")
ALONE: Final = (
    "architecture.md",
    "glossary.md",
    "critique.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs has no types
    """List the pages of folders that grow, after those that are listed by hand."""
    (guides,) = [part["Guides"] for part in config["nav"] if "Guides" in part]
    by_hand = str(config["nav"])
    for page in sorted((ROOT / "docs" / "guides").glob("*.md")):
        if f"guides/{page.name}" not in by_hand:
            guides.append(f"guides/{page.name}")
    for folder in LISTED:
        pages = sorted((ROOT / "docs" / folder).glob("*.md"))
        names = [page.relative_to(ROOT / "docs").as_posix() for page in pages]
        config["nav"].append({folder.capitalize(): names})
    config["nav"].append({"More": list(ALONE)})
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401
    """Add what lies outside of ``docs``."""
    from mkdocs.structure.files import File

    made = {page: (ROOT / of).read_text(encoding="utf-8") for page, of in PAGES.items()}
    made["CHANGELOG.md"] = changelog()
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                made[file.relative_to(ROOT).as_posix()] = file.read_text(encoding="utf-8")
    for name in PLAIN:
        made[name] = (ROOT / name).read_text(encoding="utf-8")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401
    """Turn links that leave ``docs`` to where their files are on the site."""
    uri = page.file.src_uri
    where = "" if uri in (*PAGES, "CHANGELOG.md") else dirname(join("docs", uri))
    parts = CODE.split(markdown)
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda one: _turned(one, uri, where), part)
        for part in parts
    )


def _turned(link: "re.Match[str]", uri: str, where: str) -> str:
    head, target, anchor = link[1], link[2], link[3] or ""
    if "://" in target or target.startswith(("mailto:", "/")):
        return link[0]
    meant = normpath(join(where, target)).removeprefix("docs/")
    meant = "about.md" if meant == "README.md" else meant
    return f"{head}{relpath(meant, dirname(uri) or '.')}{anchor})"
