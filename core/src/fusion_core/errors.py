"""Every exception the library raises on purpose.

Each one is also the builtin a caller would expect, and keeps what it names as attributes. A message
says what was asked, what exists, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

_LONGEST_VALUE = 600


class FusionError(Exception):
    """Base of every error raised by fusion-core."""


class PatternError(FusionError, ValueError):
    """A value is not a pattern of the grammar.

    Attributes:
        pattern: The offending value, as it was given.
    """

    def __init__(self, pattern: object, problem: str) -> None:
        self.pattern = pattern
        shown = repr(pattern)
        if len(shown) > _LONGEST_VALUE:
            shown = f"{shown[:_LONGEST_VALUE]}..."
        super().__init__(f"{shown} is not a valid pattern: {problem}")


class PredicateError(FusionError, RuntimeError):
    """A condition of a pattern raised instead of answering.

    Attributes:
        entry: What the pattern stands for; its text names the plugin and the pattern.
        value: The node, or constant, that the condition was asked about.
    """

    def __init__(self, entry: object, reason: str, value: object, error: Exception) -> None:
        self.entry = entry
        self.value = value
        super().__init__(
            f"{entry}: the condition {reason!r} raised at {value}: {type(error).__name__}: {error}"
        )


class FuserMethodError(FusionError, TypeError):
    """A fuser method cannot be called with what its pattern gives it."""


class BackendFileError(FusionError, ValueError):
    """A file of data cannot be read as a backend; names the file and the place in it.

    Attributes:
        path: The file.
    """

    def __init__(self, path: object, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class UnknownBackendError(FusionError, LookupError):
    """No installed or registered backend has the requested name.

    Attributes:
        name: What was asked for.
        available: Names that can be asked for.
        unusable: Names that are installed but cannot be asked for, with the reason.
    """

    def __init__(
        self, name: str, available: Sequence[str], unusable: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.available = tuple(available)
        self.unusable = dict(unusable or {})
        known = ", ".join(map(repr, available)) or "none"
        super().__init__(f"{self._lead()} Backends that can be used: {known}.{self._tail()}")

    def _lead(self) -> str:
        if self.name in self.unusable:
            return f"backend {self.name!r} cannot be used: {self.unusable[self.name].rstrip('.')}."
        near = difflib.get_close_matches(self.name, (*self.available, *self.unusable), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"no backend is named {self.name!r}.{hint}"

    def _tail(self) -> str:
        if self.name in self.unusable:
            return ""
        reasons = "; ".join(f"{name!r} ({reason})" for name, reason in self.unusable.items())
        package = f"fusion-backend-{self.name.replace('_', '-')}"
        return (f" Installed, but not usable: {reasons}." if reasons else "") + (
            f" If a plugin provides it, install it: pip install {package}"
        )


class PluginError(FusionError, RuntimeError):
    """A plugin is broken; names the distribution, its version, and the hook when one is to blame.

    Attributes:
        backend: Entry-point name of the plugin.
        distribution: Distribution that provides it.
        version: Its version.
        hook: Hook that failed, or None when the fault lies elsewhere.
        problem: What is wrong, without the names in front.
        remedy: What to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        backend: str,
        distribution: str,
        version: str,
        hook: str | None = None,
        remedy: str = "",
    ) -> None:
        self.backend = backend
        self.distribution = distribution
        self.version = version
        self.hook = hook
        self.problem = problem
        self.remedy = remedy
        where = f", hook {hook}" if hook else ""
        said = f"{problem}. {remedy}" if remedy else problem
        super().__init__(f"backend {backend!r} ({distribution} {version}{where}): {said}")


class BackendUnavailableError(PluginError):
    """A plugin is in order, but this machine lacks what its backend needs."""


class DuplicateBackendError(FusionError, LookupError):
    """Two distributions claim the same backend name."""

    def __init__(self, name: str, distributions: Sequence[str]) -> None:
        self.name = name
        self.distributions = tuple(distributions)
        claimants = " and ".join(distributions)
        extension = f"{name.partition('.')[0]}.<extension>"
        super().__init__(
            f"backend {name!r} is provided by {claimants}; keep only one of them, or have the other "
            f"extend the backend under a name of its own, {extension!r}"
        )


class PatternConflictError(FusionError, ValueError):
    """Two plugins contribute the same pattern at the same priority with different content."""


class TraceError(FusionError, RuntimeError):
    """A model cannot be turned into a graph.

    Attributes:
        module: Path of the module whose forward could not be traced; empty for the model itself.
        location: ``file:line`` of the statement, where known.
        problem: What is wrong there.
    """

    def __init__(self, module: str, kind: str, location: str, problem: str) -> None:
        self.module = module
        self.location = location
        self.problem = problem
        super().__init__(
            f"cannot trace {module or 'the model itself'} ({kind}) at {location}: {problem}. "
            "Move the data-dependent part into a submodule, whose forward is then kept as Python, "
            "or rewrite it without control flow on tensor values"
        )


class TrainingModeError(FusionError, ValueError):
    """Post-training quantization was asked for a model that is in training mode."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = tuple(modules)
        super().__init__(
            f"in training mode: {first_few(name or 'the model itself' for name in modules)}; post-training "
            "quantization reads batch-norm statistics as constants. Call model.eval() first"
        )


class FuseError(FusionError, RuntimeError):
    """A fuser method or one of its getters failed on a match; names plugin, pattern and node."""


class ModelStateError(FusionError, ValueError):
    """A pass was given a model that the pass before it has not produced."""


class NotAGraphError(FusionError, TypeError):
    """A pattern can be looked for in a graph only, and a module that is none was given."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"a graph is needed, and {type(given).__name__} is none; trace it first, with core.trace("
            "model, example_inputs) as the passes do, or with torch.fx.symbolic_trace(model)"
        )


