"""What `/openapi.json` says of the rules of a cluster. Documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel, Field


class NewRules(BaseModel):
    """The rules, the whole of them."""

    cluster: dict[str, Any] = Field(description="as in cluster.yaml (`tm schema cluster`)")


class Rules(NewRules):
    """The rules that hold, and what they come to."""

    told: list[dict[str, Any]] = Field(description="about, sentences: in plain language")


class Applied(BaseModel):
    """What is otherwise from now on."""

    changes: list[str] = Field(description="a line for each field; none: they are the same")
    words: list[str] = Field(description="what the nodes that there are now cannot keep of them")


class Foreseen(Applied):
    """What other rules would do to the present queue."""

    waiting: int = Field(description="jobs that wait now")
    jobs: list[dict[str, Any]] = Field(
        description="id, now, then: {starts (nodes; null: it waits), stops, gives_back (jobs), reason, position}; "
        "only where it differs"
    )
