from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name everyone knows it by

import fusion_core as core
from fusion_core.configs import CustomConfig, Standalone
from fusion_core.errors import CustomConfigError, TraceError
from fusion_core.passes.parts import modules_with_parts, whole_ledger
from fusion_core.passes.record import Stage
from fusion_core.testing.measures import sqnr

X = torch.randn(6, 4)


class Opaque(nn.Module):
    """Its forward cannot be traced."""

    def __init__(self, forward, **modules) -> None:
        super().__init__()
        self.way = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x, *more):
        if x.sum() > 1e9:
            return x
        return self.way(self, x, *more)


class Block(nn.Module):
    def __init__(self, size=4) -> None:
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, x, mask=None, *, scale: float = 1.0):
        y = self.fc(x) * scale
        return y if mask is None else y * mask


def fc():
    return nn.Linear(4, 4)


@pytest.fixture
def traced(backend, linear):
    """The model traced; it must compute what it computed."""

    def traced(model, x=X, **options):
        graph = core.trace(model.eval(), x, backend=backend(linear), **options)
        assert torch.equal(graph(x), model(x))
        return graph

    return traced


@pytest.fixture
def reasons(traced):
    """For each place, why it is not in the plain graph."""

    def reasons(model, **options):
        ledger = whole_ledger(traced(model, **options))
        return {line.path: line.reason for line in ledger if line.reason}

    return reasons


@pytest.fixture
def converted(backend, linear):
    """The reference model."""

    def converted(model, custom=None, mapping=None, data=None, patterns=()):
        toy = backend(linear, *patterns)
        data = data or [X, -X]
        graph = core.fuse(core.trace(model.eval(), data[0], backend=toy, custom=custom), toy)
        prepared = core.calibrate(core.prepare(graph, toy, mapping), data)
        return core.convert(prepared)

    return converted


def paths(graph):
    return [path for path, _ in modules_with_parts(graph) if path]


def statuses(graph):
    return {(line.path, line.operation): line.status for line in whole_ledger(graph)}


def test_the_modules_in_one_that_cannot_be_traced_are_graphs_of_their_own(traced):
    model = nn.Sequential(Opaque(lambda m, x: m.a(m.b(x)), a=Block(), b=fc()))

    assert paths(traced(model)) == ["0.a", "0.b"]


def test_a_model_that_cannot_be_traced_itself_is_called(traced):
    assert paths(traced(Opaque(lambda m, x: m.a(x), a=Block()))) == ["model.a"]


def test_where_nothing_can_be_traced_the_error_remains(traced):
    with pytest.raises(TraceError, match=r"the model itself \(Opaque\) at .*test_parts\.py:\d+"):
        traced(Opaque(lambda _, x: x))


def test_lists_and_dicts_of_modules_are_looked_through(traced):
    model = Opaque(
        lambda m, x: m.named["b"](m.listed[0](x)),
        listed=nn.ModuleList([fc(), fc()]),
        named=nn.ModuleDict({"b": nn.Sequential(fc(), nn.ReLU())}),
    )

    assert paths(traced(model)) == ["model.listed.0", "model.named.b"]


def test_what_cannot_be_traced_within_what_cannot_is_opened_too(traced):
    inner = Opaque(lambda m, x: m.c(x), c=fc())
    model = Opaque(lambda m, x: m.b(x), b=Opaque(lambda m, x: m.i(x), i=inner))

    assert paths(traced(model)) == ["model.b.i.c"]


def test_what_cannot_be_traced_within_a_part_is_a_part_of_that(traced):
    inner = Opaque(lambda m, x: m.c(x), c=fc())
    model = Opaque(lambda m, x: m.b(x), b=nn.Sequential(fc(), inner))

    assert paths(traced(model)) == ["model.b", "model.b.1.c"]


def test_a_module_that_is_never_called_stays_with_the_reason(reasons):
    model = Opaque(lambda m, x: m.a(x), a=fc(), b=fc())

    assert "it is never called with the example inputs" in reasons(model)["b"]


