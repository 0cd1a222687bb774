"""What mkdocs is to do besides: the catalogue is written and the pictures drawn when it builds."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
DRAWN = [*(ROOT / "optimisers" / "rules").glob("*.py"), ROOT / "optimisers" / "race.py"]


def on_files(files: Files, config: Any) -> Files:
    """Add what is not kept: the page of the catalogue, and each picture for both modes."""
    # mkdocs is a program elsewhere, whose path does not hold this project; it undoes changes of the
    # path that are made while this file is imported.
    sys.path.insert(0, str(ROOT))
    from docs import catalogue, pictures

    files.append(File.generated(config, "rules/catalogue.md", content=catalogue.source()))
    folder = cache()
    if not folder.exists():
        pictures.main(folder)
    for file in sorted(folder.rglob("*.svg")):
        at = f"pictures/{file.relative_to(folder).as_posix()}"
        files.append(File.generated(config, at, content=file.read_bytes()))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Let a browser load a picture when it is to be seen: half of them are for the other mode."""
    return html.replace("<img ", '<img loading="lazy" ')


def cache() -> Path:
    """Return where an earlier build left its pictures, if nothing that they show has changed."""
    sources = sorted([*DRAWN, *DOCS.glob("*picture*.py"), DOCS / "benchmarks.md"])
    key = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    return ROOT / ".cache" / "pictures" / key
