"""Does every link of the built site lead somewhere? `python docs/links.py docs/_build/html`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Places that a page leads to, and those that can be led to inside it."""

    def __init__(self, path: Path):
        super().__init__()
        self.leads: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.places |= {value for value in (own.get("id"), own.get("name")) if value}
        self.leads |= {value for value in (own.get("href"), own.get("src")) if value}


def broken(folder: Path) -> list[str]:
    """Links inside the site without an end, each with the page it is on."""
    found = [p for p in folder.rglob("*.html") if "_static" not in p.parts]  # there, of the theme
    pages = {path: Page(path) for path in found}
    missing = []
    for path, page in pages.items():
        for link in sorted(page.leads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            end = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            end = end / "index.html" if end.is_dir() else end
            there = end.exists() and (
                not parts.fragment
                or end not in pages
                or unquote(parts.fragment) in pages[end].places
            )
            if not there:
                missing.append(f"{path.relative_to(folder)}: {link}")
    return missing


if __name__ == "__main__":
    found = broken(Path(sys.argv[1]).resolve())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(f"{len(found)} links lead nowhere." if found else 0)
