from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core.errors import UnsupportedModelError

X = torch.randn(2, 4, 6, 6)


@pytest.fixture
def simple(net):
    """A model of one forward, and its traced form."""

    def simple(forward, **layers):
        model = net(forward, **layers)
        return model, core.trace(model, X)

    return simple


def _chain(_self, x):
    y = x * 1
    y.add_(1)
    z = y + 1
    y.relu_()
    return y + z


def _augmented(_self, x):
    y = x * 1
    y += 1
    y *= x
    y -= 0.5
    return F.relu(y, inplace=True) + y


@pytest.mark.parametrize("forward", [_chain, _augmented])
def test_in_place_operations_become_ordinary_ones_with_the_same_result(simple, ops, forward):
    model, traced = simple(forward)

    assert not [name for name in ops(traced) if name.endswith("_") or name[0] == "i"]
    assert not any("inplace" in node.kwargs for node in traced.graph.nodes)
    assert torch.equal(traced(X), model(X))


def _base_read_after_a_view_was_written(_self, x):
    y = x * 1
    y.view(2, -1).add_(1)
    return y


def _view_read_after_its_base_was_written(_self, x):
    y = x * 1
    v = y.view(-1)
    y.add_(1)
    return v * 2


def _view_read_after_another_was_written(_self, x):
    y = x * 1
    v, w = y.view(-1), y.flatten()
    w.add_(1)
    return v * 2


def _stale_view_of_what_was_written_before(_self, x):
    y = x * 1
    y.add_(1)
    v = y[:, :2]
    y.mul_(2)
    return v + 1


def _overlapping_slices(_self, x):
    y = x * 1
    left, middle = y[:, :2], y[:, 1:]
    left.relu_()
    return middle * 2


@pytest.mark.parametrize(
    "forward",
    [
        _base_read_after_a_view_was_written,
        _view_read_after_its_base_was_written,
        _view_read_after_another_was_written,
        _stale_view_of_what_was_written_before,
        _overlapping_slices,
    ],
)
def test_memory_that_is_read_under_another_name_after_a_write_is_refused(simple, forward):
    with pytest.raises(UnsupportedModelError, match=r"shares its memory; write .*out of place"):
        simple(forward)


def _parts_of_a_chunk(_self, x):
    parts = (x * 1).chunk(2, dim=1)
    left, right = parts[0], parts[1]
    left.add_(1)
    return left + right


def _neighbouring_slices(_self, x):
    y = x * 1
    left, right = y[:, :1], y[:, 1:]
    left.mul_(2)
    return torch.cat([left, right], 1)


def _view_read_before_the_write_only(_self, x):
    y = x * 1
    v = y.view(-1) * 2
    y.add_(1)
    return v.sum() + y


@pytest.mark.parametrize(
    "forward", [_parts_of_a_chunk, _neighbouring_slices, _view_read_before_the_write_only]
)
def test_a_write_to_memory_that_nobody_else_reads_later_is_fine(simple, forward):
    model, traced = simple(forward)
    assert torch.equal(traced(X), model(X))


@pytest.mark.parametrize(
    "layer", [nn.Identity(), nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout()], ids=repr
)
def test_what_does_nothing_is_removed_and_reported(simple, ledger, layer, ops):
    _, traced = simple(lambda self, x: self.layer(x) + 1, layer=layer)

    assert ops(traced) == ["add"]
    assert ledger(traced)["layer"].status is core.Status.REMOVED


@torch.fx.wrap
def skipping(x, rate, *, training):
    return x * rate if training else x


@torch.fx.wrap
def scaling_in_place(x, rate, *, training):
    x.mul_(rate + training)
    return x


@torch.fx.wrap
def only_tensors(x, *, training):
    return x + training + 1 if isinstance(x, torch.Tensor) else x


@torch.fx.wrap
def clamped(x, *, training):
    return x.clamp(max=9) if training or x.max() > 9 else x


def test_a_kind_of_dropout_that_gives_its_operand_in_eval_mode_is_removed(simple, ops, ledger):
    model, traced = simple(lambda self, x: skipping(x + 1, 0.5, training=self.training) * 2)

    assert ops(traced) == ["add", "mul"]
    assert ledger(traced)["skipping"].reason == "does nothing in eval mode"
    assert torch.equal(traced(X), model(X))


@pytest.mark.parametrize(
    "forward",
    [
        lambda _self, x: skipping(x + 1, 0.5, training=True),
        lambda _self, x: scaling_in_place(x + 1, 0.5, training=False),
        lambda _self, x: only_tensors(x + 1, training=False),
        lambda _self, x: clamped(x + 1, training=False),
    ],
)
def test_a_function_of_the_users_that_does_something_stays(simple, forward):
    model, traced = simple(forward)

    assert torch.equal(traced(100 * X), model(100 * X))
    assert len(traced.graph.nodes) == 4


def test_a_functional_dropout_in_training_stays(simple, ops):
    _, traced = simple(lambda _self, x: F.dropout(x, 0.5, training=True))

    assert ops(traced) == ["dropout"]


def test_a_module_called_twice_becomes_two_that_share_their_parameters(simple):
    _, traced = simple(lambda self, x: self.conv(self.conv(x)), conv=nn.Conv2d(4, 4, 1))
    one, other = (traced.get_submodule(n) for n, _ in traced.named_children())

    assert one is not other
    assert one.weight is other.weight


def test_zero_padding_joins_the_convolution_behind_it(simple, ledger):
    model, traced = simple(
        lambda self, x: self.conv(F.pad(x, (1, 1, 2, 2))), conv=nn.Conv2d(4, 4, 3, padding=(0, 1))
    )

    assert traced.conv.padding == (2, 2)
    assert model.conv.padding == (0, 1)
    assert ledger(traced)["pad"].reason == "zero padding joined the convolution behind it"
    assert torch.equal(traced(X), model(X))


@pytest.mark.parametrize(
    "pad",
    [
        lambda x: F.pad(x, (0, 1, 0, 1)),
        lambda x: F.pad(x, (1, 1, 1, 1), value=1.0),
        lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        lambda x: F.pad(x, (-1, -1, -1, -1)),
        lambda x: F.pad(x, (1, 1)),
    ],
    ids=["asymmetric", "ones", "reflect", "crop", "one dimension"],
)
def test_other_padding_stays(simple, ops, pad):
    model, traced = simple(lambda self, x: self.conv(pad(x)), conv=nn.Conv2d(4, 4, 3))

    assert ops(traced)[-2:] == ["pad", "Conv2d"]
    assert torch.equal(traced(X), model(X))


def test_padding_that_is_read_elsewhere_stays(simple, ops):
    def forward(self, x):
        y = F.pad(x, (1, 1, 1, 1))
        return self.conv(y) + y[:, :, 1:-1, 1:-1]

    assert "pad" in ops(simple(forward, conv=nn.Conv2d(4, 4, 3))[1])
