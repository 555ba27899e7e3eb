"""Attention whose projections are linear layers of their own, in a form that FX can trace.

``nn.MultiheadAttention`` keeps its projections in one parameter and decides by the values of its arguments
how to run, so a tracer can only call it whole, and no pattern of a linear layer finds one in it. The form
here computes the same, for any number of dimensions, without looking at a value. What multiplies two
computed values stays in functions that are nodes of their own: a mask holds minus infinity, which no
observer should see.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

_HEADS_ROWS_FEATURES = 3


class MultiheadAttention(nn.Module):
    """What ``nn.MultiheadAttention`` computes, through ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj``.

    Attributes:
        q_proj: Projection of the query; ``k_proj`` and ``v_proj`` are those of key and value.
        out_proj: Projection of what the heads give.
        bias_k: Key that is added to every sequence, shape [1, 1, embed_dim], or None; ``bias_v`` is
            its value.
        attn_dropout: Dropout on the attention weights, in training.
    """

    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(self, attention: Any) -> None:
        """With the parameters of ``attention``, an ``nn.MultiheadAttention``, cut apart."""
        super().__init__()
        self.embed_dim, self.num_heads = attention.embed_dim, attention.num_heads
        self.kdim, self.vdim = attention.kdim, attention.vdim
        self.head_dim = attention.head_dim
        self.dropout = attention.dropout
        # The mode is not asked for in forward, which is traced in one of them.
        self.keeps_dropout = attention.training and attention.dropout > 0
        self.batch_first = attention.batch_first
        self.add_zero_attn = attention.add_zero_attn
        self.has_bias = attention.in_proj_bias is not None
        # What torch's layers ask for before they hand the weights to a fused kernel: here they must not.
        self._qkv_same_embed_dim = False
        with torch.enable_grad():  # so that parts of a parameter are trained if it is
            self.q_proj, self.k_proj, self.v_proj = _input_projections(attention)
        self.out_proj = _linear(attention.out_proj.weight, attention.out_proj.bias)
        self.register_parameter("bias_k", attention.bias_k)
        self.register_parameter("bias_v", attention.bias_v)
        self.attn_dropout = nn.Dropout(attention.dropout)
        self.train(attention.training)

    def forward(  # noqa: PLR0913, PLR0917  torch's signature
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: FBT001, FBT002  torch's signature
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: FBT001, FBT002  torch's signature
        is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of ``query`` to ``key``; arguments and results are those of ``nn.MultiheadAttention``.

        Raises:
            RuntimeError: ``is_causal`` without ``attn_mask``, as in torch.
        """
        if is_causal and attn_mask is None:
            msg = "Need attn_mask if specifying the is_causal hint"
            raise RuntimeError(msg)
        q, k, v = self._heads(query, key, value)
        mask = None
        if attn_mask is not None or key_padding_mask is not None:
            added = (self.bias_k is not None) + self.add_zero_attn
            mask = attention_mask(q, attn_mask, key_padding_mask, added)
        if not need_weights and not self.keeps_dropout:
            return self._output(F.scaled_dot_product_attention(q, k, v, mask)), None
        weights = self.attn_dropout(attention_weights(q, k, mask))
        output = self._output(weighted_values(weights, v))
        if not need_weights:
            return output, None
        return output, weights.mean(dim=-3) if average_attn_weights else weights

    @property
    def in_proj_weight(self) -> Tensor | None:
        """The three weights as one, for code that reads the attribute of ``nn.MultiheadAttention``."""
        if self.kdim != self.embed_dim or self.vdim != self.embed_dim:
            return None
        return torch.cat([each.weight for each in (self.q_proj, self.k_proj, self.v_proj)])

    @property
    def in_proj_bias(self) -> Tensor | None:
        """The three biases as one, or None; empty where the projections have gone into kernels.

        A layer of torch that holds this one asks only whether there is a bias.
        """
        if not self.has_bias:
            return None
        projections: list[Any] = [getattr(self, f"{name}_proj", None) for name in "qkv"]
        if any(each is None for each in projections):
            return torch.empty(0)
        return torch.cat([each.bias for each in projections])

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, of shape [..., heads, sequence, head_dim]."""
        projected = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        sequence = -3 if self.batch_first else 0
        q, k, v = (
            each.unflatten(-1, (self.num_heads, self.head_dim)).movedim(sequence, -2)
            for each in projected
        )
        if self.bias_k is not None and self.bias_v is not None:
            per_head = (self.num_heads, 1, self.head_dim)
            k = with_key(k, self.bias_k.reshape(per_head))
            v = with_key(v, self.bias_v.reshape(per_head))
        if self.add_zero_attn:
            k, v = with_key(k, None), with_key(v, None)
        return q, k, v

    def _output(self, attended: Tensor) -> Tensor:
        """The projection of what the heads give; puts together what :meth:`_heads` took apart."""
        joined = attended.movedim(-2, -3 if self.batch_first else 0).flatten(-2)
        projected: Tensor = self.out_proj(joined)
        return projected


def attention_mask(
    query: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, added: int
) -> Tensor:
    """Both masks as one that is added to the scores.

    Args:
        query: Of shape [..., heads, rows, head_dim], with or without a batch dimension in front.
        attn_mask: Of shape [rows, keys] or [batch * heads, rows, keys]; boolean, true where attention is not
            allowed, or float.
        key_padding_mask: Of shape [..., keys]; boolean or float like ``attn_mask``.
        added: How many keys were put behind those that the masks are about.

    Returns:
        A float tensor that broadcasts to [..., heads, rows, keys + added].
    """
    given = (query, attn_mask, key_padding_mask)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(
            attention_mask, given, query, attn_mask, key_padding_mask, added
        )
        return traced
    parts = []
    if attn_mask is not None:
        per_head = attn_mask.dim() == query.dim() - 1 == _HEADS_ROWS_FEATURES
        split = attn_mask.unflatten(0, (-1, query.shape[-3])) if per_head else attn_mask
        parts.append(_additive(split, query))
    if key_padding_mask is not None:
        parts.append(_additive(key_padding_mask, query).unsqueeze(-2).unsqueeze(-2))
    return F.pad(sum(parts[1:], parts[0]), (0, added))


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """How much each row attends to each key.

    Args:
        query: Of shape [..., heads, rows, head_dim].
        key: Of shape [..., heads, keys, head_dim].
        mask: What :func:`attention_mask` gave, or None.

    Returns:
        A tensor of shape [..., heads, rows, keys] whose last dimension sums to one.
    """
    given = (query, key, mask)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(attention_weights, given, query, key, mask)
        return traced
    scores = torch.matmul(query * math.sqrt(1 / query.shape[-1]), key.transpose(-2, -1))
    return torch.softmax(scores if mask is None else scores + mask, dim=-1)


def weighted_values(weights: Tensor, value: Tensor) -> Tensor:
    """The values of shape [..., keys, head_dim], averaged with weights of shape [..., rows, keys]."""
    given = (weights, value)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(weighted_values, given, weights, value)
        return traced
    return torch.matmul(weights, value)


def with_key(sequence: Tensor, key: Tensor | None) -> Tensor:
    """Keys, or values, of shape [..., heads, keys, head_dim] and one more behind them.

    Args:
        sequence: The keys there are.
        key: Of shape [heads, 1, head_dim]; zeros where None.
    """
    given: tuple[Any, ...] = (sequence, key)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(with_key, given, sequence, key)
        return traced
    place = torch.zeros_like(sequence[..., :1, :])
    return torch.cat([sequence, place if key is None else key.expand_as(place)], dim=-2)


def _additive(mask: Tensor, query: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(query.dtype)
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, float("-inf"))


def _input_projections(attention: Any) -> list[nn.Linear]:
    packed, bias = attention.in_proj_weight, attention.in_proj_bias
    weights = (
        (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
        if packed is None
        else packed.chunk(3)
    )
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return [_linear(weight, each) for weight, each in zip(weights, biases, strict=True)]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with the parameters, or with copies of what is part of one."""
    rows, columns = weight.shape
    made = nn.Linear(columns, rows, bias=bias is not None, device="meta")
    made.weight = _parameter(weight)
    if bias is not None:
        made.bias = _parameter(bias)
    return made


def _parameter(tensor: Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach().clone(), requires_grad=tensor.requires_grad)
