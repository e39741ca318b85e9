"""OpenAPI models for the cluster configuration. Documentation only, as in `models`."""

from typing import Any

from pydantic import Field

from trainmaster.server.schemas.described import Described


class NewRules(Described):
    """A complete cluster configuration."""

    cluster: dict[str, Any] = Field(description="as in cluster.yaml (`tm schema cluster`)")


class Rules(NewRules):
    """The present configuration, and its explanation."""

    told: list[dict[str, Any]] = Field(description="about, sentences: an explanation as text")


class Applied(Described):
    """What changes."""

    changes: list[str] = Field(description="one line per changed field; empty if nothing changes")
    words: list[str] = Field(description="warnings: what the present nodes cannot provide")


class Foreseen(Applied):
    """What another configuration would do to the present queue."""

    waiting: int = Field(description="number of waiting jobs")
    jobs: list[dict[str, Any]] = Field(
        description="id, now, then: {starts (nodes; null: it waits), stops, gives_back (jobs), reason, position}; "
        "only jobs whose outcome differs"
    )
