"""GPU requests in a spec: a number, a kind and a number, or a list of choices."""

from typing import Annotated

from pydantic import PlainValidator, TypeAdapter, WithJsonSchema

from trainmaster.spec.fields import values

_GPUS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": values.GPUS_MAX},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9_.\-]*:([0-9]+|0?\.[0-9]+)$"},
    ]
}
_CHOICES_MAX = 16
_CHOICES_SCHEMA = {
    "anyOf": [
        *_GPUS_SCHEMA["anyOf"],
        {"type": "array", "items": _GPUS_SCHEMA["anyOf"][-1], "minItems": 1, "maxItems": _CHOICES_MAX},
    ]
}

GpuChoice = Annotated[tuple[float, str | None], PlainValidator(values.gpu_choice)]
_EACH_CHOICE: TypeAdapter[list[tuple[float, str | None]]] = TypeAdapter(list[GpuChoice])  # its errors name the wrong item


def _choices(value: object) -> tuple[tuple[float, str | None], ...]:
    """A list of choices, or a single one."""
    if not isinstance(value, list | tuple):
        return (values.gpus(value),)
    if not 1 <= len(value) <= _CHOICES_MAX:
        expected = f"1 to {_CHOICES_MAX} choices such as h100:8"
        raise values.refusal(expected, value, message=f"expected {expected}, got {len(value) or 'none'}")
    return tuple(_EACH_CHOICE.validate_python(list(value)))


Gpus = Annotated[tuple[float, str | None], PlainValidator(values.gpus), WithJsonSchema(_GPUS_SCHEMA)]
Choices = Annotated[tuple[tuple[float, str | None], ...], PlainValidator(_choices), WithJsonSchema(_CHOICES_SCHEMA)]
