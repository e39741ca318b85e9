"""The base of the models that describe request and response bodies in the OpenAPI document.

Nothing is validated or serialized through them. So a model is built when somebody reads the document, not at each start.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from trainmaster.server.http.parameters import TEXT_MAX

_AT = "#/components/schemas/"


class Described(BaseModel):
    """A body. Its name is unique among all of them."""

    model_config = ConfigDict(defer_build=True)


def answers(model: type[Described], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers with `model`."""
    return {status: {"content": {"application/json": {"schema": reference(model)}}}}


def body(model: type[Described], *headers: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that parses its body itself."""
    text = {"type": "string", "minLength": 1, "maxLength": TEXT_MAX}
    described = [{"in": "header", "name": name, "required": False, "schema": text} for name in headers]
    content = {"application/json": {"schema": reference(model)}}
    return {"requestBody": {"required": True, "content": content}, "parameters": described}


def asking(question: type[Described], answer: type[Described]) -> dict[str, Any]:
    """The declaration of a route that accepts a command (202), which control carries out later."""
    extra = body(question, "Idempotency-Key")
    return {"status_code": 202, "response_model": None, "responses": answers(answer, 202), "openapi_extra": extra}


def reference(model: type[Described]) -> dict[str, str]:
    """Names a model of `components`."""
    return {"$ref": f"{_AT}{model.__name__}"}


def components() -> dict[str, Any]:
    """The schemas of all models, by name."""
    found: dict[str, Any] = {}
    for model in _subclasses(Described):
        schema = model.model_json_schema(ref_template=f"{_AT}{{model}}")
        found.update(schema.pop("$defs", {}))
        found[model.__name__] = schema
    return found


def _subclasses(of: type[Described]) -> list[type[Described]]:
    return [one for direct in of.__subclasses__() for one in (direct, *_subclasses(direct))]
