"""Run records as verbs make them, for the tests of the page; the figures in them are made up by formulas."""

import base64
from typing import Any

import numpy as np
from scipy.stats import norm

from privmix.reports.records import KINDS as OWN_KINDS
from privmix.reports.records import RunRecord, kinds_from_elsewhere

KINDS = (*OWN_KINDS, *kinds_from_elsewhere())
RELEASE_ID = "ab12cd34" * 4
CLASSES = tuple("0123456789")


def record(kind: str, content: dict[str, Any], *, private: bool = False, **more: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "settings": {"confidence": 0.95},
        "command": f"privmix {kind} RELEASE --record RUN",
        "versions": {"privmix": "0.1.0", "numpy": "2.1.0", "torch": "2.6.0"},
        "record_id": f"{KINDS.index(kind) + 1:032x}",
        "subject": {"kind": "release", "id": RELEASE_ID},
    }
    return RunRecord(kind, private=private, content=content, **fields | more)


def guarantee(epsilon: float = 1.0, delta: float = 1e-5, **changes: Any) -> RunRecord:
    mu = 0.2681 * epsilon
    alphas = np.unique(np.concatenate(([0.0, 0.05, 1.0], np.geomspace(1e-5, 0.05, 20), np.linspace(0.05, 1, 40))))
    betas = norm.cdf(norm.isf(alphas) - mu)
    epsilons = np.linspace(0, 2 * epsilon, 41)
    deltas = norm.cdf(-epsilons / mu + mu / 2) - np.exp(epsilons) * norm.cdf(-epsilons / mu - mu / 2)
    content = {
        "what": "release",
        "summary": "60,000 rows, each a noisy average of about 64 of 60,000 records (scattering features, 10 classes)",
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": "add_remove",
        "accountant": "pld",
        "is_upper_bound": True,
        "epsilon_asked": epsilon,
        "recomputed_epsilon": epsilon * 0.9999,
        "epsilon_delta": {"epsilon": epsilons.tolist(), "delta": np.maximum(deltas, 0).tolist()},
        "tradeoff": {"alpha": alphas.tolist(), "beta": betas.tolist()},
        "power": {"alpha": 0.05, "caught": float(1 - norm.cdf(norm.isf(0.05) - mu)), "right": float(norm.cdf(mu / 2))},
        "published": {"epsilon": epsilon * 0.94, "note": "the papers' formula: it understates the privacy loss"},
        "insecure_seed": False,
        "in_ledger": "none",
        "warnings": [],
        "assessment": [
            {
                "question": name,
                "holds": "What holds is said in a sentence or two, of about this length. And one more.",
                "does_not": "" if number % 3 else "What does not hold may take longer, since there is more of it. " * 3,
                "unknown": "Whether that was done.",
            }
            for number, name in enumerate(("Unit of privacy", "Privacy parameters", "Bias and utility", "Trust model"))
        ],
        "certificate_sha256": "f" * 64,
        **changes,
    }
    statements = [
        "The guarantee is for adding or removing one record. A person with several records is protected less.",
        "No budget ledger was used: earlier releases of the same data are not counted here.",
    ]
    settings = {"design": "poisson", "rows": 60_000, "classes": list(CLASSES), "extractor": {"name": "scattering"}}
    return record("guarantee", content, title="Release ab12cd34", statements=statements, settings=settings)


def audit(*, violated: bool = False, **changes: Any) -> RunRecord:
    alphas = np.linspace(0.001, 0.95, 40)
    betas = norm.cdf(norm.isf(alphas) - 0.25)
    content = {
        "design": "hierarchical, 100 classes" if violated else "poisson",
        "method": "exact log-likelihood ratio on the worst-case pair",
        "attack": "white box",
        "runs": 10_000,
        "delta": 1e-5,
        "confidence": 0.99,
        "claimed_epsilon": 1.0,
        "published_epsilon": 0.94,
        "proven_epsilon": 6.31 if violated else 0.871,
        "proven_by": {"clopper-pearson": 6.31 if violated else 0.871},
        "violated": violated,
        "priced_epsilon": 7.62 if violated else 1.0,
        "largest_provable_epsilon": 6.4,
        "black_box": {"attack": "norm of the mean row", "proven_epsilon": 0.22},
        "points": {
            "alpha": alphas.tolist(),
            "beta": betas.tolist(),
            "alpha_high": (alphas + 0.01).tolist(),
            "beta_high": np.minimum(betas + 0.01, 1).tolist(),
        },
        **changes,
    }
    return record("audit", content, title="Audit of the worst case")


