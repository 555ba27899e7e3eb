"""Imports a package that is not there."""

import package_that_nobody_has_installed  # noqa: F401
