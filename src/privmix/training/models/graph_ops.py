"""Which tensor operations a network may be written down with: pure ones, whose results follow from their inputs.

Nothing here draws a random number, changes what it is given, leaves memory unwritten or opens anything, so that a
stranger's list of them is data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from privmix.errors import InvalidInput

_POINTWISE: Final = """
    abs neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh
    cosh tanh sigmoid erf erfc floor ceil round trunc sign relu relu6 gelu silu elu selu celu mish softplus
    hardtanh hardswish hardsigmoid leaky_relu log_sigmoid hardshrink softshrink threshold prelu logical_not
    isfinite isnan bitwise_not glu add sub mul div rsub pow maximum minimum fmod remainder floor_divide atan2 eq
    ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor clamp clamp_min
    clamp_max where lerp addcmul addcdiv masked_fill
"""
_REDUCING: Final = """
    sum mean amax amin max min var std var_mean prod any all argmax argmin logsumexp norm linalg_vector_norm
    cumsum softmax _softmax log_softmax _log_softmax
"""
_SHAPING: Final = """
    view reshape _unsafe_view permute transpose t squeeze unsqueeze expand expand_as flatten unflatten slice
    select narrow split split_with_sizes chunk unbind cat stack concat repeat roll flip index index_select
    gather pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d unfold
    movedim tile clone contiguous alias detach view_as triu tril to _to_copy type_as lift_fresh_copy numpy_T mT
    diagonal pixel_shuffle pixel_unshuffle channel_shuffle im2col
"""
_LINEAR: Final = """
    linear matmul mm bmm mv dot addmm baddbmm outer einsum bilinear embedding conv1d conv2d conv3d convolution
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity _weight_norm _weight_norm_interface
    scaled_dot_product_attention lstm gru rnn_tanh rnn_relu
"""
_LAYERS: Final = """
    layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm dropout feature_dropout
    alpha_dropout max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d upsample_nearest1d
    upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_linear1d
"""
_MAKING: Final = """
    full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full arange scalar_tensor eye linspace
"""
KNOWN: Final = frozenset((_POINTWISE + _REDUCING + _SHAPING + _LINEAR + _LAYERS + _MAKING).split())

# Of sizes, and of what gives several results.
_NUMBERS: Final[dict[str, Callable[[int, int], int]]] = {
    "op.add": lambda a, b: a + b,
    "op.sub": lambda a, b: a - b,
    "op.mul": lambda a, b: a * b,
    "op.floordiv": lambda a, b: a // b,
    "op.mod": lambda a, b: a % b,
}
_ITEM: Final = "op.getitem"
_SIZE: Final = "aten.sym_size.int"
# Which argument of an operation that can be random makes it so: by its name, and what it must be.
_STILL: Final = {"p": 0, "dropout": 0, "dropout_p": 0, "train": False}
_SIZED: Final = {
    "view": "view",
    "_unsafe_view": "reshape",
    "reshape": "reshape",
    "expand": "expand",
    "repeat": "repeat",
}
ALLOWED: Final = "operations on tensors that are pure: no random ones, none in place, none that open or run anything"


def _is_traced() -> bool:
    """Whether torch.jit.trace looks on."""
    return bool(torch._C._get_tracing_state() is not None)


class Operation:
    """One operation of :data:`KNOWN`, by the name that :func:`torch.export.export` gives it.

    Formal guarantees:
        * Known: a name that is not of the list is refused; nothing is looked up by it elsewhere.
        * Pure: no operation that changes its inputs, and none that is random as it is called.

    Raises:
        InvalidInput: there is none of that name, or it is not pure.

    Example:
        >>> Operation("aten.add.Tensor")(torch.ones(2), torch.ones(2)).tolist()
        [2.0, 2.0]
        >>> Operation("aten.randn.default")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: operation of the network: got 'aten.randn.default'; allowed: operations on ...
    """

    def __init__(self, name: str) -> None:
        self.name, self.needs_device = name, False
        self._call: Callable[..., Any]
        if name == _ITEM:
            self._call = _item
        elif name in _NUMBERS:
            self._call = _whole(_NUMBERS[name])
        elif name == _SIZE:
            self._call = _size
        else:
            self._call = self._overload(name)

    def _overload(self, name: str) -> Callable[..., Any]:
        space, _, rest = name.partition(".")
        packet, _, overload = rest.partition(".")
        if space != "aten" or packet not in KNOWN or not overload.isidentifier():
            raise InvalidInput("operation of the network", name, ALLOWED)
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if not isinstance(found, torch._ops.OpOverload) or found._schema.is_mutable:
            raise InvalidInput("operation of the network", name, ALLOWED)
        self._arguments = [one.name for one in found._schema.arguments]
        # What makes a tensor of nothing has to be told where.
        self.needs_device = "device" in self._arguments and packet in _MAKING.split()
        random = torch.Tag.nondeterministic_seeded in found.tags

        def call(*args: Any, **kwargs: Any) -> Any:
            if random:
                self._check_still(args, kwargs)
            if packet in _SIZED and _is_traced():
                # By its method, which takes sizes that are traced.
                return getattr(torch.Tensor, _SIZED[packet])(*args, **kwargs)
            return found(*args, **kwargs)

        return call

    def is_random(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether it draws random numbers where it is called so."""
        try:
            self._check_still(args, kwargs)
        except InvalidInput:
            return True
        return False

    def _check_still(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        given = {**dict(zip(self._arguments, args, strict=False)), **kwargs}
        said = {name: given[name] for name in _STILL if name in given}
        # Dropout at rate 0 and layers in evaluation mode draw nothing; what has neither is random as it is. Attention
        # without its rate has none.
        if self.name.startswith("aten.scaled_dot_product_attention."):
            said = {"dropout_p": given.get("dropout_p", 0.0)}
        if not any(value == _STILL[name] for name, value in said.items()):
            raise InvalidInput("operation of the network", self.name, ALLOWED)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result."""
        return self._call(*args, **kwargs)


def _whole(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    def call(first: Any, second: Any) -> int:
        # What traces a network has sizes of types of its own.
        if _is_traced() or isinstance(first, torch.SymInt) or isinstance(second, torch.SymInt):
            return function(first, second)
        if type(first) is not int or type(second) is not int or second == 0:
            raise InvalidInput("operation of the network", "sizes", "whole numbers")
        found = function(first, second)
        # Products of products would outgrow all memory.
        if abs(found) > 2**63:
            raise InvalidInput("operation of the network", "sizes", "whole numbers of 64 bits")
        return found

    return call


def _item(several: Any, place: Any) -> Any:
    if not isinstance(several, tuple | list) or type(place) is not int:
        raise InvalidInput("operation of the network", _ITEM, "one of several results")
    return several[place]


def _size(tensor: Any, axis: Any) -> int:
    if not isinstance(tensor, torch.Tensor) or type(axis) is not int:
        raise InvalidInput("operation of the network", _SIZE, "the length of one axis of a tensor")
    # While torch.jit.trace looks on this is a tensor, so that a batch of another size may follow.
    return tensor.shape[axis]
