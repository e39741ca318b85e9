"""The navigation of the site, computed from the folders, so that a new page needs no entry. A hook of MkDocs."""

from pathlib import Path
from typing import Any

SECTIONS = (("Tutorial", "tutorial"), ("How to", "howto"), ("Reference", "reference"), ("Explanation", "explanation"))
FIRST = ("first-job.md", "resume-without-change.md", "cli.md", "spec.md", "rest.md", "sdk.md", "client.md")  # the rest by name


def on_config(config: Any) -> Any:
    """Set the navigation. MkDocs calls this after it has read its configuration."""
    docs = Path(config["docs_dir"])
    sections = [{title: pages(docs, folder)} for title, folder in SECTIONS]
    beside = [{"Glossary": "glossary.md"}, {"Benchmarks": "benchmarks.md"}, {"Decisions": pages(docs, "decisions")}]
    config["nav"] = [{"Start": "index.md"}, *sections, *beside]
    return config


def pages(docs: Path, folder: str) -> list[str]:
    """The pages of a folder. Their titles are their first headings."""
    names = [path.name for path in (docs / folder).glob("*.md")]
    order = sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return [f"{folder}/{name}" for name in order]
