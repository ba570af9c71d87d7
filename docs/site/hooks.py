"""Makes the site of pages that are also read in the repository. MkDocs calls these functions while it builds (mkdocs.yml).

* Notebooks become pages, with the outputs that are stored in them.
* Files of the repository that belong to the site, such as ARCHITECTURE.md, become pages.
* Links lead to the page where there is one; a link to source code becomes plain text, or leads to the repository's address where
  `repo_url` names it.
* `folder/*` in the navigation becomes the folder's pages.
* Comments go: they are marks for the tests.
* `llms.txt` lists the pages for programs that read, `llms-full.txt` has their text.
* There is a sitemap only where `site_url` says at which address the pages are.
"""

import base64
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[2]
_FILES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
}
_FOLDERS = ("examples",)
"""Folders whose Markdown and pictures are in the site, too."""
_PICTURES = (".png", ".svg", ".gif")
_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^ *\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`+[^`\n]+`+")
_COMMENT = re.compile(r"^ *<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)\s>]+)>?((?:\s[^)]*)?)\)")
_pages: list[tuple[str, Page]] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Gives headings the anchors that GitHub gives them, so that a link is right in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    _pages.clear()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the repository's own pages and puts folders' pages into the navigation."""
    for name, uri in _FILES.items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(_ROOT / name)))
    for path in sorted(path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*")):
        if path.suffix in (".md", *_PICTURES) and not _is_hidden(path):
            files.append(File.generated(config, path.relative_to(_ROOT).as_posix(), abs_src_path=str(path)))
    for path in sorted(path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.ipynb") if not _is_hidden(path)):
        for uri, content in _notebook_files(path):
            files.append(File.generated(config, uri, content=content))
    pages = [file.src_uri for file in files.documentation_pages()]
    named = set(_uris(config.nav))
    config.nav = _with_pages(config.nav or [], [uri for uri in pages if uri not in named])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Takes comments out, and turns links into links of the site."""
    source = _source_of(page.file)
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]

    def link(match: re.Match[str]) -> str:
        mark, text, target, title = match.groups()
        if target.startswith("#") or re.match(r"[a-z]+:", target):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        uri = _uri_of(place, files)
        if uri is not None:
            relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
            return f"{mark}[{text}]({relative}{hash_sign}{anchor}{title})"
        if not (_ROOT / place).exists():
            return match[0]  # MkDocs says that it leads nowhere
        return f"[{text}]({config.repo_url.rstrip('/')}/tree/main/{place})" if config.repo_url else text

    return "".join(text if is_code else _outside_spans(_COMMENT.sub("", text), link) for text, is_code in _parts(markdown))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remembers the pages in the order of the navigation."""
    for page in nav.pages:
        section = page.ancestors[-1].title if page.ancestors else ""
        _pages.append((str(section), page))
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the pages' list and their text, and takes away a sitemap without addresses."""
    site = Path(config.site_dir)
    if not config.site_url:
        for sitemap in site.glob("sitemap.xml*"):
            sitemap.unlink()
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    previous = None
    for section, page in _pages:
        if section != previous:
            lines += ["", f"## {section}", ""] if section else [""]
            previous = section
        lines.append(f"- [{page.title}]({page.url or './'})")
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    texts = [f"<!-- {page.url or './'} -->\n\n{page.markdown}" for _, page in _pages]
    (site / "llms-full.txt").write_text("\n\n".join(texts) + "\n")


def _anchor(text: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return "".join(letter for letter in text.strip().lower() if letter.isalnum() or letter in " -_").replace(" ", separator)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "weights" for part in path.relative_to(_ROOT).parts)


def _notebook_files(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yields the pictures in a notebook's outputs, and last the page: text as it is, code and what it prints as blocks."""
    page = path.relative_to(_ROOT).with_suffix("")
    blocks: list[str] = []
    for at, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        blocks.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", []):
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                yield f"{page.as_posix()}-{at}.png", base64.b64decode(picture)
                blocks.append(f"![What the code above draws]({page.name}-{at}.png)")
            elif output.get("name") == "stdout":
                blocks.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
    yield f"{page.as_posix()}.md", "\n\n".join(blocks) + "\n"


def _source_of(file: File) -> str:
    """The page's path in the repository."""
    if file.abs_src_path is None:  # made of a notebook
        path = Path(file.src_uri)
        return path.with_suffix(".ipynb").as_posix() if path.suffix == ".md" else path.as_posix()
    return Path(os.path.relpath(str(file.abs_src_path), _ROOT)).as_posix()


def _uri_of(place: str, files: Files) -> str | None:
    """The page or file of the site that is made of a path of the repository, or None."""
    if place in _FILES:
        return _FILES[place]
    if place.endswith(".ipynb") or (place.endswith(".png") and files.get_file_from_path(place) is not None):
        uri = place.removesuffix(".ipynb") + ".md" if place.endswith(".ipynb") else place
        return uri if files.get_file_from_path(uri) is not None else None
    for uri in (
        place.removeprefix("docs/"),
        f"{place.removeprefix('docs/')}/README.md",
        f"{place.removeprefix('docs/')}/index.md",
    ):
        file = files.get_file_from_path(uri)
        if file is not None and _source_of(file) in (place, f"{place}/README.md", f"{place}/index.md"):
            return uri
    return None


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yields a page's text outside and inside of fenced code, and whether it is code; code in comments is part of the text."""
    end = 0
    comments = [match.span() for match in re.finditer(r"^<!-- hidden.*?^-->", markdown, re.MULTILINE | re.DOTALL)]
    for match in _FENCE.finditer(markdown):
        if any(start <= match.start() < stop for start, stop in comments):
            continue
        yield markdown[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield markdown[end:], False


def _outside_spans(text: str, link: Any) -> str:
    """Replaces links, but not what looks like one in code; a link's own text may be code."""
    spans = [match.span() for match in _CODE.finditer(text)]

    def replace(match: re.Match[str]) -> str:
        opening = match.start() + len(match[1]) + 1
        is_code = any(start < opening <= stop and match.end() > start for start, stop in spans if start < match.start())
        return match[0] if is_code else link(match)

    return _LINK.sub(replace, text)


def _uris(nav: Any) -> Iterator[str]:
    for item in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else [nav]:
        if isinstance(item, str):
            yield item
        else:
            yield from _uris(item)


def _with_pages(nav: list[Any], pages: list[str]) -> list[Any]:
    """Returns the navigation with the pages of `folder/*` in place of it, and without what has no page."""
    items: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            below = _with_pages(value, pages) if isinstance(value, list) else value
            items += [{title: below}] if below else []
        elif item.endswith("/*"):
            folder = item.removesuffix("*")
            items += sorted((uri for uri in pages if uri.startswith(folder)), key=lambda uri: (not _is_index(uri), uri))
        else:
            items.append(item)
    return items


def _is_index(uri: str) -> bool:
    return posixpath.basename(uri) in ("index.md", "README.md")
