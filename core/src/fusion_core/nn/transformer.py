"""The transformer layers of torch as plain sequences of modules, which FX can trace.

Those of torch choose between kernels by the values of their arguments. These take over the modules they
are made from, and keep their names.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class _Opened(nn.Module):
    """A layer made of the modules of another one, under their names."""

    def __init__(self, layer: nn.Module) -> None:
        """Of the modules and settings of ``layer``, which is not to be used any more."""
        super().__init__()
        for name in ("activation", "norm", "norm_first"):
            if name in vars(layer):
                setattr(self, name, getattr(layer, name))
        for name, child in layer.named_children():
            self.add_module(name, child)
        self.train(layer.training)

    def __getattr__(self, name: str) -> Any:
        """A child; not declared one by one, since they are those of torch's layer."""
        return super().__getattr__(name)


class TransformerEncoderLayer(_Opened):
    """What ``nn.TransformerEncoderLayer`` computes on its ordinary path."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
    ) -> Tensor:
        """The layer on ``src``; arguments and result are those of ``nn.TransformerEncoderLayer``."""
        masks = {
            "attn_mask": src_mask,
            "key_padding_mask": src_key_padding_mask,
            "is_causal": is_causal,
        }
        x: Tensor
        if self.norm_first:
            x = src + self._attended(self.norm1(src), masks)
            x = x + self._fed_forward(self.norm2(x))
            return x
        x = self.norm1(src + self._attended(src, masks))
        x = self.norm2(x + self._fed_forward(x))
        return x

    def _attended(self, x: Tensor, masks: dict[str, Any]) -> Any:
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **masks)[0])

    def _fed_forward(self, x: Tensor) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(_Opened):
    """What ``nn.TransformerDecoderLayer`` computes."""

    def forward(  # noqa: PLR0913, PLR0917  torch's signature
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
        memory_is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
    ) -> Tensor:
        """The layer on ``tgt``; arguments and result are those of ``nn.TransformerDecoderLayer``."""
        own = {
            "attn_mask": tgt_mask,
            "key_padding_mask": tgt_key_padding_mask,
            "is_causal": tgt_is_causal,
        }
        other = {
            "attn_mask": memory_mask,
            "key_padding_mask": memory_key_padding_mask,
            "is_causal": memory_is_causal,
        }
        x: Tensor
        if self.norm_first:
            x = tgt + self._self_attended(self.norm1(tgt), own)
            x = x + self._attended(self.norm2(x), memory, other)
            x = x + self._fed_forward(self.norm3(x))
            return x
        x = self.norm1(tgt + self._self_attended(tgt, own))
        x = self.norm2(x + self._attended(x, memory, other))
        x = self.norm3(x + self._fed_forward(x))
        return x

    def _self_attended(self, x: Tensor, masks: dict[str, Any]) -> Any:
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **masks)[0])

    def _attended(self, x: Tensor, memory: Tensor, masks: dict[str, Any]) -> Any:
        attended = self.multihead_attn(x, memory, memory, need_weights=False, **masks)
        return self.dropout2(attended[0])

    def _fed_forward(self, x: Tensor) -> Any:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(_Opened):
    """What ``nn.TransformerEncoder`` computes on its ordinary path.

    Its other path, on nested tensors, differs in one thing: it gives zeros where ``src_key_padding_mask``
    says that nothing stands.
    """

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,  # noqa: FBT001  torch's signature
    ) -> Tensor:
        """The layers on ``src``; arguments and result are those of ``nn.TransformerEncoder``."""
        output = src
        for layer in self.layers:
            output = layer(
                output,
                src_mask=mask,
                is_causal=is_causal is True,
                src_key_padding_mask=src_key_padding_mask,
            )
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(_Opened):
    """What ``nn.TransformerDecoder`` computes."""

    def forward(  # noqa: PLR0913, PLR0917  torch's signature
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,  # noqa: FBT001  torch's signature
        memory_is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
    ) -> Tensor:
        """The layers on ``tgt``; arguments and result are those of ``nn.TransformerDecoder``."""
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal is True,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(_Opened):
    """What ``nn.Transformer`` computes."""

    def forward(  # noqa: PLR0913, PLR0917  torch's signature
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,  # noqa: FBT001  torch's signature
        tgt_is_causal: bool | None = None,  # noqa: FBT001  torch's signature
        memory_is_causal: bool = False,  # noqa: FBT001, FBT002  torch's signature
    ) -> Tensor:
        """Encoder and decoder; arguments and result are those of ``nn.Transformer``."""
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        output: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return output
