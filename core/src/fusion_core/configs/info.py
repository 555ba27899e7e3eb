"""What a plugin says of itself."""

from __future__ import annotations

from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fusion_core.configs.capabilities import CAPABILITIES, covered
from fusion_core.configs.names import Function, called_with

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
        gaps: What the backend does not support, with the reason: by names of
            :data:`fusion_core.configs.CAPABILITIES`, or by globs such as ``"conv3d*"``. All that
            is not named is claimed, and checked by the conformance kit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    summary: str = ""
    api: str = f"~={API_VERSION}"
    torch: str = ""
    unavailable: Annotated[Function, called_with()] | None = None
    gaps: dict[str, str] = Field(default_factory=dict)

    @field_validator("api", "torch")
    @classmethod
    def _is_specifier(cls, value: str) -> str:
        try:
            SpecifierSet(value)
        except InvalidSpecifier as error:
            msg = f"{value!r} is not a version specifier such as '>=2.9'"
            raise ValueError(msg) from error
        return value

    @field_validator("gaps")
    @classmethod
    def _names_capabilities(cls, value: dict[str, str]) -> dict[str, str]:
        for glob, reason in value.items():
            if not covered(glob):
                msg = f"{glob!r} names no capability; there are {', '.join(CAPABILITIES)}"
                raise ValueError(msg)
            if not reason.strip():
                msg = f"{glob!r} has no reason"
                raise ValueError(msg)
        return value

    def gap(self, capability: str) -> str | None:
        """Why the backend lacks ``capability``, or None if it claims it; an exact name beats a glob.

        Args:
            capability: One of :data:`fusion_core.configs.CAPABILITIES`.
        """
        if capability in self.gaps:
            return self.gaps[capability]
        return next(
            (reason for glob, reason in self.gaps.items() if capability in covered(glob)), None
        )