def test_the_modules_of_one_that_is_never_called_itself_are_taken(traced):
    model = Opaque(lambda m, x: m.a[1](x), a=nn.Sequential(fc(), fc()))

    assert paths(traced(model)) == ["model.a.1"]


def test_a_module_called_with_different_ranks_stays_with_the_reason(reasons):
    model = Opaque(lambda m, x: m.a(x) + m.a(x[None])[0], a=fc())
    with pytest.raises(TraceError):  # nothing else is in it
        reasons(model)
    model.b = Block()
    model.way = lambda m, x: m.b(m.a(x) + m.a(x[None])[0])

    assert "its calls differ in input: '2-d float32' and '3-d float32'" in reasons(model)["a"]


def test_a_module_called_in_a_loop_is_one_part_and_all_calls_count(traced):
    def way(m, x):
        for _ in range(3):
            x = m.a(x)
        return m.a(x[:2])

    graph = traced(Opaque(way, a=fc()))
    (line,) = (line for line in whole_ledger(graph) if line.path == "a")

    assert line.macs == 3 * 6 * 16 + 2 * 16


def test_multiplications_in_parts_are_counted_once(traced):
    model = nn.Sequential(Opaque(lambda m, x: F.linear(m.a(x), torch.eye(4)), a=fc()), fc())
    macs = {line.path: line.macs for line in whole_ledger(traced(model))}

    assert macs == {"0": 96, "0.a": 96, "1": 96}


@pytest.mark.parametrize(
    "way",
    [
        lambda m, x: m.a(x) + m.a.weight.sum(),
        lambda m, x: m.a(x) if isinstance(m.a, nn.Linear) else x,
    ],
    ids=["reads its weight", "asks for its type"],
)
def test_a_module_that_a_graph_cannot_stand_in_for_stays_with_the_reason(reasons, way):
    found = reasons(Opaque(lambda m, x: m.b(way(m, x)), a=fc(), b=fc()))

    assert found["a"].startswith("kept whole: with a graph in its place, what holds it ")
    assert "b" not in found


def test_a_forward_that_gives_something_else_each_time_is_left_alone(backend, linear):
    counter = iter(range(1000))
    model = Opaque(lambda m, x: m.a(x) + next(counter), a=fc()).eval()
    graph = core.trace(nn.Sequential(model).eval(), X, backend=backend(linear))
    ledger = whole_ledger(graph)

    assert paths(graph) == []
    assert any("gives something else each time" in (line.reason or "") for line in ledger)


def test_random_numbers_are_the_same_each_time(backend, linear):
    model = Opaque(lambda m, x: m.a(x) + torch.rand(1), a=fc()).eval()

    assert paths(core.trace(model, X, backend=backend(linear))) == ["model.a"]


def test_a_module_with_hooks_is_kept_and_its_modules_are_taken(traced):
    model = Opaque(lambda m, x: m.a(x), a=Block())
    model.a.register_forward_hook(lambda _module, _args, output: output + 1)

    assert paths(traced(model)) == ["model.a.fc"]


def test_a_module_under_two_names_is_one_part(traced, converted):
    shared = fc()
    model = Opaque(lambda m, x: m.a(m.b(x)), a=shared, b=shared)
    reference = converted(model)

    assert paths(traced(model)) == ["model.a"]
    assert reference.model.a is reference.model.b


def test_arguments_by_keyword_and_constants_are_kept(traced):
    model = Opaque(lambda m, x: m.a(x, None, scale=2.0) + m.b(x, mask=x), a=Block(), b=Block())
    graph = traced(model)

    assert paths(graph) == ["model.a", "model.b"]
    with pytest.raises(AssertionError, match="specialized"):
        graph.model.a(X, None, scale=3.0)


def test_calls_that_give_different_arguments_are_no_single_graph(reasons):
    model = Opaque(lambda m, x: m.c(m.a(x) + m.a(x, x)), a=Block(), c=fc())

    assert reasons(model).keys() == {""}  # what it is made of is called alike
    assert paths(core.trace(model, X)) == ["model.a.fc", "model.c"]


