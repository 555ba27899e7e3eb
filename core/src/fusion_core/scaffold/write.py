"""Fills in the templates and puts the files where they belong, all or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from packaging.version import Version

from fusion_core.errors import ScaffoldError
from fusion_core.registry import BackendRecord
from fusion_core.registry.versions import CORE, core_version
from fusion_core.scaffold.names import Names, names_of, record_extended_by

_TEMPLATES = Path(__file__).with_name("templates")
_SUFFIX = ".template"
"""Keeps the tools of this repository off files that are no Python yet."""


def write_backend(name: str, into: Path = Path()) -> Path:
    """Write the project of a new backend: it installs, works, and passes the conformance kit.

    Args:
        name: Name of the backend in any spelling, such as ``acme``; one with a dot, such as
            ``fbgemm.acme``, makes an extension of an installed backend.
        into: Folder in which the project's own folder is made, ``fusion-backend-acme``.

    Returns:
        The project's folder.

    Raises:
        ScaffoldError: The name is none or is taken, or the folder cannot be made. Nothing is
            written then, and nothing that exists is ever changed.
    """
    names = names_of(name)
    extended = record_extended_by(names)
    folder = Path(into) / names.distribution
    _refuse_place(names, folder)
    filled = dict(_filled(names, _fields(names, extended)))
    try:
        # Beside its place, since only within one file system a folder is moved in one step.
        with TemporaryDirectory(dir=into, prefix=f".{folder.name}-") as workplace:
            made = Path(workplace, folder.name)
            for path, text in filled.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8", newline="\n")
            made.rename(folder)
    except OSError as error:
        raise ScaffoldError(names.name, f"{error}; choose another folder") from error
    return folder


def _refuse_place(names: Names, folder: Path) -> None:
    if not folder.parent.is_dir():
        raise ScaffoldError(
            names.name, f"there is no folder {folder.parent}; make it, or choose another"
        )
    if folder.exists() or folder.is_symlink():
        problem = f"{folder} exists and is left as it is; remove it, or choose another folder"
        raise ScaffoldError(names.name, problem)


def _fields(names: Names, extended: BackendRecord | None) -> dict[str, str]:
    """What the templates may name."""
    version = core_version()
    if version is None:
        problem = f"{CORE} is used without being installed, so its version, which the plugin needs, is unknown"
        raise ScaffoldError(names.name, f"{problem}; install it with pip")
    requirements = [f"{CORE}{_compatible(version)}", "torch>=2.9"]
    if extended is not None:
        requirements.insert(0, f"{extended.distribution}{_compatible(extended.version)}")
    return {
        "name": names.name,
        "backend": names.backend,
        "identifier": names.identifier,
        "package": names.package,
        "distribution": names.distribution,
        "words": names.words,
        "requirements": ", ".join(f'"{each}"' for each in requirements),
        "description": f"{'An extension' if extended else 'A backend'} of fusion-core: {names.name}",
    }


def _compatible(version: str) -> str:
    """The range from this minor version up to the next major one."""
    parsed = Version(version)
    return f"~={parsed.major}.{parsed.minor}{'.dev0' * parsed.is_prerelease}"


def _filled(names: Names, fields: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Path in the project and content, for each file."""
    kind = "extension" if names.is_extension else "backend"
    for root in (_TEMPLATES / "shared", _TEMPLATES / kind):
        for template in sorted(root.rglob(f"*{_SUFFIX}")):
            path = template.relative_to(root).as_posix().removesuffix(_SUFFIX)
            place = path.replace("PACKAGE", names.package).replace("NAME", names.identifier)
            yield place, Template(template.read_text(encoding="utf-8")).substitute(fields)
