"""Which installed plugins are found, from metadata alone."""

from __future__ import annotations

import sys

import pytest

from fusion_core.registry.discovery import plugin_name


def records(registry, *names):
    return [record for record in registry.backends() if record.name.split(".")[0] in names]


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("acme", "acme"),
        ("Example-NPU", "example_npu"),
        (" my  chip ", "my_chip"),
        ("fbgemm.Acme-2", "fbgemm.acme_2"),
    ],
)
def test_case_dashes_and_blanks_do_not_count_in_names(spelled, name):
    assert plugin_name(spelled) == name


@pytest.mark.parametrize("text", ["", "8bit", "a.b.c", ".b", "a.", "a/b", "ä", "a=b", "a.8"])
def test_what_is_not_a_name_has_no_spelling(text):
    assert plugin_name(text) is None


def test_a_plugin_is_found_by_its_entry_point(registry, distribution):
    distribution("fusion-backend-acme", "acme = nowhere_at_all", version="2.1")
    (record,) = records(registry, "acme")
    assert (record.distribution, record.version) == ("fusion-backend-acme", "2.1")
    assert (record.state, record.problem, record.extensions) == ("installed", None, ())


def test_the_summary_of_a_distribution_is_listed(registry, distribution):
    distribution("acme", "acme = a", summary="int8 for the Acme chip")
    distribution("other", "other = a")
    assert records(registry, "acme")[0].summary == "int8 for the Acme chip"
    assert records(registry, "other")[0].summary == ""


def test_an_extension_is_named_by_its_backend_and_has_no_record(registry, distribution):
    distribution("acme", "acme = a", "acme.fast = b")
    distribution("other", "acme.dense = c")
    (record,) = records(registry, "acme")
    assert record.extensions == ("acme.dense", "acme.fast")


def test_an_extension_of_nothing_is_listed_as_broken(registry, distribution):
    distribution("orphan", "acme.fast = b")
    (record,) = records(registry, "acme")
    assert record.state == "broken"
    assert "extends 'acme', which is not installed" in record.problem


def test_metadata_that_nothing_can_parse_harm_only_their_own_distribution(registry, distribution):
    distribution("unrelated", raw="[console_scripts]\nthis is no entry point\n")
    distribution("garbled", raw="[fusion.backends]\nthis is no entry point\n")
    distribution("good", "acme = a")
    assert [record.state for record in records(registry, "acme")] == ["installed"]
    assert not records(registry, "unrelated")
    (record,) = records(registry, "garbled")
    assert (record.distribution, record.state) == ("garbled", "broken")


def test_text_in_another_encoding_is_passed_over(registry, distribution):
    site = distribution("latin", "acme = a")
    path = site / "latin-1.0.dist-info" / "entry_points.txt"
    path.write_bytes("[fusion.backends]\nacmé = a".encode("latin-1"))
    assert not records(registry, "acme")


def test_metadata_without_a_name_are_passed_over(registry, distribution):
    site = distribution("nameless", "acme = a")
    (site / "nameless-1.0.dist-info" / "METADATA").unlink()
    assert not records(registry, "acme")


def test_an_invalid_name_is_recorded_with_what_is_wrong(registry, distribution):
    distribution("wrong", "8bit! = a", "acme = b")
    (record,) = records(registry, "8bit!")
    assert record.state == "broken"
    assert "'8bit!' is not a name" in record.problem
    assert [record.state for record in records(registry, "acme")] == ["installed"]


def test_an_entry_point_that_names_no_module_is_recorded(registry, distribution):
    distribution("wrong", "acme = not a module!")
    (record,) = records(registry, "acme")
    assert record.state == "broken"
    assert "'not a module!' is not 'module' or 'module:object'" in record.problem


def test_one_distribution_with_a_name_in_two_spellings_offers_it_once(registry, distribution):
    distribution("acme", "Acme-X = a", "acme_x = b")
    first, second = records(registry, "acme_x")
    assert {first.state, second.state} == {"installed", "broken"}
    assert "offers 'acme_x' more than once" in (first.problem or second.problem)


def test_an_editable_install_seen_twice_is_one_entry(registry, distribution):
    distribution("fusion-backend-acme", "acme = a", folder="site")
    distribution("fusion_backend.acme", "acme = a", folder="checkout", kind="egg-info")
    assert len(records(registry, "acme")) == 1


def test_a_symbolic_link_to_a_folder_on_the_path_adds_nothing(
    registry, distribution, tmp_path, monkeypatch
):
    distribution("acme", "acme = a", folder="lib")
    (tmp_path / "lib64").symlink_to(tmp_path / "lib")
    monkeypatch.syspath_prepend(tmp_path / "lib64")
    assert len(records(registry, "acme")) == 1


def test_of_two_versions_the_first_on_the_path_counts(registry, distribution):
    distribution("acme", "acme = a", version="2.0", folder="later")
    distribution("acme", "acme = a", version="1.0", folder="earlier")
    (record,) = records(registry, "acme")
    assert record.version == "1.0"


def test_a_first_version_without_the_entry_point_hides_a_second_with_it(registry, distribution):
    distribution("acme", "acme = a", version="2.0", folder="later")
    distribution("acme", raw="[console_scripts]\n", version="1.0", folder="earlier")
    assert not records(registry, "acme")


def test_two_distributions_of_one_name_are_both_listed(registry, distribution):
    distribution("one", "acme = a")
    distribution("two", "Acme = a")
    found = records(registry, "acme")
    assert [(each.distribution, each.state) for each in found] == [
        ("one", "duplicate"),
        ("two", "duplicate"),
    ]
    assert "provided by one 1.0" in found[0].problem


def test_looking_up_reads_metadata_once(registry, distribution):
    distribution("acme", "acme = a")
    registry.backends()
    distribution("late", "late = a", folder="late")
    assert not records(registry, "late")
    registry.refresh()
    assert records(registry, "late")


def test_listing_imports_no_plugin(registry, distribution):
    site = distribution("acme", "acme = acme_imported_by_mistake")
    (site / "acme_imported_by_mistake.py").write_text("raise SystemExit")
    assert records(registry, "acme")[0].state == "installed"
    assert "acme_imported_by_mistake" not in sys.modules