def test_the_users_model_is_not_changed(converted):
    model = nn.Sequential(Opaque(lambda m, x: m.a(x), a=Block())).eval()
    state, modules = copy.deepcopy(model.state_dict()), list(model.modules())
    converted(model)

    assert list(model.modules()) == modules
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in state.items())


def test_every_pass_goes_through_the_parts_and_leaves_its_input_alone(backend, linear):
    toy = backend(linear)
    model = nn.Sequential(Opaque(lambda m, x: m.a(x), a=Block()), fc()).eval()
    stages = [core.trace(model, X, backend=toy)]
    stages += [core.fuse(stages[-1], toy)]
    stages += [core.prepare(stages[-1], toy)]
    core.calibrate(stages[-1], [X])
    stages += [core.convert(stages[-1])]
    stages += [core.refine(stages[-1], stages[-2], [X])]
    stages += [core.lower(stages[-1], toy)]
    wanted = ["TRACED", "FUSED", "CALIBRATED", "CONVERTED", "CONVERTED", "LOWERED"]

    for graph, stage in zip(stages, wanted, strict=True):
        found = {each.fusion_record.stage for _, each in modules_with_parts(graph)}
        assert found == {Stage[stage]}


def test_parts_are_quantized_and_the_report_has_their_lines(converted):
    model = nn.Sequential(Opaque(lambda m, x: m.a(x), a=Block()), fc()).eval()
    reference = converted(model)
    lines = {line.path: line for line in core.report(reference).ledger}

    assert list(lines)[:2] == ["0", "0.a.fc"]
    assert {lines["0.a.fc"].status, lines["1"].status} == {core.Status.REFERENCE}
    assert lines["0"].reason.startswith("its forward runs as Python: cannot be traced at ")
    assert not torch.equal(reference(X), model(X))
    assert sqnr(model(X).detach(), reference(X).detach()) > 25


def test_refining_reaches_the_parts(backend, linear):
    toy = backend(linear)
    model = nn.Sequential(Opaque(lambda m, x: m.a(x), a=fc())).eval()
    prepared = core.prepare(core.fuse(core.trace(model, X, backend=toy), toy), toy)
    converted = core.convert(core.calibrate(prepared, [X]))
    before = copy.deepcopy(prepared.state_dict())
    refined = core.refine(converted, prepared, [X])

    biases = [graph.get_submodule("0.a.a").bias for graph in (converted, refined)]
    assert not torch.equal(*biases)
    assert all(torch.equal(each, prepared.state_dict()[name]) for name, each in before.items())


def test_calibration_names_the_part_that_it_never_reached(backend, linear):
    def way(m, x):
        return m.b(x) if x[0, 0] > 0 else m.a(x)

    toy = backend(linear)
    model = nn.Sequential(Opaque(way, a=fc(), b=fc()), Block()).eval()
    both = core.trace(model, X.abs(), backend=toy)
    prepared = core.prepare(core.fuse(both, toy), toy)

    with pytest.raises(core.errors.CalibrationError, match=r"never reached: the output of 0\.b"):
        core.calibrate(prepared, [-X.abs()])


@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))],  # noqa: S301
    ids=["copy", "saved"],
)
def test_copies_have_the_parts_and_can_be_passed_on(converted, again):
    model = nn.Sequential(Opaque(way_of_a, a=Block())).eval()
    reference = converted(model)
    copied = again(again(reference))

    assert torch.equal(copied(X), reference(X))
    assert statuses(copied) == statuses(reference)
    assert copied.state_dict().keys() == reference.state_dict().keys()
    assert statuses(core.lower(copied, "fbgemm"))["0.a.fc", "Linear"] is core.Status.INT8


def way_of_a(m, x):
    return m.a(x)


def test_a_qconfig_mapping_speaks_of_parts_by_their_whole_paths(converted):
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    mapping.set_module_name("0.a", None)
    model = nn.Sequential(Opaque(lambda m, x: m.b(m.a(x)), a=Block(), b=Block()))
    found = statuses(converted(model, mapping=mapping))

    assert found["0.a.fc", "Linear"] is core.Status.FLOAT
    assert found["0.b.fc", "Linear"] is core.Status.REFERENCE


