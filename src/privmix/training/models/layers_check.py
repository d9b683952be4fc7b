"""Check that no layer mixes the records of a batch: by types of layers, and by their behaviour."""
# If a record's activations depend on others of the batch, it acts through their gradients too, past its own clipping.

import copy
import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from privmix.errors import InvalidInput, check_integer

_BATCH: Final = 3
_RANDOM: Final = (
    "set its rate to 0, or call its `eval()`: masks differ between a record's views, and a run could not be repeated"
)
_BATCH_NORM: Final = (
    "GroupNorm or LayerNorm: batch statistics mix records (of a pretrained network: freeze it with "
    "`requires_grad_(False)` and call its `eval()`; such a layer stays as it is)"
)
_OF_ANY_MODULE: Final = frozenset(vars(nn.Module()))
_TOLERANCES: Final = {torch.float64: 1e-9, torch.float32: 1e-4}


def check_model(model: nn.Module) -> None:
    """Refuse every layer that is known to mix the records of a batch, to keep statistics of them, or to be random.

    Refused are InstanceNorm with running statistics, dropout with a rate above 0 (also inside attention and recurrent
    layers), RReLU, and lazy layers that have no shape yet. So is batch normalisation, in evaluation mode too, since
    ``train()`` would wake it, unless :func:`keep_in_evaluation` keeps it there.

    Formal guarantees:
        * By type: a model with one of these layers, at any depth, is refused, and the error names the layer.
        * Structure only: no parameter, buffer or mode of the model is changed, and no record is needed.
    """
    for name, module in model.named_modules():
        advice = _advice(module)
        if advice is not None:
            raise _refused(name, module, advice)


class _KeptInEvaluation(nn.Module):
    """A layer that stays in evaluation mode: it uses no statistics of a batch, keeps none, and draws nothing."""

    def train(self, mode: bool = True) -> Any:
        return super().train(False)


def keep_in_evaluation(model: nn.Module) -> None:
    """Keep frozen batch normalisation, and dropout, in evaluation mode for good where they are in it now."""
    for layer in model.modules():
        fixed = isinstance(layer, _DropoutNd | nn.MultiheadAttention | nn.RNNBase) or (
            isinstance(layer, _BatchNorm)
            and layer.running_mean is not None
            and not any(parameter.requires_grad for parameter in layer.parameters())
        )
        if fixed and not layer.training and not isinstance(layer, _KeptInEvaluation):
            kind = type(layer)
            layer.__class__ = type(kind.__name__, (_KeptInEvaluation, kind), {})


def _advice(module: nn.Module) -> str | None:
    if isinstance(module, _KeptInEvaluation):
        return None
    if isinstance(module, _BatchNorm):
        return _BATCH_NORM
    if isinstance(module, _InstanceNorm) and module.track_running_stats:
        return "InstanceNorm with track_running_stats=False: running statistics are of private records"
    if isinstance(module, _DropoutNd) and module.p > 0:
        return _RANDOM
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase) and module.dropout > 0:
        return _RANDOM
    if isinstance(module, nn.RReLU) and module.lower != module.upper:
        return "LeakyReLU: random slopes differ between a record's views, and a run could not be repeated"
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        return "a layer with its sizes given: this one has no parameters yet"
    return None


