"""JSON Schemas of the spec file and of `cluster.yaml`, for editors."""

from typing import Any

from trainmaster.spec.fields.job_fields import RESERVED, SECTIONS, JobFields


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the spec file. Reserved names are described as not supported yet."""
    result = JobFields.model_json_schema()
    result |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Trainmaster job"}
    del result["properties"]["command"]["default"]
    result["oneOf"] = [{"required": ["command"]}, {"required": ["python"]}]
    for dotted_name, (description, instead) in RESERVED.items():
        section, _, name = dotted_name.rpartition(".")
        model = SECTIONS[section].__name__ if section else None
        properties = (result["$defs"][model] if model else result)["properties"]
        properties[name] = {"not": {}, "description": f"Not supported yet: {description}. Meanwhile: {instead}."}
    checkpoint, restarts = result["properties"]["checkpoint"], result["properties"]["restarts"]
    variables = result["$defs"]["EnvironmentFields"]["properties"]["variables"]
    variables |= {"type": ["object", "array"], "items": {"type": "string"}, "maxItems": variables["maxProperties"]}
    roles = result["properties"]["roles"]
    roles["additionalProperties"] = _or_short(roles["additionalProperties"], {"type": "string"})
    result["properties"]["checkpoint"] = _or_short(checkpoint, {"type": "string"})
    result["properties"]["restarts"] = _or_short(restarts, {"type": "integer", "minimum": 0})
    return result


def cluster_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `cluster.yaml`."""
    from trainmaster.spec.cluster.fields import ClusterFields  # noqa: PLC0415  # a job's schema does not need it

    result = ClusterFields.model_json_schema()
    return result | {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Trainmaster cluster"}


def _or_short(schema: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
    reference = {"$ref": schema["$ref"]} if "$ref" in schema else schema["allOf"][0]
    rest = {k: v for k, v in schema.items() if k not in ("$ref", "allOf")}
    return {"anyOf": [reference, short], **rest}
