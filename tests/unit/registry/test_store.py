"""What the registry remembers: registrations, refusals, failures, and one object per backend."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest
from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.errors import DuplicateBackendError, PluginError, UnknownBackendError
from fusion_core.hookspecs import hookimpl
from fusion_core.registry import Backend

LINEAR = BackendPatternConfig(nn.Linear)


def record_of(registry, name):
    (record,) = [each for each in registry.backends() if each.name == name]
    return record


@pytest.fixture
def linear(plugin):
    return plugin(pattern_configs=[LINEAR])


def test_a_registered_backend_is_listed_and_found_in_any_spelling(registry, linear):
    linear.__version__ = "3.1"
    registry.register_backend("My-Chip", linear)
    record = record_of(registry, "my_chip")
    assert (record.state, record.distribution) == ("registered", "registered at run time")
    assert record.version == "3.1"
    assert registry.get_backend("MY_chip") is registry.get_backend("my-chip")


def test_an_instance_of_a_class_is_a_plugin(registry):
    class Chip:
        """int8 for the chip on this desk.

        Slow, but ours.
        """

        @hookimpl
        def fusion_pattern_configs(self):
            yield LINEAR

    registry.register_backend("acme", Chip())
    assert registry.get_backend("acme").entries[0].config == LINEAR
    assert record_of(registry, "acme").summary == "int8 for the chip on this desk."


def test_undoing_takes_a_registration_out_and_may_be_repeated(registry, linear):
    undo = registry.register_backend("acme", linear)
    undo()
    registry.register_backend("acme", linear)
    undo()
    assert record_of(registry, "acme").state == "registered"


def test_a_name_is_free_again_after_undo(registry, linear):
    undo = registry.register_backend("acme", linear)
    first = registry.get_backend("acme")
    undo()
    with pytest.raises(UnknownBackendError, match="no backend is named 'acme'"):
        registry.get_backend("acme")
    registry.register_backend("acme", linear)
    assert registry.get_backend("acme") is not first


def test_a_registered_name_is_taken(registry, linear):
    registry.register_backend("acme", linear)
    with pytest.raises(DuplicateBackendError, match="registered at run time 0 and registered"):
        registry.register_backend("Acme", linear)


def test_the_name_of_an_installed_plugin_is_taken(registry, linear, distribution):
    distribution("fusion-backend-acme", "acme = a")
    with pytest.raises(DuplicateBackendError, match=r"by fusion-backend-acme 1\.0 and registered"):
        registry.register_backend("acme", linear)


def test_a_disabled_plugin_leaves_its_name_free(registry, linear, distribution, monkeypatch):
    distribution("fusion-backend-acme", "acme = a")
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", "acme")
    registry.register_backend("acme", linear)
    assert isinstance(registry.get_backend("acme"), Backend)


def test_what_is_not_a_name_cannot_be_registered(registry, linear):
    with pytest.raises(PluginError, match=r"'a/b' .* characters other than letters"):
        registry.register_backend("a/b", linear)


def test_an_extension_joins_and_leaves_its_backend(registry, linear, plugin):
    registry.register_backend("acme", linear)
    alone = registry.get_backend("acme")
    extension = plugin(pattern_configs=[BackendPatternConfig(nn.Conv2d)])
    undo = registry.register_backend("acme.conv", extension)
    both = registry.get_backend("acme")
    assert [each.name for each in both.origins] == ["acme", "acme.conv"]
    assert record_of(registry, "acme").extensions == ("acme.conv",)
    undo()
    assert registry.get_backend("acme") is alone


def test_an_extension_of_nothing_is_refused(registry, linear):
    with pytest.raises(UnknownBackendError, match="no backend is named 'nothing'"):
        registry.register_backend("nothing.more", linear)


def test_an_extension_is_not_a_backend(registry, linear):
    registry.register_backend("acme", linear)
    registry.register_backend("acme.more", linear)
    with pytest.raises(UnknownBackendError, match=r"'acme\.more' .* extends 'acme'; choose that"):
        registry.get_backend("acme.more")


def test_a_backend_stands_for_itself(registry, merged, linear):
    backend = merged(acme=linear)
    assert registry.get_backend(backend) is backend


def test_an_unknown_name_gets_the_near_ones_and_the_pip_line(registry, linear):
    registry.register_backend("zigzag_chip", linear)
    with pytest.raises(UnknownBackendError, match="Did you mean 'zigzag_chip'") as caught:
        registry.get_backend("zigzga-chip")
    assert "pip install fusion-backend-zigzga-chip" in str(caught.value)
    assert "zigzag_chip" in caught.value.available


def test_an_unknown_name_gets_what_is_broken_and_why(registry, plugin):
    registry.register_backend("acme", plugin())
    with pytest.raises(PluginError):
        registry.get_backend("acme")
    with pytest.raises(UnknownBackendError, match=r"not usable: 'acme' \(.*no function that is"):
        registry.get_backend("nup")
    assert record_of(registry, "acme").state == "broken"
    assert "no function that is marked" in record_of(registry, "acme").problem


def test_a_broken_extension_is_told_from_its_backend(registry, linear, plugin):
    registry.register_backend("acme", linear)
    undo = registry.register_backend("acme.more", plugin())
    with pytest.raises(PluginError, match=r"backend 'acme\.more'"):
        registry.get_backend("acme")
    assert record_of(registry, "acme").state == "broken"
    assert record_of(registry, "acme.more").state == "broken"
    undo()
    assert record_of(registry, "acme").state == "registered"
    registry.get_backend("acme")


def test_a_failure_is_not_final(registry):
    chip = SimpleNamespace(fusion_pattern_configs=hookimpl(lambda: None))
    registry.register_backend("acme", chip)
    with pytest.raises(PluginError, match="returned None"):
        registry.get_backend("acme")
    chip.fusion_pattern_configs = hookimpl(lambda: [LINEAR])
    registry.get_backend("acme")
    assert record_of(registry, "acme").state == "registered"


def test_refreshing_keeps_registrations_and_asks_plugins_again(registry, linear):
    registry.register_backend("acme", linear)
    before = registry.get_backend("acme")
    registry.refresh()
    after = registry.get_backend("acme")
    assert after is not before
    assert after.identity == before.identity


def test_a_duplicate_cannot_be_chosen(registry, distribution):
    distribution("one", "acme = a")
    distribution("two", "acme = a", folder="elsewhere")
    with pytest.raises(DuplicateBackendError, match=r"by one 1\.0 \(in .*\) and two 1\.0 \(in "):
        registry.get_backend("acme")


def test_a_duplicate_extension_makes_its_backend_ambiguous(registry, linear, distribution):
    distribution("one", "acme.more = a")
    distribution("two", "acme.more = a")
    registry.register_backend("acme", linear)
    assert record_of(registry, "acme").state == "broken"
    with pytest.raises(DuplicateBackendError, match=r"'acme\.more' is provided by"):
        registry.get_backend("acme")


@pytest.mark.parametrize("value", ["acme", " Acme , other", "acme,,"])
def test_a_disabled_backend_is_listed_but_cannot_be_chosen(
    registry, distribution, monkeypatch, value
):
    distribution("acme", "acme = a", "acme.more = b")
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", value)
    assert record_of(registry, "acme").state == "disabled"
    assert record_of(registry, "acme.more").state == "disabled"
    with pytest.raises(UnknownBackendError, match="'acme' cannot be used: disabled by the env"):
        registry.get_backend("acme")
    monkeypatch.delenv("FUSION_DISABLED_BACKENDS")
    assert record_of(registry, "acme").state == "installed"


def test_disabling_an_extension_leaves_its_backend(registry, linear, distribution, monkeypatch):
    distribution("acme", "acme.more = does_not_exist")
    registry.register_backend("acme", linear)
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", "acme.more")
    assert len(registry.get_backend("acme").origins) == 1


def test_threads_get_one_object(registry, plugin):
    registry.register_backend("acme", plugin(pattern_configs=[LINEAR] * 50))
    barrier = Barrier(8)

    def choose(_):
        barrier.wait()
        return registry.get_backend("acme")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(choose, range(8)))) == 1


def test_an_identity_survives_pickling(merged, linear):
    identity = merged(acme=linear).identity
    assert pickle.loads(pickle.dumps(identity)) == identity  # noqa: S301
    assert identity.origins[0].distribution == "registered at run time"
