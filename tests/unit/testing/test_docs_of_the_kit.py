"""The page about the kit lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

from fusion_core.configs import CAPABILITIES
from fusion_core.testing import Support

PAGE = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text()


def rows(heading):
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", section, re.MULTILINE))


def test_the_page_lists_the_capabilities_as_they_are():
    assert rows("The capabilities") == dict(CAPABILITIES)


def test_the_page_explains_each_word_of_the_matrix():
    assert set(rows("The support matrix")) == {each.value for each in Support}