class UnknownNodeError(FusionError, LookupError):
    """A model has no node of the name that was asked for, and calls no module of it.

    Attributes:
        name: What was asked for.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        near = difflib.get_close_matches(name, dict.fromkeys(known), n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(
            f"{name!r} is neither a node of the model nor a module called in it.{hint}"
        )


class UnsupportedModelError(FusionError, ValueError):
    """The model as a whole is of a kind that cannot be quantized; says which and why."""


class UnknownModuleNameError(FusionError, LookupError):
    """A qconfig mapping names a module or type that the model does not have."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        near = difflib.get_close_matches(name, list(known), n=3)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        super().__init__(
            f"the qconfig mapping names {name!r}, which the model does not have.{hint}"
        )


class UnknownCallError(FusionError, LookupError):
    """A qconfig mapping names a call by its index, and the module makes fewer of that kind.

    Attributes:
        scope: Path of the module; empty for the model itself.
        operation: What is called.
        index: Which of those calls, counted from 0.
    """

    def __init__(self, scope: str, operation: str, index: int, known: Sequence[int]) -> None:
        self.scope = scope
        self.operation = operation
        self.index = index
        where = repr(scope) if scope else "the model itself"
        have = f"has the indices {', '.join(map(str, known))}" if known else "has none"
        super().__init__(
            f"the qconfig mapping names call {index} of {operation} in {where}, which {have}; calls "
            "are counted from 0, in the forward of the module itself"
        )


class CustomConfigError(FusionError, ValueError):
    """A custom config names what the model does not have, or what cannot be done with it.

    Attributes:
        field: Field of the config, for example ``standalone``.
        name: What it names.
    """

    def __init__(self, field: str, name: str, problem: str, known: Iterable[str] = ()) -> None:
        self.field = field
        self.name = name
        near = difflib.get_close_matches(name, list(known), n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(f"the custom config names {name!r} in {field}: {problem}.{hint}")


class QConfigError(FusionError, ValueError):
    """What is said of qconfigs contradicts itself: two mappings, or a mode that a mapping has not."""


class UnknownPresetError(QConfigError, LookupError):
    """No qconfig preset has the requested name.

    Attributes:
        name: What was asked for.
        known: Names that can be asked for.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        near = difflib.get_close_matches(name, self.known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(
            f"there is no qconfig preset {name!r}.{hint} There are {', '.join(self.known)}"
        )


class UnsupportedModeError(QConfigError):
    """A backend has no kernels for a way to quantize.

    Attributes:
        backend: Name of the backend.
        mode: What was asked for: ``"dynamic"`` or ``"weight_only"``.
        supported: The modes it has.
    """

    def __init__(self, backend: str, mode: str, problem: str, supported: Sequence[str]) -> None:
        self.backend = backend
        self.mode = mode
        self.supported = tuple(supported)
        super().__init__(
            f"backend {backend!r} has nothing for the mode {mode!r}: {problem}. Its modes are "
            f"{', '.join(supported)}; core.backends() lists other backends"
        )


class CalibrationError(FusionError, ValueError):
    """Calibration data are missing, unusable, or never reached a part of the model."""


class NonFiniteActivationError(CalibrationError):
    """NaN or infinity was met while observing values.

    Attributes:
        label: Where in the model the value was observed.
    """

    def __init__(self, label: str, what: str) -> None:
        self.label = label
        super().__init__(
            f"{label or 'an observed value'} contains {what}; a range cannot be calibrated from it. "
            "Check the calibration data and the float model on it"
        )


class ModelTargetError(FusionError, ValueError):
    """What the command line was given in the place of a model, or of its input, stands for none.

    Attributes:
        target: What was given, for example ``nets:build``.
    """

    def __init__(self, target: str, problem: str) -> None:
        self.target = target
        super().__init__(f"{target}: {problem}")


class ScaffoldError(FusionError, ValueError):
    """A new backend cannot be written; nothing has been.

    Attributes:
        name: The name that was asked for.
    """

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        super().__init__(f"no backend {name!r} was written: {problem}")


class OtherVersionWarning(UserWarning):
    """A model is loaded with other versions than it was quantized with."""


class NoExampleError(FusionError, ValueError):
    """No small model can be made that a pattern would match.

    Attributes:
        pattern: The pattern, as text.
    """

    def __init__(self, pattern: str, problem: str) -> None:
        self.pattern = pattern
        super().__init__(f"{pattern}: {problem}")


class MissingPackageError(FusionError, ImportError):
    """Something was asked for that takes a package which is not installed.

    Attributes:
        package: Name of the package.
    """

    def __init__(self, wanted_by: str, package: str, install: str) -> None:
        self.package = package
        super().__init__(
            f"{wanted_by} needs {package}, which is not installed: pip install {install}"
        )


class LoweringError(FusionError, RuntimeError):
    """A lowering rule failed; names the plugin, the rule and the node."""


def first_few(names: Iterable[str], limit: int = 5) -> str:
    """``a, b, c and 4 more``, for messages that name things."""
    listed = list(names)
    rest = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + rest
