"""What the documentation shows is what happens.

Console blocks that begin with ``$ interlane``, ``$ python``, ``$ cat`` or ``$ make demo`` are
run, page by page, in a copy of ``examples``; what they print must be what the page shows.
A command that ends in ``&`` runs until the end of its page.
There ``...`` stands for the rest of a line, and alone on a line for any number of lines.
"""

import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from interlane import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
RUN = ("interlane ", "python ", "cat ", "make demo")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRESS = re.compile(r"^(.*: [\d,]+ of [\d,]+ \w+(, .* left)?|Compiling.*)\n", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands_in(page: str) -> list[tuple[str, str]]:
    """Return the commands that a page runs, each with what it shows."""
    found = []
    for block in BLOCK.findall(text_of(page)):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.replace("\\\n", "").partition("\n")
            if command.startswith(RUN):
                found.append((command, shown))
    return found


def printed(command: str) -> str:
    """Run a command in this process; return what it prints, talk and data in order."""
    said = StringIO()
    name, *words = shlex.split(command, comments=True)
    if words[:2] == ["share", "run"]:  # what it starts writes to descriptors of its own
        return subprocess.run(
            [sys.executable, "-m", "interlane", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout
    with redirect_stdout(said), redirect_stderr(said):
        if name == "cat":
            said.write(Path(words[0]).read_text(encoding="utf-8"))
        elif name == "python":
            runpy.run_path(words[0], run_name="__main__")
        else:
            cli.run(words)
    return without_trailing_space(PROGRESS.sub("", said.getvalue()))


def started(command: str, lines: int, background: ExitStack) -> str:
    """Start a command that runs until the end of the page; return its first lines."""
    words = shlex.split(command)[1:-1]
    process = subprocess.Popen(
        [sys.executable, "-m", "interlane", *words], stderr=subprocess.PIPE, text=True
    )
    background.enter_context(process)
    background.callback(process.terminate)
    assert process.stderr is not None
    return "".join(process.stderr.readline() for _ in range(lines))


def without_trailing_space(text: str) -> str:
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def matches(shown: str, said: str) -> bool:
    lines = [
        r"(?:.*\n)*"
        if line.strip() == "..."
        else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in without_trailing_space(shown).rstrip("\n").split("\n")
    ]
    return re.fullmatch("".join(lines), said.rstrip("\n") + "\n") is not None


@pytest.mark.parametrize("page", [page for page in PAGES if commands_in(page)])
def test_a_page_shows_what_its_commands_print(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLANE_DATA", raising=False)
    monkeypatch.setenv("INTERLANE_STATE", str(tmp_path / "state"))

    with TemporaryDirectory() as near, ExitStack() as background:
        # Where no daemon of the user's listens, by a path that is short enough for a socket.
        monkeypatch.setenv("INTERLANE_SHARE_SOCKET", f"{near}/share.sock")
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        background.callback(end_server, tmp_path / "state")
        for command, shown in commands_in(page):
            if command.endswith("&"):
                said = started(command, shown.count("\n"), background)
            else:
                said = printed(command)
            assert matches(shown, said), f"$ {command}\nprints\n{said}\nnot\n{shown}"


def end_server(state: Path) -> None:
    """End a server that a page began and did not end."""
    if state.exists():
        printed("interlane down")


def test_a_page_that_shows_something_else_is_caught() -> None:
    assert matches("one ...\n...\nfour\n", "one 1.25\ntwo\nthree\nfour\n")
    assert not matches("one\n", "one\ntwo\n")
    assert not matches("one.\n", "one,\n")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(CODE.sub("", text_of(page))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page} links to {link}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


def test_every_page_is_reached_from_the_index() -> None:
    index, notes = text_of("docs/index.md"), text_of("docs/design/README.md")
    pages = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    missing = [
        page
        for page in pages
        if page != "index.md"
        and page not in index
        and not (page.startswith("design/") and page.removeprefix("design/") in notes)
    ]
    assert missing == []


# -- pages made from the code -------------------------------------------------------------


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return loaded(ROOT / "docs" / "generate.py")


def loaded(path: Path) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # as when it is run as a program
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page", ["concepts/jobs-and-states.md", "reference/commands.md", "../README.md"]
)
def test_pages_made_from_the_code_are_up_to_date(
    page: str, generate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # restored afterwards; the generator sets it too
    made, written = generate.made(page), text_of(f"docs/{page}")
    # Which results are older than their code is told when the page is made, not by a test.
    unmarked = generate.results_table.unmarked
    assert unmarked(made) == unmarked(written), "run python docs/generate.py"


def test_the_commands_page_has_every_command(generate: ModuleType) -> None:
    known = {
        command.name or command.callback.__name__
        for command in cli.app.registered_commands
        if command.callback is not None
    }
    groups = {group.name for group in cli.app.registered_groups}
    assert known | groups == {words[0] for words in generate.COMMANDS if words}
