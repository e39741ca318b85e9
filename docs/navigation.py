"""The site's navigation, from the folders: a new page is in it without being listed anywhere. A hook of MkDocs."""

from pathlib import Path
from typing import Any

SECTIONS = (("Tutorial", "tutorial"), ("How to", "howto"), ("Reference", "reference"), ("Explanation", "explanation"))
FIRST = ("first-job.md", "resume-without-change.md", "cli.md", "spec.md", "rest.md", "sdk.md")  # the rest by name


def on_config(config: Any) -> Any:
    """Called by MkDocs once its configuration is read."""
    docs = Path(config["docs_dir"])
    sections = [{title: pages(docs, folder)} for title, folder in SECTIONS]
    beside = [{"Glossary": "glossary.md"}, {"Benchmarks": "benchmarks.md"}, {"Decisions": pages(docs, "decisions")}]
    config["nav"] = [{"Start": "index.md"}, *sections, *beside]
    return config


def pages(docs: Path, folder: str) -> list[str]:
    """The pages of a folder; each is called what its first heading says."""
    names = [path.name for path in (docs / folder).glob("*.md")]
    order = sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return [f"{folder}/{name}" for name in order]