@pytest.mark.parametrize("place", ["0", Block], ids=["name", "type"])
def test_what_is_not_traceable_by_request_runs_as_python_with_parts(traced, place):
    graph = traced(nn.Sequential(Block()), custom=CustomConfig(non_traceable=(place,)))

    assert paths(graph) == ["0.fc"]
    assert "lists it as not traceable" in whole_ledger(graph)["_0"].reason


@pytest.mark.parametrize("place", ["1", Block], ids=["name", "type"])
def test_a_standalone_module_is_one_part_without_a_line_of_its_own(traced, place):
    config = CustomConfig(standalone={place: Standalone()})
    graph = traced(nn.Sequential(fc(), Block(), fc()), custom=config)
    lines = {line.path: line.operation for line in whole_ledger(graph)}

    assert paths(graph) == ["1"]
    assert lines == {"0": "Linear", "1.fc": "Linear", "1": "operator.mul", "2": "Linear"}


def test_a_standalone_module_computes_what_it_does_inlined(converted):
    model = nn.Sequential(fc(), nn.Sequential(fc(), fc()), fc())
    inlined = converted(model)
    apart = converted(model, CustomConfig(standalone={"1": Standalone()}))

    assert torch.equal(apart(X), inlined(X))
    assert Counter(statuses(apart)) == Counter(statuses(inlined))


def test_what_follows_a_standalone_module_is_still_quantized(converted):
    reference = converted(nn.Sequential(fc(), fc()), CustomConfig(standalone={"0": Standalone()}))

    assert statuses(reference)["1", "Linear"] is core.Status.REFERENCE
    called = [str(node.target) for node in reference.graph.nodes if node.op == "call_module"]
    assert called == ["0", "1"]


def test_a_standalone_module_has_its_own_mapping(converted):
    own = Standalone(qconfig_mapping=core.QConfigMapping(global_qconfig=None))
    found = statuses(converted(nn.Sequential(fc(), fc()), CustomConfig(standalone={"0": own})))

    assert found == {("0", "Linear"): core.Status.FLOAT, ("1", "Linear"): core.Status.REFERENCE}


def test_a_standalone_module_has_its_own_backend(converted):
    model = nn.Sequential(fc(), nn.Sequential(fc(), nn.ReLU()))
    config = CustomConfig(standalone={"1": Standalone(backend="fbgemm")})
    reference = converted(model, config)

    assert reference.fusion_record.backend == "toy"
    assert reference.get_submodule("1").fusion_record.backend == "fbgemm"
    assert statuses(reference)["1.1", "ReLU"] is core.Status.REFERENCE


def test_a_standalone_module_called_twice_is_two_parts(net, traced):
    model = net(lambda self, x: self.a(self.a(x)), a=Block())

    assert paths(traced(model, custom=CustomConfig(standalone={"a": Standalone()}))) == [
        "a",
        "a_again",
    ]


def test_a_standalone_module_that_cannot_be_traced_is_an_error(traced):
    model = nn.Sequential(Opaque(lambda m, x: m.a(x), a=fc()))

    with pytest.raises(TraceError, match=r"cannot trace 0 \(Opaque\)"):
        traced(model, custom=CustomConfig(standalone={"0": Standalone()}))


@pytest.mark.parametrize("field", ["non_traceable", "standalone"])
def test_a_name_that_does_not_exist_is_an_error_with_near_misses(traced, field):
    value = ("0.fcc",) if field == "non_traceable" else {"0.fcc": Standalone()}

    with pytest.raises(CustomConfigError, match=rf"'0\.fcc' in {field}: .* Did you mean '0\.fc'\?"):
        traced(nn.Sequential(Block()), custom=CustomConfig(**{field: value}))


def test_a_type_that_never_occurs_is_noted(traced):
    graph = traced(fc_in_sequence(), custom=CustomConfig(non_traceable=(Block,)))

    assert whole_ledger(graph).notes == [
        "non_traceable of the custom config names Block, and the model has no module of that type"
    ]


def fc_in_sequence():
    return nn.Sequential(fc())
