"""The checks, one module for each group; each is a class that :class:`BackendConformance` inherits."""
