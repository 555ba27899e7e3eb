from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.configs import CustomConfig
from fusion_core.errors import CustomConfigError, ModelStateError

X = torch.randn(6, 4)
Two = namedtuple("Two", "left right")  # noqa: PYI024  what users have


@dataclasses.dataclass
class Result:
    values: torch.Tensor
    other: object = None


@dataclasses.dataclass
class Output(OrderedDict):
    """Both a dictionary and a dataclass, as model libraries have them."""

    values: torch.Tensor | None = None
    other: object = None

    def __post_init__(self) -> None:
        self.update({key: each for key, each in vars(self).items() if each is not None})


CONTAINERS = {
    "[0]": lambda y: (y, None, 3),
    "['y'][0]": lambda y: {"y": [y], "n": 1},
    ".left": lambda y: Two(y, y),
    ".values": lambda y: Result(y, (y, 2)),
    "['z']": lambda y: OrderedDict(z=y, a=None),
    ".other[0]": lambda y: Output(None, (y,)),
    "": lambda y: y,
}


class Net(nn.Module):
    def __init__(self, path="") -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.path = path

    def forward(self, x):
        return CONTAINERS[self.path](self.fc(x))


@pytest.fixture
def reference(backend, linear):
    def reference(model, x=X, **wanted):
        toy = backend(linear)
        graph = core.trace(model.eval(), x, backend=toy, custom=CustomConfig(**wanted))
        prepared = core.calibrate(core.prepare(core.fuse(graph, toy), toy), [x])
        return core.convert(prepared)

    return reference


def codes(values, port):
    steps = torch.round(values * (1 / port.scale)) + port.zero_point
    return steps.clamp(port.quant_min, port.quant_max).to(port.dtype)


def values(given, port):
    return (given.float() - port.zero_point) * port.scale


def at(path, value):
    return eval(f"value{path}", {"value": value})  # noqa: S307  the test's own paths


@pytest.mark.parametrize("path", CONTAINERS)
def test_outputs_keep_their_containers(reference, path):
    model = Net(path)
    given, wanted = reference(model)(X), model(X)

    assert type(given) is type(wanted)
    assert at(path, given).shape == (6, 4)


@pytest.mark.parametrize("path", CONTAINERS)
def test_an_output_at_any_path_is_given_as_codes(reference, path):
    model = Net(path)
    quantized = reference(model, quantized_outputs=(path,))
    port = core.interface(quantized).outputs[path]
    given, wanted = at(path, quantized(X)), at(path, model(X))

    assert port.dtype is given.dtype is torch.uint8
    assert port.shape == (6, 4)
    assert (values(given, port) - wanted).abs().max() < 4 * port.scale


@pytest.mark.parametrize(
    ("path", "pick", "build"),
    [
        ("x", lambda x: x, lambda x: x),
        ("x['left']", lambda x: x["left"], lambda x: {"left": x}),
        ("x[0][1]", lambda x: x[0][1], lambda x: [(None, x)]),
        ("x.right", lambda x: x.right, lambda x: Two(1, x)),
        ("x.values", lambda x: x.values, Result),
    ],
    ids=["plain", "dict", "list", "named tuple", "dataclass"],
)
def test_an_input_at_any_path_is_taken_as_codes(reference, net, path, pick, build):
    model = net(lambda self, x: self.fc(pick(x)), fc=nn.Linear(4, 4))
    plain = reference(model, (build(X),))
    quantized = reference(model, (build(X),), quantized_inputs=(path,))
    port = core.interface(quantized).inputs[path]

    assert torch.equal(quantized(build(codes(X, port))), plain(build(X)))


def test_the_first_input_and_output_may_be_counted(reference):
    found = core.interface(reference(Net("[0]"), quantized_inputs=("0",), quantized_outputs=("0",)))

    assert found.inputs["x"].dtype is torch.uint8
    assert found.outputs["[0]"].dtype is torch.uint8


def test_every_other_output_stays_what_it_is(reference):
    found = core.interface(reference(Net(".left"), quantized_outputs=(".left",)))

    assert found.outputs[".left"].scale is not None
    assert found.outputs[".right"] == core.Port(torch.float32, (6, 4))


def test_what_is_no_tensor_has_no_dtype(reference):
    assert core.interface(reference(Net("[0]"))).outputs["[2]"] == core.Port(None, None)


def test_values_for_an_input_of_codes_are_refused(reference):
    with pytest.raises(
        TypeError, match=r"takes codes of torch\.uint8 with scale .* torch\.float32"
    ):
        reference(Net(), quantized_inputs=("x",))(X)


def test_while_calibrating_all_is_float(backend, linear):
    toy = backend(linear)
    config = CustomConfig(quantized_inputs=("x",), quantized_outputs=("",))
    model = Net().eval()
    prepared = core.prepare(core.fuse(core.trace(model, X, backend=toy, custom=config), toy), toy)

    assert torch.equal(prepared(X), model(X))
    assert core.interface(prepared).inputs == {"x": core.Port(torch.float32, (6, 4))}


def test_refining_takes_the_same_data(backend, linear):
    toy = backend(linear)
    config = CustomConfig(quantized_inputs=("x",), quantized_outputs=("",))
    graph = core.fuse(core.trace(Net().eval(), X, backend=toy, custom=config), toy)
    prepared = core.calibrate(core.prepare(graph, toy), [X])
    refined = core.refine(core.convert(prepared), prepared, [X])

    assert core.interface(refined).inputs["x"].dtype is torch.uint8


@pytest.mark.parametrize("again", [lambda model: model, copy.deepcopy], ids=["", "copy"])
def test_kernels_take_and_give_the_same_codes(again):
    config = CustomConfig(quantized_inputs=("x",), quantized_outputs=("",))
    options = {"calibration": [X], "custom": config, "adaptive_rounding": False}
    model = Net().eval()
    lowered = again(core.quantize(model, "fbgemm", **options))
    plain = core.quantize(model, "fbgemm", reference=True, **options)
    given = codes(X, core.interface(lowered).inputs["x"])

    assert core.interface(lowered) == core.interface(plain)
    assert lowered(given).dtype is torch.uint8
    assert (lowered(given).int() - plain(given).int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (
            {"quantized_inputs": ("y",)},
            r"'y' in quantized_inputs: the model has nothing there; it has 'x'",
        ),
        (
            {"quantized_outputs": ("[3]",)},
            r"'\[3\]' in quantized_outputs: the model has nothing there",
        ),
        ({"quantized_outputs": ("[2]",)}, r"'\[2\]' in quantized_outputs: it is 3 and no tensor"),
    ],
    ids=["input", "output", "no tensor"],
)
def test_a_path_that_is_not_there_is_an_error(reference, wanted, problem):
    with pytest.raises(CustomConfigError, match=problem):
        reference(Net("[0]"), **wanted)


def test_a_value_that_is_not_quantized_is_an_error(reference, net):
    model = net(lambda self, x: torch.sin(self.fc(torch.cos(x))), fc=nn.Linear(4, 4))

    with pytest.raises(CustomConfigError, match="no quantized operation reads this input"):
        reference(model, quantized_inputs=("x",))
    with pytest.raises(CustomConfigError, match="sin, which gives this output, is not quantized"):
        reference(model, quantized_outputs=("",))


def test_a_model_from_no_pass_has_no_interface():
    with pytest.raises(ModelStateError, match="interface needs a traced model"):
        core.interface(nn.Linear(4, 4))
