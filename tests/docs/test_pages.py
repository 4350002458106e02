"""Every example of the documentation runs; what it names exists."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from docs.links import anchors_of, is_elsewhere, targets_of
from tests.docs.pages import LANGUAGES, ROOT, RUN_HERE, Runner, blocks_of, examples, pages, site_pages, text_of

PAGES = pages()
RUN = {page: [b for b in blocks_of(page, text_of(page)) if b.language in ("python", "console")] for page in PAGES}
WITH_SPARK = [page for page in PAGES if any(block.needs_spark for block in RUN[page])]
WITHOUT_SPARK = [page for page in PAGES if any(not block.needs_spark for block in RUN[page])]


def run(page: str, directory: Path, *, spark: bool) -> None:
    """Run a page's blocks in order; without Spark, those that need none."""
    runner, skipped = Runner(directory), False
    if page in examples():
        shutil.copytree((ROOT / page).parent, directory, dirs_exist_ok=True)
    with runner.entered():
        for block in blocks_of(page, text_of(page)):
            if block.language != "text":
                skipped = block.needs_spark and not spark
            if not skipped or block.file is not None:
                runner.run(block, spark=spark)


def marked(page: str) -> Any:
    """A page with what its examples are known to leave behind.

    From Python 3.13 on, SQLite warns of a connection that nobody closes, as that of a simulated process that is killed.
    """
    left = "ignore:unclosed database:ResourceWarning"
    return pytest.param(page, marks=pytest.mark.filterwarnings(left)) if page == "docs/simulator.md" else page


@pytest.mark.slow
@pytest.mark.parametrize("page", [marked(page) for page in WITHOUT_SPARK])
def test_the_examples_of_a_page_run_in_their_order(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, spark=False)


def as_it_takes(page: str) -> Any:
    """A page with the mark of a campaign if it starts programs that have a JVM, each of which takes many seconds."""
    starts = any(block.starts_programs for block in RUN[page])
    return pytest.param(page, marks=pytest.mark.campaign) if starts else page


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", [as_it_takes(page) for page in WITH_SPARK])
@pytest.mark.usefixtures("spark")
def test_the_examples_of_a_page_run_on_spark(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, spark=True)


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_names_its_language(page: str) -> None:
    text = text_of(page)
    blocks = blocks_of(page, text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks), f"{page}: a fence without its language"
    unknown = [f"{block.place}: {block.language}" for block in blocks if block.language not in LANGUAGES]
    assert not unknown


@pytest.mark.parametrize("page", site_pages())
def test_links_and_pictures_have_existing_targets(page: str) -> None:
    here = (ROOT / page).parent
    for target in targets_of(text_of(page)):
        if is_elsewhere(target):
            continue
        path, _, anchor = target.partition("#")
        file = (here / path).resolve() if path else ROOT / page
        assert file.exists(), f"{page} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors_of(file.read_text(encoding="utf-8")), (
                f"{page} links to {target}: there is no such heading"
            )


def test_every_test_that_a_page_quotes_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    quoted = {(page, name) for page in PAGES for name in re.findall(r"`(test_\w+)`", text_of(page))}
    missing = sorted((page, name) for page, name in quoted if name not in defined)
    assert not missing, f"promises that no test keeps any more: {missing}"


def test_every_file_that_a_page_names_exists() -> None:
    named = {
        (page, path)
        for page in PAGES
        for path in re.findall(r"`((?:scripts|examples|sparkbolt|tests|docs|benchmarks)/[\w./]+)`", text_of(page))
    }
    missing = sorted((page, path) for page, path in named if not (ROOT / path).exists())
    assert not missing


# ---- the runner itself


def test_a_different_output_is_named_with_its_position(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    printing, output = blocks_of("p.md", "```python\nprint(1)\n```\n```text output\n2\n```\n")
    runner.run(printing)
    with pytest.raises(AssertionError, match=r"p\.md:5: the page says"):
        runner.run(output)


def test_a_run_executes_in_this_process_and_the_shell_gets_its_output_and_its_exit_code(tmp_path: Path) -> None:
    text = '```console\n$ sparkbolt run no_such_module:topology 2>said.txt || echo "exit code $?"\nexit code 2\n'
    text += "$ cat said.txt\nsparkbolt: there is no module 'no_such_module' in ...\n```\n"
    runner = Runner(tmp_path)
    with runner.entered():
        for block in blocks_of("p.md", text):
            runner.run(block)
    in_this_process = {
        "sparkbolt run a:b": "run a:b",
        "sparkbolt run a:b --json 2>/dev/null": "run a:b --json",
        "sparkbolt run a:b --detach": None,
        "sparkbolt list": None,
    }
    for command, arguments in in_this_process.items():
        match = RUN_HERE.fullmatch(command)
        assert (match and match[1]) == arguments
