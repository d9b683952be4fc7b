"""A network as data: its forward pass as a list of pure tensor operations, read from a module and computed again.

:func:`torch.export.export` gives the list of a module's operations for any number of records. Here it is JSON, so that
a model's folder holds numbers and words, and whoever loads it runs no code of a stranger's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.training.models.graph_ops import ALLOWED, Operation
from privmix.untrusted import parse_json

FORMAT: Final = "privmix-network"
VERSION: Final = 1
MOST_BYTES: Final = 2**22
_MOST_STEPS: Final = 20_000
# Numbers that one step may make of a record: 256 MiB.
MOST_VALUES: Final = 2**26
_MOST_IN_ALL: Final = 2**30
MODULE: Final = "module"
CONSTANTS: Final = "constants"
"""Under which names a network has the state of the module, and the constants of its forward pass."""
_WORD: Final = re.compile(r"[a-z0-9_]{0,24}")
_DTYPES: Final = {
    name: getattr(torch, name)
    for name in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
}
_NAMES_OF_DTYPES: Final = {dtype: name for name, dtype in _DTYPES.items()}
_FORMATS: Final = {
    name: getattr(torch, name) for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
}
_NAMES_OF_FORMATS: Final = {value: name for name, value in _FORMATS.items()}
_PART: Final = re.compile(r"[A-Za-z0-9_]{1,128}")
_MOST_PARTS: Final = 32
_RECURRENT: Final = ("aten.lstm.", "aten.gru.", "aten.rnn_")
_EXAMPLES: Final = 3


def written(module: nn.Module, shape: Sequence[int]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The forward pass of a module in evaluation mode as JSON values, and the constants in it.

    Args:
        module: takes (b, *shape) and gives a tensor; it stays as it is.
        shape: of one input.

    Returns:
        what :class:`Graph` takes, and name -> tensor that no state of the module holds.

    Raises:
        InvalidInput: the module keeps state, draws random numbers, or its forward pass is no fixed list of operations;
            the layer is named.

    Example:
        >>> said, constants = written(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,))
        >>> [step[0] for step in said["steps"]], constants
        (['aten.linear.default', 'aten.relu.default'], {})
    """
    program = _exported(module, tuple(shape))
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        owner = changed[0].rpartition(".")[0]
        advice = f"a layer that keeps nothing of its inputs: this one changes {changed[0]} in its forward pass"
        raise InvalidInput(_layer(owner), _kind(module, owner), advice)
    return _Writing(module, program).written()


