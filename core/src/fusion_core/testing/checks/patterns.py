"""A pattern matches what it was written for, and nothing that differs from it."""

from __future__ import annotations

import pytest

from fusion_core.errors import PatternError
from fusion_core.patterns import parse, render
from fusion_core.registry import PatternEntry
from fusion_core.testing.require import require
from fusion_core.testing.specimens import accepted_by_constraint, near_misses, specimens_of
from fusion_core.testing.subject import Subject


class PatternChecks:
    """Each check is run on each pattern of the backend."""

    def test_a_pattern_matches_its_own_examples(
        self, subject: Subject, entry: PatternEntry
    ) -> None:
        """Each alternative matches a model that was made from it."""
        specimens = specimens_of(subject, entry)
        for specimen in specimens:
            require(
                specimen.match(entry) is not None,
                f"it does not match its own example {specimen.example.text}:\n{specimen.graph.graph}",
            )
        refusals = [accepted_by_constraint(each, entry) for each in specimens]
        if None not in refusals:
            pytest.skip(f"its constraint refuses all of its examples: {refusals[0]}")

    def test_a_pattern_leaves_its_near_misses(self, subject: Subject, entry: PatternEntry) -> None:
        """There are models that differ from it in one thing, and after tracing none is matched."""
        specimens = near_misses(subject, entry)
        require(
            bool(specimens),
            "whatever is changed in its examples, even the operation itself, it still matches",
        )
        for specimen in specimens:
            require(
                specimen.match(entry) is None,
                f"it matches, though {specimen.example.text}:\n{specimen.graph.graph}",
            )

    def test_a_pattern_survives_as_text(self, subject: Subject, entry: PatternEntry) -> None:
        """Reports and files show its text; read back, that is the same pattern."""
        text = render(entry.pattern)
        try:
            again = parse(text)
        except PatternError as error:
            pytest.skip(f"its text names what cannot be imported by name: {error}")
        require(again == entry.pattern, f"{text!r} is read back as {render(again)!r}")
        require(subject.backend.name == entry.origin.backend, f"{entry} is not of this backend")