def canaries(*, private: bool = True) -> RunRecord:
    content = {
        "canaries": 1000,
        "included": 493,
        "guesses": 300,
        "correct": 171,
        "delta": 1e-5,
        "confidence": 0.95,
        "claimed_epsilon": 1.0,
        "proven_epsilon": 0.12,
        "proven_by": {"steinke": 0.09, "mahloujifar": 0.12},
        "violated": False,
        "method": "scores by inner product",
    }
    return record("canary-audit", content, private=private, title="Audit with 1,000 canaries")


def noise() -> RunRecord:
    sources = {"mean": "plan.centre_noise_multiplier", "features": "noise_std.x", "labels": "noise_std.y"}
    found = [
        {
            "name": name,
            "law": "gaussian",
            "source": source,
            "certified": 2.5,
            "measured": 2.501,
            "low": 2.496,
            "high": 2.506,
            "samples": 2**19,
            "shape_p": 0.4,
            "dependence": 1.1,
            "verdict": "as certified",
        }
        for name, source in sources.items()
    ]
    content = {
        "design": "poisson",
        "method": "noise of empty records",
        "confidence": 0.95,
        "false_alarm": 1e-6,
        "violated": False,
        "noises": found,
    }
    return record("noise-audit", content, title="Audit of the noise of design poisson")


def membership(*, private: bool = True, **changes: Any) -> RunRecord:
    def attack(name: str, mu: float) -> dict[str, Any]:
        fpr, auc = np.geomspace(1e-4, 1, 60), float(norm.cdf(mu / 2**0.5))
        tpr = norm.sf(norm.isf(fpr) - mu)
        spread = 1.96 * np.sqrt(tpr * (1 - tpr) / 5000)
        return {
            "name": name,
            "auc": auc,
            "auc_low": auc - 0.01,
            "auc_high": auc + 0.01,
            "tpr_at": [
                {"fpr": rate, "tpr": 1.2 * rate, "low": rate, "high": 1.4 * rate, "bound": 2.1 * rate}
                for rate in (0.001, 0.01)
            ],
            "roc": {
                "fpr": fpr.tolist(),
                "tpr": tpr.tolist(),
                "low": np.maximum(tpr - spread, 0).tolist(),
                "high": np.minimum(tpr + spread, 1).tolist(),
            },
        }

    content = {
        "members": 5000,
        "nonmembers": 5000,
        "confidence": 0.95,
        "train_accuracy": 0.951,
        "test_accuracy": 0.949,
        "gap": 0.002,
        "gap_low": -0.007,
        "gap_high": 0.011,
        "attacks": [attack("loss", 0.03), attack("LiRA", 0.11), attack("RMIA", 0.09)],
        "highest_risk": [{"record": 47118193, "score": 3.25}, {"record": 271828, "score": 3.125}],
        "reference_models": 16,
        **changes,
    }
    notes = ["An attack that fails proves nothing: stronger ones may come."]
    return record("membership", content, private=private, title="Membership of the linear classifier", statements=notes)


def inversion(*, private: bool = False) -> RunRecord:
    y, x = np.mgrid[0:28, 0:28]
    rng = np.random.default_rng(0)
    images = np.empty((3, 4, 28, 28), np.uint8)
    for row in range(3):
        ring = 220 * np.exp(-((np.hypot(x - 14, y - 14 + row) - 6 - row) ** 2) / 5)
        for column, noise in enumerate((0, 15, 60, 90)):
            images[row, column] = np.clip(ring * (1 - 0.25 * column) + rng.normal(0, noise, (28, 28)) + noise, 0, 255)
    content = {
        "cases": [
            {
                "m": degree,
                "epsilon": epsilon,
                "mse": 0.01 * degree,
                "ssim": 0.9 / degree,
                "lpips": None,
                "baseline": {"mse": 0.11, "ssim": 0.05, "lpips": None},
                "mean_image": {"mse": 0.09, "ssim": 0.11, "lpips": None},
            }
            for degree in (1, 4, 16)
            for epsilon in (None, 8.0, 1.0)
        ],
        "baseline": {"mse": 0.11, "ssim": 0.05},
        "images": {
            "shape": list(images.shape),
            "uint8": base64.b64encode(images.tobytes()).decode(),
            "row_labels": ["m = 1", "m = 4", "m = 16"],
            "column_labels": ["raw", "no noise", "ε = 8", "ε = 1"],
        },
    }
    return record("inversion", content, private=private, title="Inversion of scattering features")


