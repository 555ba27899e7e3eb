"""What is known of PyTorch's quantized engines, as data that the rules and modules look up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """What the kernels of one engine can do.

    Attributes:
        name: As in ``torch.backends.quantized.supported_engines``.
        transposed: Numbers of spatial dimensions for which it has transposed convolutions.
        transposed_per_channel: Whether those take a scale for each output channel, groups apart.
        unpacked: Numbers of spatial dimensions of convolutions, transposed or not, whose weight can
            be read back once it is packed.
        integer_bias: Whether it keeps the bias in 32 bits, in steps of input scale times weight
            scale, and its sums with it.
        half: Whether it has products with weights in float16.
        short_inputs: Whether products on inputs that are quantized while running can do with codes
            of 7 bits.
        fast_depthwise: Whether :func:`fusion_core.kernels.depthwise.fast_form` gives a faster form
            of depthwise convolutions.
        two_rows: Whether its transposed convolutions are right for kernels of two rows, see
            :mod:`fusion_core.kernels.two_rows`.
    """

    name: str
    transposed: tuple[int, ...] = ()
    transposed_per_channel: bool = False
    unpacked: tuple[int, ...] = (1, 2, 3)
    integer_bias: bool = False
    half: bool = False
    short_inputs: bool = False
    fast_depthwise: bool = False
    two_rows: bool = True


_KNOWN = {
    "fbgemm": Engine(
        "fbgemm",
        transposed=(1, 2, 3),
        half=True,
        short_inputs=True,
        fast_depthwise=True,
        two_rows=False,
    ),
    # Its transposed convolution in three dimensions runs, and gives wrong numbers. A weight in one
    # dimension can be read back, but the kernel that has not run yet never will.
    "qnnpack": Engine(
        "qnnpack",
        transposed=(1, 2),
        transposed_per_channel=True,
        unpacked=(2,),
        integer_bias=True,
    ),
}


def engine_named(name: str) -> Engine:
    """What is known of the engine ``name``; little of one that no backend here uses."""
    return _KNOWN.get(name, Engine(name))
