"""What a plugin says of itself."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, field_validator

from fusion_core.configs.names import Function

API_VERSION = "1.0"
"""Version of the plugin interface that this core speaks: hooks, configs, observer protocol."""


class BackendInfo(BaseModel):
    """What a plugin needs and what it is.

    Attributes:
        summary: One line for listings.
        api: Range of core API versions the plugin speaks, as a version specifier.
        torch: Range of torch versions it supports, as a version specifier.
        unavailable: Asks the machine; returns None when the backend can run here, else what is
            missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    summary: str = ""
    api: str = f"~={API_VERSION}"
    torch: str = ""
    unavailable: Function | None = None

    @field_validator("api", "torch")
    @classmethod
    def _is_specifier(cls, value: str) -> str:
        try:
            SpecifierSet(value)
        except InvalidSpecifier as error:
            msg = f"{value!r} is not a version specifier such as '>=2.9'"
            raise ValueError(msg) from error
        return value
