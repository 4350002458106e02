"""The site: what MkDocs is told beyond ``mkdocs.yml``, so that pages are written for the code host alone.

    scripts/docs                   # makes the site from docs/, README.md and their like

Rule 1: a page is written once: README.md is the site's first page, and no page has two versions.
Rule 2: a link to a file of the repository that is no page leads to the file on the code host. A file that does not
exist is a warning, and with ``strict`` a warning ends the build.
Rule 3: a page loads nothing from another host.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

from docs.links import Anchors, is_elsewhere, with_targets

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

# Pages of the repository's root, and what they are called on the site.
OF_THE_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_FENCE = re.compile(r"^```(\w+)((?: [\w./=-]+)+)$", re.MULTILINE)

log = get_plugin_logger("site")


def root_of(config: MkDocsConfig) -> Path:
    """The root of the repository."""
    return Path(config.config_file_path).parent


def on_config(config: MkDocsConfig) -> None:
    """Take from pyproject.toml what is said there."""
    project = tomllib.loads((root_of(config) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.site_description = project["description"]
    config.repo_url = project["urls"]["Source"]
    config.repo_name = "Source"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for page, name in OF_THE_ROOT.items():
        files.append(File.generated(config, name, content=(root_of(config) / page).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where they belong on the site, and leave of a fence what the site understands."""
    name = page.file.src_uri
    written = next((path for path, called in OF_THE_ROOT.items() if called == name), f"docs/{name}")
    # One for each page: the second heading of the same words gets a number.
    config.mdx_configs["toc"]["slugify"] = _slugify(Anchors())

    def changed(target: str) -> str:
        if is_elsewhere(target) or target.startswith("#"):
            return target
        path, mark, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(written), path))
        if file.startswith("../") or not (root_of(config) / file).exists():
            log.warning("%s links to '%s', which does not exist", written, target)
        called = OF_THE_ROOT.get(file, file.removeprefix("docs/"))
        if (file in OF_THE_ROOT or file.startswith("docs/")) and files.get_file_from_path(called):
            return posixpath.relpath(called, posixpath.dirname(name) or ".") + mark + anchor
        kind = "tree" if (root_of(config) / file).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/HEAD/{file}{mark}{anchor}"

    return _FENCE.sub(_fence, with_targets(markdown, changed))


def on_post_page(output: str, **_: Any) -> str:
    """Leave out the mark by which the theme asks the code host, at each visit, for its stars."""
    return output.replace(' data-md-component="source"', "")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for what is no page of ours, such as the one for addresses that do not exist."""
    return on_post_page(output_content)


def _slugify(anchors: Anchors) -> Any:
    return lambda text, separator: anchors(text)


def _fence(found: re.Match[str]) -> str:
    """A fence's words are for the tests, but a file's name is for readers too."""
    named = re.search(r" file=(\S+)", found[2])
    return f"```{found[1]}" + (f' title="{named[1]}"' if named else "")
