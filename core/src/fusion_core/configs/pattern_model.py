"""What has one pattern, in either of the two formats; in JSON, a pattern is its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import Self

from fusion_core.configs.names import PicklableModel
from fusion_core.errors import PatternError
from fusion_core.patterns import Pattern, normalize_nested, normalize_sequential, parse, render


def _as_text(normalize: Callable[[object], Pattern]) -> PlainSerializer:
    return PlainSerializer(
        lambda raw: None if raw is None else render(normalize(raw)), when_used="json"
    )


_SCHEMA = WithJsonSchema(
    {
        "type": ["string", "null"],
        "description": "text of a pattern",
        "examples": ["Conv2d -> BatchNorm2d? -> relu", "add(*, Conv2d) -> ReLU"],
    }
)
SequentialPattern = Annotated[Any, _as_text(normalize_sequential), _SCHEMA]
NestedPattern = Annotated[Any, _as_text(normalize_nested), _SCHEMA]


class PatternModel(PicklableModel):
    """Base of configs and rules.

    In JSON a string is the text of a pattern, see :func:`fusion_core.parse`; in Python it is the
    name of a method.

    Attributes:
        pattern: An operator, or a tuple of operators in data-flow order.
        complex_pattern: Instead of ``pattern``, one in reverse nested form.
    """

    pattern: SequentialPattern = None
    complex_pattern: NestedPattern = None

    # Around the whole model, because a model with an __init__ of its own hands its fields on as
    # Python values, so that no field would know that it came from JSON.
    @model_validator(mode="wrap")
    @classmethod
    def _read_texts(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if info.mode != "json" or not isinstance(data, Mapping):
            return handler(data)
        texts = {
            name: data[name]
            for name in ("pattern", "complex_pattern")
            if isinstance(data.get(name), str)
        }
        return handler({**data, **{name: parse(text) for name, text in texts.items()}})

    @property
    def normal_pattern(self) -> Pattern:
        """The canonical form of whichever pattern was given.

        Raises:
            PatternError: No pattern is given, or two, or what is given is none.
        """
        if self.pattern is not None and self.complex_pattern is not None:
            raise PatternError(self.pattern, "give pattern or complex_pattern, not both")
        if self.pattern is not None:
            return normalize_sequential(self.pattern)
        if self.complex_pattern is not None:
            return normalize_nested(self.complex_pattern)
        problem = "the config has no pattern yet; give one, or call _set_pattern_complex_format"
        raise PatternError(None, problem)
