"""Every way in which a plugin can be wrong is one error that says what and where."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fusion_core.configs import (
    BackendInfo,
    BackendPatternConfig,
    DTypeConfig,
    LoweringRule,
    QConfigMapping,
)
from fusion_core.errors import BackendUnavailableError, PluginError
from fusion_core.hookspecs import hookimpl

LINEAR = BackendPatternConfig(nn.Linear)


@pytest.fixture
def refused(registry):
    """Checks that a plugin is refused because of ``hook``, with these words; returns the error."""

    def check(plugin, hook, words):
        registry.register_backend("acme", plugin)
        with pytest.raises(PluginError, match=words) as caught:
            registry.get_backend("acme")
        assert (caught.value.backend, caught.value.hook) == ("acme", hook)
        assert "backend 'acme' (registered at run time 0" in str(caught.value)
        assert "Correct the object that was given to register_backend('acme'" in str(caught.value)
        return caught.value

    return check


def nothing():
    return []


def with_hook(**functions):
    return SimpleNamespace(**{name: hookimpl(function) for name, function in functions.items()})


def unvalidated(**fields):
    """A config that no validation has seen."""
    config = BackendPatternConfig(nn.Linear)
    config.__dict__.update(fields)
    return config


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("pattern_configs", None, "returned None, not an iterable of BackendPatternConfig"),
        ("pattern_configs", "text", "returned 'text' of type str, not an iterable"),
        ("pattern_configs", {LINEAR.pattern: LINEAR}, "of type dict, not an iterable"),
        ("pattern_configs", LINEAR, "of type BackendPatternConfig, not an iterable"),
        ("pattern_configs", 3, "returned 3 of type int"),
        ("pattern_configs", [LINEAR, nn.Linear], "item 1 is .*Linear.*, not a BackendPatternConf"),
        ("pattern_configs", [BackendPatternConfig()], "item 0, field pattern: .*no pattern yet"),
        ("pattern_configs", [unvalidated(priority="high")], "item 0, field priority: Input should"),
        ("pattern_configs", [unvalidated(dtype_configs=(3,))], r"field dtype_configs\.0: Input"),
        ("pattern_configs", [unvalidated(pattern=3)], "item 0, .*3 is not a valid pattern"),
        ("lowering_rules", [LINEAR], "item 0 is .*, not a LoweringRule"),
        ("fuser_methods", [nn.Linear], "not a dict of callables by pattern"),
        ("fuser_methods", {nn.Linear: 3}, r"the value for <class .*Linear'> is 3, which cannot be"),
        ("default_qconfig_mapping", {}, "of type dict, not a QConfigMapping"),
        ("qconfig_mappings", [], "of type list, not a dict of QConfigMapping by name"),
        ("qconfig_mappings", {"per channel": QConfigMapping()}, "the key 'per channel' is not a n"),
        ("qconfig_mappings", {1: QConfigMapping()}, "the key 1 is not a name; names have letters"),
        ("qconfig_mappings", {"fast": None}, "the value for 'fast' is None, not a QConfigMapping"),
        (
            "qconfig_mappings",
            {"fast": QConfigMapping.model_construct(global_qconfig=3)},
            "the value for 'fast', field global_qconfig: Input should be",
        ),
        ("qconfig_mappings", {"static": QConfigMapping()}, "'static' is the mapping that fusion_d"),
        ("backend_info", "summary", "of type str, not a BackendInfo"),
        ("backend_info", BackendInfo.model_construct(api=3), "field api: Input should be a valid"),
    ],
)
def test_a_wrong_answer_names_hook_item_and_field(refused, plugin, hook, answer, words):
    answers = {"pattern_configs": [LINEAR], hook: answer}
    refused(plugin(**answers), f"fusion_{hook}", words)


def test_a_raising_hook_is_chained(refused):
    def hook():
        raise KeyError("missing")

    error = refused(with_hook(fusion_pattern_configs=hook), "fusion_pattern_configs", "raised Key")
    assert isinstance(error.__cause__, KeyError)


def test_a_hook_that_raises_while_it_yields_is_chained(refused):
    def hook():
        yield LINEAR
        raise OSError("no driver")

    error = refused(with_hook(fusion_pattern_configs=hook), "fusion_pattern_configs", "no driver")
    assert isinstance(error.__cause__, OSError)


def test_a_hook_cannot_end_the_program(refused):
    def hook():
        raise SystemExit(3)

    refused(with_hook(fusion_pattern_configs=hook), "fusion_pattern_configs", "SystemExit: 3")


def test_the_user_can_interrupt_a_hook(registry):
    def hook():
        raise KeyboardInterrupt

    registry.register_backend("acme", with_hook(fusion_pattern_configs=hook))
    with pytest.raises(KeyboardInterrupt):
        registry.get_backend("acme")


def test_a_hook_that_takes_arguments_is_refused(refused):
    plugin = with_hook(fusion_pattern_configs=lambda model, *rest: [LINEAR])  # noqa: ARG005
    refused(plugin, "fusion_pattern_configs", "take no arguments, this one takes model")


def test_a_class_in_the_place_of_an_instance_is_refused(refused):
    class Chip:
        @hookimpl
        def fusion_pattern_configs(self):
            return [LINEAR]

    refused(Chip, "fusion_pattern_configs", "takes self; give an instance, not the class")


def test_a_misspelt_hook_is_refused_with_the_right_spelling(refused):
    plugin = with_hook(fusion_patern_config=lambda: [LINEAR])
    refused(plugin, "fusion_patern_config", "no hook .* did the author mean fusion_pattern_configs")


def test_a_marked_function_of_any_other_name_is_refused(refused, plugin):
    chip = plugin(pattern_configs=[LINEAR])
    chip.kernels = hookimpl(nothing)
    refused(chip, "kernels", "no hook of this name; there are fusion_pattern_configs, fusion_fuser")


def test_a_hook_of_a_later_core_may_be_marked_optional(merged, plugin):
    chip = plugin(pattern_configs=[LINEAR])
    chip.fusion_of_tomorrow = hookimpl(nothing, optionalhook=True)
    assert merged(acme=chip).entries


def test_a_hook_that_is_not_marked_is_refused(refused, plugin):
    chip = plugin(pattern_configs=[LINEAR])
    chip.fusion_lowering_rules = list
    refused(chip, "fusion_lowering_rules", "it is not a function marked with @hookimpl")


def test_a_wrapper_is_refused(refused):
    def wrapper():
        yield

    chip = SimpleNamespace(fusion_pattern_configs=hookimpl(wrapper, wrapper=True))
    refused(chip, "fusion_pattern_configs", "it is a wrapper")


def test_a_hook_implemented_twice_is_refused(refused, plugin):
    chip = plugin(pattern_configs=[LINEAR])
    chip.more = hookimpl(nothing, specname="fusion_pattern_configs")
    refused(chip, "fusion_pattern_configs", "implemented twice")


def test_a_backend_must_have_patterns(refused, plugin):
    refused(plugin(lowering_rules=[]), "fusion_pattern_configs", "lacks the one hook every backend")


def test_a_plugin_without_hooks_is_refused(refused):
    refused(object(), None, "no function that is marked with @hookimpl")


def test_an_extension_needs_no_patterns(merged, plugin):
    rule = LoweringRule(pattern=nn.Linear, lower=print)
    backend = merged(
        acme=plugin(pattern_configs=[LINEAR]), acme__kernels=plugin(lowering_rules=[rule])
    )
    assert [entry.label for entry in backend.lowering] == ["acme.kernels: Linear"]


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (BackendInfo(api="~=99.0"), "field api: it supports versions ~=99.0 of the plugin interf"),
        (BackendInfo(torch=">=99"), f"versions >=99 of torch, this is {torch.__version__}"),
        (BackendInfo(torch=">=99"), "pip install 'torch>=99'"),
        (BackendInfo(unavailable=lambda: 3), "field unavailable: it returned 3"),
        (BackendInfo(unavailable=lambda: 1 / 0), "field unavailable: calling it raised ZeroDiv"),
    ],
)
def test_a_plugin_that_does_not_fit_says_why(refused, plugin, info, words):
    chip = plugin(pattern_configs=[LINEAR], backend_info=info)
    refused(chip, "fusion_backend_info", re.escape(words))


def test_a_machine_that_lacks_something_is_an_error_of_its_own(registry, plugin):
    info = BackendInfo(unavailable=lambda: "no such chip.")
    registry.register_backend("acme", plugin(pattern_configs=[LINEAR], backend_info=info))
    with pytest.raises(BackendUnavailableError) as caught:
        registry.get_backend("acme")
    assert caught.value.problem == "it cannot run on this machine: no such chip"
    assert caught.value.remedy == "Choose another backend, or a machine that has it"
    assert str(caught.value).endswith(f": {caught.value.problem}. {caught.value.remedy}")


def test_a_plugin_without_demands_on_the_machine_is_not_asked(merged, plugin):
    chip = plugin(pattern_configs=[LINEAR], backend_info=BackendInfo())
    assert merged(acme=chip).info == BackendInfo()


def test_versions_are_checked_before_hooks_of_another_core_are_called_misspelt(refused, plugin):
    chip = plugin(backend_info=BackendInfo(api="~=99.0"))
    chip.fusion_of_tomorrow = hookimpl(nothing)
    refused(chip, "fusion_backend_info", "field api")


def test_a_plugin_that_fits_is_taken(merged, plugin):
    info = BackendInfo(summary="A chip", torch=">=2.0", unavailable=lambda: None)
    mapping = QConfigMapping()
    chip = plugin(pattern_configs=[LINEAR], backend_info=info, default_qconfig_mapping=mapping)
    backend = merged(acme=chip)
    assert backend.info == info
    assert backend.qconfig_mapping == mapping


def test_what_a_plugin_changes_later_changes_no_backend(merged, plugin):
    config = BackendPatternConfig(nn.Linear, input_type_to_index={"weight": 1})
    mapping = QConfigMapping()
    backend = merged(acme=plugin(pattern_configs=[config], default_qconfig_mapping=mapping))
    config.input_type_to_index["bias"] = 2
    config.add_dtype_config(DTypeConfig(input_dtype=torch.quint8))
    mapping.set_object_type(nn.Linear, None)
    assert backend.entries[0].config == BackendPatternConfig(
        nn.Linear, input_type_to_index={"weight": 1}
    )
    assert backend.qconfig_mapping == QConfigMapping()


def test_what_a_user_does_to_the_default_mapping_changes_no_backend(merged, plugin):
    backend = merged(
        acme=plugin(pattern_configs=[LINEAR], default_qconfig_mapping=QConfigMapping())
    )
    backend.qconfig_mapping.set_module_name("head", None)
    assert backend.qconfig_mapping == QConfigMapping()


def test_neither_plugin_nor_user_changes_the_named_mappings_of_a_backend(merged, plugin):
    given = {"fast": QConfigMapping()}
    backend = merged(acme=plugin(pattern_configs=[LINEAR], qconfig_mappings=given))
    given["fast"].set_module_name("head", None)
    given["slow"] = QConfigMapping()
    backend.qconfig_mappings["fast"].set_module_name("head", None)
    backend.qconfig_mappings.clear()
    assert backend.qconfig_mappings == {"fast": QConfigMapping()}


def test_a_backend_cannot_be_changed(merged, plugin):
    backend = merged(acme=plugin(pattern_configs=[LINEAR]))
    with pytest.raises(AttributeError):
        backend.entries = ()
