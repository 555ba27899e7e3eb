"""What ``write_backend`` writes, and that it writes all of it or nothing."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import fusion_core as core
from fusion_core.configs import CAPABILITIES
from fusion_core.errors import ScaffoldError
from fusion_core.registry import core_version
from fusion_core.scaffold import write_backend

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]


def files(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]


def test_a_project_has_its_plugin_its_tests_and_its_workflow(tmp_path) -> None:
    folder = write_backend("acme", tmp_path)
    assert folder == tmp_path / "fusion-backend-acme"
    assert files(folder) == [
        ".github/workflows/test.yml",
        ".gitignore",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/fusion_backend_acme/__init__.py",
        "src/fusion_backend_acme/py.typed",
        "tests/test_acme.py",
        "tests/test_conformance.py",
    ]


def test_nothing_else_is_left_in_the_folder(tmp_path) -> None:
    write_backend("acme", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fusion-backend-acme"]


@pytest.mark.parametrize(
    ("spelled", "name", "distribution", "package"),
    [
        ("Acme-NPU", "acme_npu", "fusion-backend-acme-npu", "fusion_backend_acme_npu"),
        ("acme2", "acme2", "fusion-backend-acme2", "fusion_backend_acme2"),
        ("Acme v2 ", "acme_v2", "fusion-backend-acme-v2", "fusion_backend_acme_v2"),
        ("class", "class", "fusion-backend-class", "fusion_backend_class"),
        ("core", "core", "fusion-backend-core", "fusion_backend_core"),
    ],
)
def test_every_spelling_of_a_name_gives_one_set_of_names(
    spelled, name, distribution, package, tmp_path
) -> None:
    folder = write_backend(spelled, tmp_path)
    assert folder.name == project(folder)["name"] == distribution
    assert canonicalize_name(distribution) == distribution
    assert project(folder)["entry-points"] == {"fusion.backends": {name: package}}
    assert (folder / "src" / package / "__init__.py").is_file()


def test_a_project_requires_the_core_that_wrote_it(tmp_path) -> None:
    requirements = {
        each.name: each
        for each in map(Requirement, project(write_backend("acme", tmp_path))["dependencies"])
    }
    assert set(requirements) == {"fusion-core", "torch"}
    version = Version(core_version())
    specifier = requirements["fusion-core"].specifier
    assert specifier.contains(version)
    assert specifier.contains(f"{version.major}.{version.minor + 1}")
    assert not specifier.contains(f"{version.major + 1}.0")


def test_an_extension_requires_the_backend_it_extends(tmp_path) -> None:
    folder = write_backend("fbgemm.acme", tmp_path)
    assert folder.name == "fusion-backend-fbgemm-acme"
    data = project(folder)
    assert data["entry-points"] == {
        "fusion.backends": {"fbgemm.acme": "fusion_backend_fbgemm_acme"}
    }
    assert [Requirement(each).name for each in data["dependencies"]] == [
        "fusion-backend-fbgemm",
        "fusion-core",
        "torch",
    ]
    assert "tests/test_fbgemm_acme.py" in files(folder)


@pytest.mark.parametrize("name", ["acme", "fbgemm.acme"])
def test_no_field_of_a_template_is_left_and_python_is_python(name, tmp_path) -> None:
    folder = write_backend(name, tmp_path)
    for path in files(folder):
        text = (folder / path).read_text("utf-8")
        assert not re.search(r"\$(?!\{\{)|PACKAGE|NAME|\.template", text), path
        assert text == "" or text.endswith("\n")
        if path.endswith(".py"):
            ast.parse(text, path)


@pytest.mark.parametrize("name", ["acme", "fbgemm.acme"])
def test_a_project_says_that_a_license_is_to_be_chosen_and_how(name, tmp_path) -> None:
    folder = write_backend(name, tmp_path)
    assert project(folder)["license"] == "LicenseRef-Not-Chosen-Yet"
    assert (folder / "LICENSE").read_text("utf-8").startswith("No license has been chosen")
    assert 'license = "BSD-3-Clause"' in (folder / "README.md").read_text("utf-8")


def test_the_page_on_stability_shows_the_job_that_is_written(tmp_path) -> None:
    workflow = (write_backend("acme", tmp_path) / ".github/workflows/test.yml").read_text("utf-8")
    job = workflow[workflow.index("  next:\n") :]
    page = (ROOT / "docs" / "stability.md").read_text("utf-8")
    assert "\n".join(line.removeprefix("  ") for line in job.splitlines()) in page


def test_every_gap_of_the_new_backend_names_capabilities(tmp_path) -> None:
    folder = write_backend("acme", tmp_path)
    namespace = {"__name__": "new_backend"}
    code = (folder / "src" / "fusion_backend_acme" / "__init__.py").read_text("utf-8")
    exec(compile(code, "new_backend", "exec"), namespace)  # noqa: S102  what was written
    info = namespace["fusion_backend_info"]()
    claimed = {name for name in CAPABILITIES if info.gap(name) is None}
    assert {"conv2d", "conv2d.relu", "conv2d.depthwise", "weights.per_channel"} <= claimed
    assert not claimed & {"linear", "lstm", "kernels", "conv2d.batch_norm"}


@pytest.mark.parametrize("name", ["", "8bit", "acme/npu", "a.b.c", "acme.", "åcme"])
def test_what_is_no_name_is_refused(name, tmp_path) -> None:
    with pytest.raises(ScaffoldError, match="a name is a letter, then letters, digits"):
        write_backend(name, tmp_path)


@pytest.mark.parametrize("name", ["_acme", "acme_", "acme__npu", "fbgemm._acme"])
def test_a_name_that_a_distribution_cannot_show_is_refused(name, tmp_path) -> None:
    with pytest.raises(ScaffoldError, match="underscores in front, behind or in a row"):
        write_backend(name, tmp_path)


def test_the_name_of_an_installed_backend_is_refused_with_a_way_out(tmp_path) -> None:
    with pytest.raises(ScaffoldError, match=r"fusion-backend-fbgemm 0\.") as caught:
        write_backend("FBGEMM", tmp_path)
    assert "fusion new-backend fbgemm.<extension>" in str(caught.value)
    assert caught.value.name == "fbgemm"
    assert list(tmp_path.iterdir()) == []


def test_what_is_only_registered_may_become_a_distribution(tmp_path) -> None:
    class Sketch:
        @core.hookimpl
        def fusion_pattern_configs(self):
            return []

    undo = core.register_backend("sketch", Sketch())
    try:
        assert write_backend("sketch", tmp_path).is_dir()
        with pytest.raises(ScaffoldError, match="'sketch', which is not installed"):
            write_backend("sketch.more", tmp_path)
    finally:
        undo()


def test_an_extension_of_nothing_is_refused_with_what_there_is(tmp_path) -> None:
    with pytest.raises(ScaffoldError, match=r"'nup', which is not installed.*fbgemm.*Install it"):
        write_backend("nup.acme", tmp_path)


def test_a_disabled_backend_is_not_extended(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", "fbgemm")
    with pytest.raises(ScaffoldError, match="cannot be extended: disabled by the environment"):
        write_backend("fbgemm.acme", tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_exists_is_never_overwritten(make, tmp_path) -> None:
    place = tmp_path / "fusion-backend-acme"
    make(place)
    with pytest.raises(ScaffoldError, match="exists and is left as it is"):
        write_backend("acme", tmp_path)
    assert list(tmp_path.iterdir()) == [place]
    assert not list(place.iterdir() if place.is_dir() else ())


def test_a_folder_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(ScaffoldError, match=r"there is no folder .*nowhere; make it"):
        write_backend("acme", tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_an_error_half_way_leaves_nothing_behind(tmp_path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, hard))  # enough for the first files only
    try:
        with pytest.raises(ScaffoldError, match="File too large; choose another folder"):
            write_backend("acme", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    sizes = [
        len(path.read_bytes())
        for path in write_backend("acme", tmp_path).rglob("*.*")
        if path.is_file()
    ]
    assert min(sizes) < 1200 < max(sizes)
