"""The site is made without a network, every link in it leads somewhere, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from docs.links import targets_of
from docs.site import OF_THE_ROOT
from tests.docs.pages import ROOT, site_pages, text_of

pytestmark = pytest.mark.slow

URLS = tomllib.loads(text_of("pyproject.toml"))["project"]["urls"]

# Runs a module in a process that may not ask for an address, nor connect.
OFFLINE = """
import runpy, sys

def refuse(event, details):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise SystemExit(f"it wants the network: {event} {details[1:]}")

sys.addaudithook(refuse)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
         "embed": "src", "object": "data", "link": "href", "use": "href", "image": "href"}  # fmt: skip


def offline(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", OFFLINE, *arguments],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


class Page(HTMLParser):
    """One page of the site: its anchors, its links, what it loads, and what stands in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.menu: list[str] = []
        self.loads: list[str] = []
        self.counts: dict[str, int] = {}
        self._in_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found["id"]} if "id" in found else set()
        self._in_article |= tag == "article"
        if self._in_article:
            self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            if "md-nav__link" in found.get("class", ""):
                self.menu.append(found["href"])
        if found.get(LOADS.get(tag, "")):
            self.loads.append(found[LOADS[tag]])
        self.loads += [part.split()[0] for part in found.get("srcset", "").split(",") if part]
        self.loads += re.findall(r"url\(['\"]?([^)'\"]+)", found.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


def place_of(page: str) -> str:
    """Where the site has a page of the repository."""
    return OF_THE_ROOT.get(page, page.removeprefix("docs/")).removesuffix(".md") + ".html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    done = offline("mkdocs", "build", "--site-dir", str(made))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    return made


@pytest.fixture(scope="module")
def html(site: Path) -> dict[str, Page]:
    return {
        str(path.relative_to(site)): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))
    }


def resolved(page: str, target: str) -> tuple[str, str]:
    """(file, anchor) to which a link of a page leads."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    return file.lstrip("/") if file != "/" else "index.html", unquote(parts.fragment)


def is_local(target: str) -> bool:
    parts = urlsplit(target)
    return not parts.scheme and not parts.netloc


def test_every_page_is_in_the_navigation(html: dict[str, Page]) -> None:
    for page in html.keys() - {"404.html"}:
        there = {resolved(page, target)[0] for target in html[page].menu if is_local(target)}
        missing = {place_of(each) for each in site_pages()} - there
        assert not missing, f"the navigation on {page} leaves out {sorted(missing)}: mkdocs.yml"


def test_links_and_anchors_have_existing_targets(html: dict[str, Page], site: Path) -> None:
    broken = []
    for page, found in html.items():
        for target in filter(is_local, found.links):
            file, anchor = resolved(page, target)
            if target in (".", "./", ".."):
                file = posixpath.join(file, "index.html")
            if not (site / file).is_file() or (anchor and anchor not in html[file].anchors):
                broken.append(f"{page} links to {target}")
    assert not broken, "\n".join(broken)


def test_a_link_to_a_file_without_a_page_leads_to_the_source(html: dict[str, Page]) -> None:
    source = URLS["Source"]
    outward = [link for page in html.values() for link in page.links if link.startswith(source + "/")]
    assert f"{source}/blob/HEAD/LICENSE" in outward
    for link in outward:
        kind, head, path = link.removeprefix(source + "/").split("/", 2)
        file = ROOT / path.partition("#")[0]
        assert head == "HEAD"
        assert file.is_dir() if kind == "tree" else file.is_file(), link


def test_nothing_is_loaded_from_another_host(html: dict[str, Page], site: Path) -> None:
    for page, found in html.items():
        for target in found.loads:
            assert is_local(target) or target.startswith("data:"), f"{page} loads {target}"
            if is_local(target) and target not in (".", ""):
                assert (site / resolved(page, target)[0]).exists(), f"{page} loads {target}, which is not there"
    for path in site.rglob("*.css"):
        for target in re.findall(r"(?:url\(|@import )['\"]?([^)'\";]+)", path.read_text(encoding="utf-8")):
            assert is_local(target) or target.startswith("data:"), f"{path.name} loads {target}"
    # By these marks the theme's script would ask the code host for its stars, and another host for what draws diagrams.
    for page in html:
        text = (site / page).read_text(encoding="utf-8")
        assert 'data-md-component="source"' not in text, page
        assert 'class="mermaid"' not in text, f"{page}: a diagram is drawn by a script from elsewhere; make a picture"


@pytest.mark.parametrize("page", site_pages())
def test_a_page_has_on_the_site_what_it_has_on_the_code_host(html: dict[str, Page], page: str) -> None:
    found = html[place_of(page)]
    host = Page(f"<article>{MarkdownIt('commonmark').enable('table').render(text_of(page))}</article>")
    for tag in ("h1", "h2", "h3", "h4", "li", "table", "tr", "pre", "img"):
        assert found.counts.get(tag, 0) == host.counts.get(tag, 0), (
            f"{page}: <{tag}>; is there an empty line before each list, and are four spaces before what is in an item?"
        )
    assert len(targets_of(text_of(page))) == host.counts.get("a", 0) + host.counts.get("img", 0)