def check_independence(model: nn.Module, example_shape: tuple[int, ...]) -> None:
    """Refuse a model whose output for one record depends on other records of its batch, found by trials.

    A copy of the model, in train mode on the CPU (in float64 where possible) and with jittered parameters, is run on
    random PUBLIC inputs. Tested are, in this order:

    * no parameter, buffer or attribute changes, in the first pass or later, with gradients or without;
    * the same batch twice gives the same outputs, and no random number is drawn (no random layers);
    * a batch gives the same outputs as its records one by one;
    * the gradient of a record's output by the input of another is zero.

    The error names the innermost submodule with a difference. A few inputs are no proof for a layer that mixes rarely.

    Formal guarantees:
        * Untouched: parameters, buffers, modes, hooks and the global random generators stay as they were.
        * Public: inputs are random numbers from a fixed seed; no record is needed.

    ``example_shape`` is of one input, (C, H, W) or (d,); the first axis of outputs is the batch.
    """
    shape = tuple(check_integer("example shape", length, low=1) for length in example_shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        inputs = torch.rand(_BATCH, *shape)
        try:
            trial, x = _tried(model, inputs.double())
        except (RuntimeError, TypeError):
            # Some models create float32 tensors of their own.
            trial, x = _tried(model, inputs)
        _check_repeatable(trial, x)
        _check_gradients(trial, x, _check_batch_against_single(trial, x))


def _tried(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """Return a jittered copy in the precision of ``x``, which keeps nothing of its inputs from its first pass on."""
    trial = copy.deepcopy(model).cpu().float().train()
    with torch.no_grad():
        for parameter in trial.parameters():
            if parameter.is_floating_point():
                # Zero weights would hide what their layer does.
                parameter.add_(0.05 * torch.randn_like(parameter))
    trial.to(x.dtype)
    before = _kept_by(trial)
    # Training has gradients and makes the first pass.
    for inputs, detach in ((x, False), (1 - x, True)):
        _outputs(trial, inputs, detach=detach)
        after = _kept_by(trial)
        for name, key in [*before, *after]:
            if before.get((name, key)) != after.get((name, key)):
                advice = (
                    f"a layer that keeps nothing of its inputs: this one changes {f'{name}.{key}'.lstrip('.')} in its "
                    "forward pass. Compute what is independent of records in `__init__`, or earlier, on public inputs"
                )
                raise _refused(name, trial.get_submodule(name), advice)
    return trial, x


def _check_repeatable(model: nn.Module, x: Tensor) -> None:
    drawn = torch.get_rng_state()
    first, second = _outputs(model, x), _outputs(model, x)
    for name in first:
        if not _close(first[name], second[name]):
            raise _refused(name, model.get_submodule(name), f"a layer that is not random in train mode; {_RANDOM}")
    if not torch.equal(drawn, torch.get_rng_state()):
        raise _refused("", model, f"a model that draws no random numbers; {_RANDOM}")


def _kept_by(model: nn.Module) -> dict[tuple[str, str], Any]:
    """(submodule, name) -> what a parameter, buffer or attribute holds, at any depth."""
    seen: set[int] = set()
    return {
        (name, key): _content(value, seen)
        for name, module in model.named_modules()
        for key, value in {**vars(module), **module._parameters, **module._buffers}.items()
        if key not in _OF_ANY_MODULE
    }


def _content(value: Any, seen: set[int]) -> Any:
    """Return a value in words that are others once it has changed; what was ``seen`` elsewhere goes by its place."""
    if isinstance(value, str | bytes | int | float | complex | None):
        return repr(value)
    if id(value) in seen:
        return id(value)
    seen.add(id(value))
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta:
        array = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return str(value.dtype), value.shape, hashlib.sha256(array.tobytes()).digest()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype, value.shape, hashlib.sha256(value.tobytes()).digest()
    if isinstance(value, dict):
        return [(_content(key, seen), _content(held, seen)) for key, held in value.items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_content(held, seen) for held in value]
    if isinstance(value, nn.Module) or type(value).__module__.partition(".")[0] not in ("torch", "builtins"):
        return id(value), _content(getattr(value, "__dict__", None), seen)
    return id(value)


def _check_batch_against_single(model: nn.Module, x: Tensor) -> frozenset[str]:
    """Names of the submodules whose output has one row a record."""
    whole = _outputs(model, x)
    if "" not in whole or whole[""].shape[0] != len(x):
        raise _refused("", model, "a model whose output is a tensor with one row a record")
    singles: list[dict[str, Tensor]] = [{} for _ in x]
    for i, outputs in enumerate(singles):
        try:
            _outputs(model, x[i : i + 1], into=outputs)
        except (RuntimeError, ValueError):
            # Batch normalisation does so, for one. The first layer that did not finish is the one that failed.
            name = next(name for name in whole if name not in outputs)
            raise _refused(name, model.get_submodule(name), _alone("it does not take a batch of one")) from None
    rowwise = set()
    for name, together in whole.items():
        parts = [outputs[name] for outputs in singles if name in outputs and outputs[name].shape[0] == 1]
        if together.shape[0] != len(x) or len(parts) != len(x):
            # Not a row a record: what comes of it shows further on, at last in the model's own output.
            continue
        if not _close(together, torch.cat(parts)):
            raise _refused(name, model.get_submodule(name), _alone("its output for a record changes with the others"))
        rowwise.add(name)
    if "" not in rowwise:
        raise _refused("", model, "a model whose output is a tensor with one row a record")
    return frozenset(rowwise)


def _check_gradients(model: nn.Module, x: Tensor, rowwise: frozenset[str]) -> None:
    leaf = x.clone().requires_grad_()
    for name, output in _outputs(model, leaf, detach=False).items():
        if name not in rowwise or not output.requires_grad:
            continue
        weights = torch.rand(output.shape[1:], dtype=output.dtype) + 0.5
        for i in range(len(x)):
            total = (output[i] * weights).sum()
            (found,) = torch.autograd.grad(total, leaf, retain_graph=True, allow_unused=True, materialize_grads=True)
            others = torch.cat([found[:i], found[i + 1 :]]).abs().max()
            if not others <= _TOLERANCES[x.dtype] * found.abs().max():
                advice = _alone("the gradient of its output for a record reaches other records")
                raise _refused(name, model.get_submodule(name), advice)


def _alone(reason: str) -> str:
    return f"a layer that treats each record alone: {reason}"


def _refused(name: str, module: nn.Module, advice: str) -> InvalidInput:
    return InvalidInput(f"layer {name} of the model" if name else "model", type(module).__name__, advice)


def _close(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    largest = float(first.detach().nan_to_num().abs().max()) if first.numel() else 0.0
    tolerance = _TOLERANCES.get(first.dtype, _TOLERANCES[torch.float32])
    return torch.allclose(first, second, rtol=0, atol=tolerance * largest, equal_nan=True)


def _outputs(
    model: nn.Module, x: Tensor, *, detach: bool = True, into: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Every submodule's (last) output that is a tensor, innermost first; the model's own has the name ''."""
    found = {} if into is None else into

    def keep(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.dim() > 0:
                # A copy: the next layer may work in place.
                found.pop(name, None)
                found[name] = output.detach().clone() if detach else output

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules()]
    try:
        with torch.set_grad_enabled(not detach):
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return found
