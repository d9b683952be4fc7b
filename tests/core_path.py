"""The path from a table to a model without torch: ``python core_path.py [--block]`` in an empty folder."""
# --block: torch cannot be imported, wherever it is installed.

import csv
import sys

import numpy as np


class NoTorch:
    """The first to be asked for a module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


TABLE = "--label-column ill --features tabular:spec.json"
PUBLIC = "--label-column ill --classes no,yes --features tabular:spec.json"
LEDGER = "--ledger sqlite:///ledger.db"
GUARANTEE = f"--epsilon 2 --delta 1e-5 {LEDGER} --dataset visits"
LINES = (
    f"ledger init --dataset visits --epsilon 9 --delta 1e-4 {LEDGER}",
    "spec visits.csv --out spec.json --label-column ill --number age=0:120 --category ward=A,B",
    f"check visits.csv {PUBLIC}",
    f"release --data visits.csv {PUBLIC} --design moments {GUARANTEE} --out REL",
    f"release --data visits.csv {PUBLIC} --design poisson {GUARANTEE} --out ROWS",
    "verify REL",
    "inspect REL",
    "fit REL --out MODEL",
    "fit ROWS --out OTHER --learner noise-aware-ridge",
    "inspect MODEL",
    "predict MODEL --data visits.csv --label-column ill --out predictions.csv",
    "transform REL --data visits.csv --label-column ill --out rows.npy",
    "evaluate MODEL --data visits.csv --label-column ill --split train",
    "evaluate OTHER --data visits.csv --label-column ill --split train",
    "sample REL --out drawn.csv",
    "audit REL --runs 200",
    "report REL --out report.html",
    "keygen ana",
    "sign REL --key ana.pem",
    "verify REL --key ana.pub.pem",
    f"ledger show {LEDGER}",
    "account --design poisson:mixup_degree=8 --records 1200 --epsilon 1 --delta 1e-5",
    "train --help",
)
# Ten seconds of prices: in an installation alone.
PLAN = "plan --records 1200 --features tabular:spec.json --classes 2 --epsilon 2 --delta 1e-5"
# Each says which extra it needs, and nothing is charged for it.
TORCH_LINES = (
    f"train --data visits.csv {PUBLIC} --model linear {GUARANTEE} --out TRAINED",
    f"release --data pixels.npz --classes 2 --features scattering --design moments {GUARANTEE} --out NONE",
    "fit ROWS --out NONE --learner generalized-kl",
)


def lines(blocked: bool) -> None:
    from privmix.cli.main import run
    from privmix.ledger.ledger import Ledger

    with open("visits.csv", "w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["age", "ward", "ill"])
        table.writerows([[20 + n % 60, "AB"[n % 2], ["no", "yes"][n % 60 > 30]] for n in range(1200)])
    for line in LINES if blocked else (*LINES, PLAN):
        assert run(line.split()) == 0, line
        if line.startswith("evaluate"):
            # Each takes a second to import, as long as all the rest of these commands.
            assert not {"sklearn", "pandas"} & set(sys.modules), line
    if blocked:
        spent = Ledger.open("sqlite:///ledger.db").budget("visits")
        np.savez("pixels.npz", x=np.zeros((40, 8, 8), np.uint8), y=np.arange(40) % 2)
        for line in TORCH_LINES:
            print("refused:", run(line.split()))
        assert Ledger.open("sqlite:///ledger.db").budget("visits") == spent


def arrays(blocked: bool) -> None:
    """In Python, of vectors that another model made, of their projection and of pixels."""
    import privmix as pm

    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    x = rng.normal(size=(600, 12)).astype(np.float32) + 3 * y[:, None]
    guarantee = {"epsilon": 8.0, "delta": 1e-4, "classes": 2}
    for name, inputs, features in (
        ("vectors", x, "identity"),
        ("projected", x, "projected:4:identity"),
        ("images", (40 * y[:, None, None] + rng.integers(200, size=(600, 4, 4))).astype(np.uint8), "pixels"),
    ):
        release = pm.release((inputs, y), design="moments", features=features, out=name, **guarantee)
        model = pm.fit(release)
        assert model.predict(inputs).shape == (600,)
        assert pm.evaluate(model, (inputs, y)).accuracy > 0.6, name
    if blocked:
        try:
            pm.train((x, y), features="identity", model="linear", out="TRAINED", **guarantee)
        except pm.PrivmixError as error:
            print("refused:", error.exit_code, error)


if __name__ == "__main__":
    without = "--block" in sys.argv
    if without:
        sys.meta_path.insert(0, NoTorch)  # type: ignore[arg-type]
    lines(without)
    arrays(without)
    assert "torch" not in sys.modules
    print("core: done")
