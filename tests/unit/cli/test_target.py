"""``MODULE:FACTORY`` and ``--input`` find a model, or say what there is instead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fusion_core.cli.target import load_model, read_inputs
from fusion_core.errors import ModelTargetError


@pytest.mark.parametrize(
    "target",
    [
        "nets:model",
        "nets:Small",
        "nets.py:Small",
        "./nets.py:model",
        "nets:with_inputs",
        "package.deep:model",
        "package/deep.py:model",
    ],
)
@pytest.mark.usefixtures("nets")
def test_a_model_is_found_by_module_or_file_and_made_if_it_is_a_factory(target):
    model, inputs = load_model(target)
    assert type(model).__name__ == "Small"
    assert not model.training
    assert (inputs is not None) == ("with_inputs" in target)


@pytest.mark.usefixtures("nets")
def test_what_is_installed_is_found_from_any_folder():
    assert isinstance(load_model("torch.nn:Identity")[0], nn.Identity)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nets", "it is not MODULE:FACTORY, such as nets:build or nets.py:build"),
        ("nets:", "it is not MODULE:FACTORY"),
        ("nest:model", "No module named 'nest'; searched were the current folder"),
        ("nest.py:model", "there is no file nest.py in "),
        ("nets:Smal", "nets has no 'Smal'; it has Small, with_inputs, raising, three, in_double, "),
        ("nets:Smal", "Did you mean 'Small'?"),
        ("nets:model.Conv", "Small has no 'Conv'"),
        ("nets:number", "number is int, neither a torch.nn.Module nor callable"),
        ("nets:three", "it gives int, neither a torch.nn.Module nor (model, inputs)"),
        ("nets:raising", "calling raising() raised KeyError: 'no weights'"),
        ("broken:model", "importing broken raised NameError: name 'nowhere' is not defined"),
    ],
)
def test_what_is_no_model_is_refused_with_what_there_is(nets, target, words):
    (nets / "broken.py").write_text("nowhere()\n")
    with pytest.raises(ModelTargetError) as refused:
        load_model(target)
    assert str(refused.value).startswith(f"{target}: ")
    assert words in str(refused.value)


def test_inputs_are_zeros_of_shape_and_dtype():
    image, words, flag = read_inputs(["1x3x8x8", "2x5:int64", "7:bool"])
    assert (image.shape, image.dtype) == ((1, 3, 8, 8), torch.float32)
    assert (words.shape, words.dtype) == ((2, 5), torch.int64)
    assert (flag.shape, flag.dtype) == ((7,), torch.bool)
    assert not image.any()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,3,8", "it is not a shape and a dtype, such as 1x3x224x224"),
        ("1x3x", "it is not a shape and a dtype"),
        ("1x3:", "it is not a shape and a dtype"),
        ("1x3:int46", "torch has no dtype 'int46'. Did you mean int"),
        ("1x3:Tensor", "torch has no dtype 'Tensor'"),
    ],
)
def test_an_input_of_another_form_is_refused(text, words):
    with pytest.raises(ModelTargetError) as refused:
        read_inputs([text])
    assert words in str(refused.value)
