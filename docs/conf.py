"""Sphinx settings. Warnings are errors (``make docs``), so each exception below has a reason."""

from importlib.metadata import version as installed_version

project = "fusion-core"
author = "fusion-core contributors"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx reads this name
release = installed_version("fusion-core")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"fusion-core {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Attributes that a docstring describes are members too; as ivar fields they are no second target.
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"

# A build must not depend on other projects' sites, so references are checked only where they name
# something of ours by its public name, fusion_core.X. The rest comes from annotations.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!fusion_core\.).*"),
    (r"py:.*", r"fusion_core\.[a-z_]+\..*"),
]
