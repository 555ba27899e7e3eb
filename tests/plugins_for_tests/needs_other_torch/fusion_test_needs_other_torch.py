"""Declares a torch that is not installed; must not even be imported."""

raise RuntimeError("imported although its requirements are not met")