def collapse() -> RunRecord:
    edges = np.linspace(-0.5, 1.5, 31)
    middles = (edges[1:] + edges[:-1]) / 2
    labels = {"top_kept": 0.66, "level_kept": 0.79, "noise_std": 0.05, "signal_to_noise": 1.5}
    histogram = {
        "edges": edges.tolist(),
        "clean": norm.pdf(middles, 0.1, 0.07).tolist(),
        "noisy": norm.pdf(middles, 0.1, 0.3).tolist(),
    }
    content = {
        "neural_collapse": 0.911,
        "minimum_euclidean_distance": 0.183,
        "label_collapse": labels,
        "histogram": histogram,
        "histograms": [{**labels, **histogram, "design": design, "m": 64} for design in ("poisson", "hierarchical")],
        "labels": 10,
    }
    return record("collapse", content, title="Collapse on a public proxy")


def evaluation(*, private: bool = True, classes: tuple[str, ...] = CLASSES, **changes: Any) -> RunRecord:
    size = len(classes)
    rng = np.random.default_rng(1)
    matrix = np.eye(size, dtype=int) * 90 + rng.integers(0, 3, (size, size))
    content = {
        "accuracy": float(np.trace(matrix) / matrix.sum()),
        "per_class": {name: float(matrix[i, i] / matrix[i].sum()) for i, name in enumerate(classes)},
        "n": int(matrix.sum()),
        "classes": list(classes),
        "confusion": matrix.tolist(),
        "split": "test",
        "reference_accuracy": 0.983,
        "balanced_accuracy": 0.975,
        "majority": classes[0],
        "majority_accuracy": 1 / size,
        "log_loss": 0.21,
        "guessing_log_loss": float(np.log(size)),
        "calibration_error": 0.012,
        "warnings": [],
        **changes,
    }
    notes = ["Measured on data of its owner; no guarantee covers it."]
    return record("evaluation", content, private=private, title="Accuracy on held-out records", statements=notes)


def utility() -> RunRecord:
    points = [
        {"epsilon": epsilon, "accuracy": value, "low": value - 0.02, "high": value + 0.015}
        for epsilon, value in ((1.0, 0.88), (2.0, 0.91), (4.0, 0.93), (8.0, 0.945))
    ]
    content = {"points": points, "reference_accuracy": 0.983, "metric": "test accuracy"}
    return record("utility", content, title="Accuracy against ε")


def poisoning(*, private: bool = True) -> RunRecord:
    def result(defence: str, rate: float, **more: Any) -> dict[str, Any]:
        return {
            "attack": "patch-backdoor",
            "defence": defence,
            "successes": round(20 * rate),
            "success_rate": rate,
            "interval": [max(rate - 0.2, 0), min(rate + 0.21, 1)],
            "share": 0.9 * rate + 0.02,
            "accuracy": 0.94,
            "guarantee": None,
            "certified_bound": 1.0,
            "removed": 0.0,
            "removed_poisoned": 0.0,
            **more,
        }

    promise = {"guarantee": "epsilon 1, delta 1e-05", "certified_bound": 0.43, "accuracy": 0.81}
    content = {
        "attack": "patch-backdoor",
        "about": "a small random square teaches the model a class",
        "threat": "20 records changed, inside one square of 4 x 4 pixels each, labels kept; the defence is not known",
        "success_means": "an image of the victim class, shown with the patch, gets the target class",
        "setting": "scratch",
        "records": 2000,
        "poisoned_records": 20,
        "trials": 20,
        "confidence": 0.95,
        "results": [
            result("none", 0.65),
            result("mixup:4", 0.1),
            result("spectral-signatures", 0.6, removed=30.0, removed_poisoned=4.5),
            result("release:poisson,1.0,1e-05", 0.05, **promise),
        ],
    }
    return record("poisoning", content, private=private, title="Poisoning: patch-backdoor")


def ledger(**changes: Any) -> RunRecord:
    """As of a signed statement that was checked."""
    content = {
        "dataset": "visits",
        "epsilon": 4.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "mode": "planned",
        "spent": 1.85202,
        "left": 2.14798,
        "charges": {"release": 2, "training": 1},
        "date": "2026-01-31T12:00:00+00:00",
        "digest": "ab" * 32,
        "filter": None,
        "share": None,
        "unit": "record",
        "outcomes": {"committed": 2, "open": 1, "results": [f"release {RELEASE_ID}", "model " + "0" * 32]},
        "source": "signed",
        "key_id": "cd" * 32,
        **changes,
    }
    return record("ledger", content, title="Budget of visits", subject={"kind": "dataset", "id": None})


def everything(*, private: bool = True) -> list[RunRecord]:
    """One of each kind; those that stem from private rows are private."""
    public = [make() for make in (guarantee, ledger, audit, noise, collapse, utility)]
    of_rows = (canaries, membership, inversion, poisoning, evaluation)
    return [*public, *(make(private=private) for make in of_rows)]