def _exported(module: nn.Module, shape: tuple[int, ...]) -> Any:
    example = torch.rand(_EXAMPLES, *shape, generator=torch.Generator().manual_seed(0))
    training = module.training
    try:
        with _quiet(), torch.no_grad():
            found = torch.export.export(
                module.eval(), (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False
            )
            return found.run_decompositions({})
    except Exception as error:
        # Of many kinds, and of any length.
        why = (str(error).strip().splitlines() or [""])[0][:200]
        allowed = (
            "a module whose forward pass does the same operations for every input and any number of records: it "
            f"is kept without its code; torch.export says: {type(error).__name__}: {why}"
        )
        raise InvalidInput("model", type(module).__name__, allowed) from None
    finally:
        module.train(training)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.export tells its own developers much."""
    logger = logging.getLogger("torch")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)


class _Writing:
    """One module's exported program, step by step."""

    def __init__(self, module: nn.Module, program: Any) -> None:
        self._module, self._program = module, program
        self._names: dict[str, str] = {}
        self._steps: list[list[Any]] = []
        self._constants: dict[str, Tensor] = {}

    def written(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        output: Any = None
        specs = {spec.arg.name: spec for spec in self._program.graph_signature.input_specs}
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                self._names[node.name] = self._input(specs[node.name])
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                output = node.args[0]
            else:
                raise InvalidInput("model", type(self._module).__name__, ALLOWED)
        if len(output) != 1:
            raise InvalidInput("model", type(self._module).__name__, "a module whose output is one tensor")
        # Of tied tensors every name: a file of weights has them all.
        state = {f"{MODULE}.{name}": tensor for name, tensor in self._module.state_dict(keep_vars=True).items()}
        arrays = {name: _array(tensor) for name, tensor in [*state.items(), *self._constants.items()]}
        said = {
            "format": FORMAT,
            "schema_version": VERSION,
            "arrays": arrays,
            "steps": self._steps,
            "output": self._said(output[0], None),
        }
        return said, self._constants

    def _input(self, spec: Any) -> str:
        kind, target = spec.kind.name, spec.target
        if kind == "USER_INPUT":
            return "x"
        if kind in ("PARAMETER", "BUFFER") and target in self._module.state_dict():
            return f"w:{MODULE}.{target}"
        if kind in ("BUFFER", "CONSTANT_TENSOR"):
            name = f"{CONSTANTS}.{len(self._constants)}"
            self._constants[name] = self._program.constants[target].detach().clone().contiguous()
            return f"w:{name}"
        raise InvalidInput("model", type(self._module).__name__, ALLOWED)

    def _call(self, node: Any) -> None:
        name = _name_of(node.target)
        layer = _layer_of(node)
        if name is None:
            if node.users:
                raise InvalidInput(_layer(layer), _kind(self._module, layer), ALLOWED)
            # A check of shapes, which the list does not need.
            return
        try:
            operation = Operation(name)
        except InvalidInput as error:
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            what = f"a layer that draws no random numbers: this one calls {name}" if random else error.allowed
            raise InvalidInput(_layer(layer), _kind(self._module, layer), what) from None
        args = [self._said(one, layer) for one in node.args]
        kwargs = {key: self._said(one, layer) for key, one in node.kwargs.items() if key not in _LEFT_OUT}
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and operation.is_random(
            node.args, dict(node.kwargs)
        ):
            raise InvalidInput(
                _layer(layer),
                _kind(self._module, layer),
                f"a layer that draws no random numbers: this one calls {name}",
            )
        self._names[node.name] = f"%{len(self._steps)}"
        self._steps.append([name, args, kwargs])

    def _said(self, value: Any, layer: str | None) -> Any:
        if isinstance(value, torch.fx.Node):
            return self._names[value.name]
        if isinstance(value, list | tuple):
            return [self._said(one, layer) for one in value]
        if isinstance(value, float) and not math.isfinite(value):
            return f"f:{value}"
        if value is None or isinstance(value, bool | int | float):
            return value
        if value in _NAMES_OF_DTYPES:
            return f"d:{_NAMES_OF_DTYPES[value]}"
        if value in _NAMES_OF_FORMATS:
            return f"m:{_NAMES_OF_FORMATS[value]}"
        if isinstance(value, torch.device):
            return "c:"
        if isinstance(value, str) and (_WORD.fullmatch(value) or _EQUATION.fullmatch(value)):
            return f"s:{value}"
        where = layer or ""
        raise InvalidInput(_layer(where), _kind(self._module, where), "numbers, words and tensors in its forward pass")


# Of shapes and types; those of values are refused, since a record could stop a run by one.
_CHECKS: Final = frozenset(
    (
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    )
)
_LEFT_OUT: Final = frozenset(("device", "layout", "pin_memory"))
# Of einsum.
_EQUATION: Final = re.compile(r"[A-Za-z,. >-]{0,64}")


def _name_of(target: Any) -> str | None:
    """As :class:`Operation` calls it; None for what only checks shapes."""
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
        return None if name in _CHECKS else name
    plain = getattr(target, "__name__", "")
    return f"op.{plain}" if plain in ("getitem", "add", "sub", "mul", "floordiv", "mod") else f"op.{plain}?"


def _layer_of(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    name = str(stack[-1][0]) if stack else ""
    return "" if name.startswith("_") else name


def _layer(name: str) -> str:
    return f"layer {name} of the model" if name else "model"


def _kind(module: nn.Module, name: str) -> str:
    try:
        return type(module.get_submodule(name)).__name__
    except AttributeError:
        return type(module).__name__


def _array(tensor: Tensor) -> list[Any]:
    return [_NAMES_OF_DTYPES[tensor.dtype], list(tensor.shape), "p" if isinstance(tensor, nn.Parameter) else "b"]


def graph_bytes(said: Mapping[str, Any]) -> bytes:
    """The file of a graph."""
    return (json.dumps(said, separators=(",", ":"), allow_nan=False) + "\n").encode()


class Graph:
    """A forward pass that is computed from its list of operations; of whoever it comes from.

    Formal guarantees:
        * Data: an operation is one of :mod:`privmix.training.models.graph_ops`, or the file is refused.
        * Bounded: at most 20,000 steps, and none that gives more than 2^26 numbers for a record: see :meth:`measured`.

    Args:
        content: of the file, :func:`graph_bytes` of what :func:`written` gives.
        owner: gets the arrays, as zeros, by their names.

    Raises:
        InvalidInput: it is no such list.

    Example:
        >>> module = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).eval()
        >>> owner = nn.Module()
        >>> graph = Graph(graph_bytes(written(module, (2,))[0]), owner)
        >>> _ = owner.load_state_dict({f"module.{name}": one for name, one in module.state_dict().items()})
        >>> x = torch.rand(5, 2)
        >>> bool((graph.computed(x) == module(x)).all())
        True
    """

    def __init__(self, content: bytes, owner: nn.Module) -> None:
        said = parse_json(content, "network")
        if (
            not isinstance(said, dict)
            or set(said) != {"format", "schema_version", "arrays", "steps", "output"}
            or said["format"] != FORMAT
            or said["schema_version"] != VERSION
            or content != graph_bytes(said)
        ):
            raise InvalidInput("network", "another form", f"the operations that privmix writes, version {VERSION}")
        if not isinstance(said["steps"], list) or len(said["steps"]) > _MOST_STEPS:
            raise InvalidInput("network", "its steps", f"a list of at most {_MOST_STEPS} operations")
        self._places: dict[str, tuple[nn.Module, str]] = {}
        self._make_arrays(owner, said["arrays"])
        self._steps = [self._step(at, step) for at, step in enumerate(said["steps"])]
        self._output = self._read(said["output"], len(self._steps))
        self._freed = self._last_uses()

    def _make_arrays(self, root: nn.Module, arrays: Any) -> None:
        if not isinstance(arrays, dict):
            raise InvalidInput("network arrays", "another form", "name -> type, shape and kind")
        for name, array in arrays.items():
            match array:
                case [str(dtype), list(shape), "p" | "b" as kind] if dtype in _DTYPES and all(
                    type(side) is int and 0 <= side < 2**40 for side in shape
                ):
                    tensor = torch.zeros(shape, dtype=_DTYPES[dtype])
                case _:
                    raise InvalidInput(f"network array {name[:64]}", "another form", "type, shape and kind")
            first, *parts = name.split(".")
            if first not in (MODULE, CONSTANTS) or len(parts) not in range(1, _MOST_PARTS):
                raise InvalidInput("network array", name[:64], f"one of {MODULE} or {CONSTANTS}")
            if not all(_PART.fullmatch(part) for part in parts):
                raise InvalidInput("network array", name[:64], "names of letters, digits and underscores, with points")
            owner = root
            # Into the dictionaries: a name may be one of a module's own methods.
            for part in (first, *parts[:-1]):
                inner = owner._modules.get(part) or nn.Module()
                owner._modules[part] = inner
                owner = inner
            last = parts[-1]
            if kind == "p" and tensor.is_floating_point():
                owner._parameters[last] = nn.Parameter(tensor)
            else:
                owner._buffers[last] = tensor
            self._places[name] = (owner, last)

    def _step(self, at: int, step: Any) -> tuple[Operation, list[Any], dict[str, Any]]:
        match step:
            case [str(name), list(args), dict(kwargs)] if not set(kwargs) & _LEFT_OUT:
                return (
                    Operation(name),
                    [self._read(one, at) for one in args],
                    {key: self._read(one, at) for key, one in kwargs.items()},
                )
        raise InvalidInput("network step", at, "an operation's name and its arguments")

    def _read(self, value: Any, at: int) -> Any:
        """A literal, or where a tensor is found; of steps before this one."""
        if isinstance(value, list):
            return [self._read(one, at) for one in value]
        if not isinstance(value, str):
            if value is None or isinstance(value, bool | int | float):
                return value
            raise InvalidInput("network step", at, "numbers, words and tensors")
        kind, rest = value[:2], value[2:]
        if value == "x":
            return _Found("x")
        if value.startswith("%") and value[1:].isdecimal() and int(value[1:]) < at:
            return _Found(int(value[1:]))
        if kind == "w:" and rest in self._places:
            return _Found(self._places[rest])
        if kind == "d:" and rest in _DTYPES:
            return _DTYPES[rest]
        if kind == "m:" and rest in _FORMATS:
            return _FORMATS[rest]
        if kind == "f:" and rest in ("inf", "-inf", "nan"):
            return float(rest)
        if kind == "s:" and (_WORD.fullmatch(rest) or _EQUATION.fullmatch(rest)):
            return rest
        if value == "c:":
            return _Found("device")
        raise InvalidInput("network step", value[:64], "a tensor of an earlier step, an array, a type or a word")

    def _last_uses(self) -> list[list[int]]:
        """After each step, which results nobody needs any more."""
        last: dict[int, int] = {}

        def look(value: Any, at: int) -> None:
            if isinstance(value, list):
                for one in value:
                    look(one, at)
            elif isinstance(value, _Found) and isinstance(value.where, int):
                last[value.where] = at

        for at, (_, args, kwargs) in enumerate(self._steps):
            last[at] = at
            look([*args, *kwargs.values()], at)
        look(self._output, len(self._steps))
        freed: list[list[int]] = [[] for _ in range(len(self._steps) + 1)]
        for made, at in last.items():
            freed[at].append(made)
        return freed

    @property
    def is_recurrent(self) -> bool:
        """Whether an operation is a whole recurrent layer."""
        return any(operation.name.startswith(_RECURRENT) for operation, _, _ in self._steps)

    def computed(self, x: Tensor) -> Tensor:
        """(b, *shape) -> what the module gave."""
        return self._computed(x, [])

    def measured(self, x: Tensor) -> tuple[Tensor, int]:
        """As :meth:`computed` of a record (1, *shape) without memory, and the most numbers that a step gives.

        Raises:
            InvalidInput: that is more than 2^26, or all steps together give more than 2^30.
        """
        sizes = [1]
        found = self._computed(x, sizes)
        if max(sizes) > MOST_VALUES or sum(sizes) > _MOST_IN_ALL:
            raise InvalidInput("network", f"a step of {max(sizes):,} numbers", f"at most {MOST_VALUES:,} for a record")
        return found, max(sizes)

    def _computed(self, x: Tensor, sizes: list[int]) -> Tensor:
        results: dict[int, Any] = {}
        for at, (operation, args, kwargs) in enumerate(self._steps):
            given = [_value(one, x, results) for one in args]
            named = {key: _value(one, x, results) for key, one in kwargs.items()}
            if operation.needs_device:
                named["device"] = x.device
            found = operation(*given, **named)
            if sizes:
                several = found if isinstance(found, tuple | list) else [found]
                sizes.append(max((one.numel() for one in several if isinstance(one, Tensor)), default=0))
            results[at] = found
            for gone in self._freed[at]:
                del results[gone]
        found = _value(self._output, x, results)
        if not isinstance(found, Tensor):
            raise InvalidInput("network", "its output", "one tensor")
        return found


class _Found:
    """Where an argument is found: an earlier step, an array, or the input."""

    def __init__(self, where: int | str | tuple[nn.Module, str]) -> None:
        self.where = where


def _value(said: Any, x: Tensor, results: Mapping[int, Any]) -> Any:
    if isinstance(said, list):
        return [_value(one, x, results) for one in said]
    if not isinstance(said, _Found):
        return said
    match said.where:
        case int(at):
            return results[at]
        case "x":
            return x
        case (nn.Module() as owner, str(name)):
            return owner._parameters[name] if name in owner._parameters else owner._buffers[name]
        case _:
            return x.device


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes, types and values; which network training starts from."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous()
        found.update(json.dumps([name, *_array(tensor)[:2]]).encode())
        found.update(
            array.view(torch.uint8).numpy().tobytes() if array.numel() and array.dim() else repr(array).encode()
        )
    return found.hexdigest()
