"""Real faults, planted in a copy of the source, and the tests that must catch them.

``python -m tests.detection [WORDS OF A FAULT]``; with words, what is known of the other faults stays as it is.

Tests that plant bugs of their own show that an audit can see; this shows that the suite does. Each fault is a few words
of a source file, written wrongly. Its tests pass on the honest copy, and fail on the other. What comes out is kept in
``benchmarks/results/detection.md``: whoever removes a test, or makes one cheaper, runs this again.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
KEPT: Final = ROOT / "benchmarks" / "results" / "detection.json"
_SECONDS: Final = 900
# What pytest exits with: all passed, some failed, and none was to be run.
_PASSED, _FAILED, _NONE = 0, 1, 5


class Fault:
    """A fault: the ``wrong`` words instead of the ``right`` ones, which stand once in a file below ``src/privmix``."""

    def __init__(self, says: str, file: str, right: str, wrong: str, *tests: str) -> None:
        self.says, self.file, self.right, self.wrong, self.tests = says, file, right, wrong, tests


FAULTS: Final = (
    Fault(
        "rows have two thirds of their noise",
        "engine/rows.py",
        "noise = draw(generator, sums[rows].shape, scale)",
        "noise = draw(generator, sums[rows].shape, scale * 2 / 3)",
        "tests/engine/test_rows.py::test_noise_has_the_planned_size",
    ),
    Fault(
        "calls of a training have as many records as there are",
        "training/dp_sgd.py",
        "if self.gradients.together:",
        "if False:",
        "tests/training/test_summation.py::test_calls_have_one_size_however_many_records_there_are",
    ),
    Fault(
        "labels have next to no noise",
        "engine/rows.py",
        "self._noisy(generator, self._label_noise, self._label_sums",
        "self._noisy(generator, 1e-6, self._label_sums",
        "tests/engine/test_rows.py::test_label_noise_has_the_planned_size",
    ),
    Fault(
        "what was resumed draws other noise than before",
        "engine/rows.py",
        'self._streams.lent("feature noise", tile)',
        'SecretStreams.from_entropy().lent("feature noise", tile)',
        "tests/releases/test_resume.py::test_an_interrupted_run_resumes_to_the_same_bits",
    ),
    Fault(
        "whoever draws membership holds the key to the noise",
        "engine/rows.py",
        'self._membership = streams.derive("membership")',
        "self._membership = streams",
        "tests/engine/test_rows.py::test_membership_is_drawn_without_the_key_to_the_noise",
    ),
    Fault(
        "one key's noise serves two runs",
        "mechanisms/streams.py",
        "        self._claimed = True\n",
        "        self._claimed = False\n",
        "tests/engine/test_rows.py::test_noise_is_never_added_to_other_sums",
    ),
    Fault(
        "records are not clipped",
        "mechanisms/clipping.py",
        "    if too_long.any():\n",
        "    if False:\n",
        "tests/mechanisms/test_clipping.py::test_bounded_exactly",
        "tests/engine/test_rows.py::test_one_record_moves_a_row_by_at_most_its_bound",
    ),
    Fault(
        "rounding to the grid makes records longer",
        "mechanisms/noise.py",
        "np.trunc(scaled, out=scaled)",
        "np.rint(scaled, out=scaled)",
        "tests/mechanisms/test_noise.py::test_quantise_gives_integers_and_never_grows_the_norm",
    ),
    Fault(
        "a record is counted twice in the sums of labels",
        "designs/moments/engine.py",
        "self._counts += np.bincount(labels[part]",
        "self._counts += 2 * np.bincount(labels[part]",
        "tests/audits/test_sensitivity.py::test_no_record_moves_a_query_by_more_than_its_noise_is_scaled_to",
    ),
    Fault(
        "X'Y has half of its noise",
        "designs/moments/engine.py",
        "std = plan.label_norm * plan.cross_noise_multiplier",
        "std = plan.label_norm * plan.cross_noise_multiplier / 2",
        "tests/attacks/test_noise_scale.py::test_right_noise_passes",
        "tests/audits/test_planted_bugs.py::test_the_real_engine_passes[moments]",
    ),
    Fault(
        "second moments of each class have two thirds of their noise",
        "designs/moments/engine.py",
        "std, unit = self._plan.second_noise_multiplier / self._lattice.step**2",
        "std, unit = self._plan.second_noise_multiplier / self._lattice.step**2 * 2 / 3",
        "tests/attacks/test_noise_scale.py::test_right_noise_passes",
        "tests/audits/test_planted_bugs.py::test_the_real_engine_passes[class-moments]",
    ),
    Fault(
        "a record is in the second moments of every class",
        "designs/moments/engine.py",
        "own = steps[labels == label]",
        "own = steps",
        "tests/audits/test_sensitivity.py::test_no_record_moves_a_query_by_more_than_its_noise_is_scaled_to",
    ),
    Fault(
        "residuals are not clipped after they are mapped",
        "designs/stages/engine.py",
        "clip_l2(residuals / self._bound, 1.0)",
        "(residuals / self._bound)",
        "tests/audits/test_planted_bugs.py::test_the_real_engine_passes[two-stage]",
    ),
    Fault(
        "errors of a model are not clipped",
        "designs/corrected/engine.py",
        "errors = clip_l2(model.errors(records, labels) / ERROR_BOUND, 1.0)",
        "errors = model.errors(records, labels) / ERROR_BOUND",
        "tests/designs/test_corrected.py::test_nobody_adds_more_than_the_bound_under_any_model",
        "tests/audits/test_planted_bugs.py::test_the_real_engine_passes[corrected-moments]",
    ),
    Fault(
        "the errors of all models have one noise",
        "designs/corrected/engine.py",
        'streams.lent("error noise", number)',
        'streams.lent("error noise")',
        "tests/attacks/test_noise_scale.py::test_right_noise_passes",
    ),
    Fault(
        "a record joins twice as many rows as are priced",
        "mechanisms/sampling.py",
        "return draw_rectangle(generator, rows, records, self.sampling_rate)",
        "return draw_rectangle(generator, rows, records, min(1.0, 2 * self.sampling_rate))",
        "tests/mechanisms/test_sampling.py::test_poisson_rate",
        "tests/audits/test_planted_bugs.py::test_the_real_engine_passes[poisson]",
    ),
    Fault(
        "half of the rows are priced",
        "mechanisms/sampling.py",
        "return Repeated(PoissonSampled(self.sampling_rate, query), self.rows)",
        "return Repeated(PoissonSampled(self.sampling_rate, query), -(-self.rows // 2))",
        "tests/mechanisms/test_sampling.py::test_one_plan_events",
    ),
    Fault(
        "drawing classes first is priced as drawing records independently",
        "mechanisms/sampling.py",
        "return Repeated(ClusterSampled(self.class_rate, self.record_rate, query), self.rows)",
        "return Repeated(PoissonSampled(self.class_rate * self.record_rate, query), self.rows)",
        "tests/mechanisms/test_sampling.py::test_one_plan_events",
        "tests/plans/test_plan.py::test_hierarchical_needs_more_noise_than_poisson",
    ),
    Fault(
        "a replaced record is priced as one that is added",
        "accounting/base.py",
        "            return 2.0\n",
        "            return 1.0\n",
        "tests/accounting/test_pld.py::test_one_query_matches_the_integral[fixed-0.0]",
    ),
    Fault(
        "noise is calibrated to a little more than the target",
        "accounting/api.py",
        "if gap <= 0 and (gap >= -_CLOSE",
        "if gap <= 50 * _CLOSE and (gap >= -_CLOSE",
        "tests/accounting/test_accountants.py::test_calibration_is_on_the_safe_side_and_close",
    ),
    Fault(
        "confidence bounds of an audit are too narrow",
        "audits/bounds.py",
        "np.where(full, 1.0, stats.beta.isf(alpha,",
        "np.where(full, 1.0, stats.beta.isf(0.3,",
        "tests/audits/test_bounds.py::test_clopper_pearson_covers",
    ),
    Fault(
        "steps of training have half of their noise",
        "training/noise.py",
        "noise *= noise_scale(plan) / grid",
        "noise *= noise_scale(plan) / 2 / grid",
        "tests/training/test_noise.py::test_right_noise",
    ),
    Fault(
        "gradients are not clipped",
        "training/gradients/parameters.py",
        "factors * kept, torch.zeros_like(norms))",
        "torch.ones_like(norms), torch.zeros_like(norms))",
        "tests/training/gradients/test_clipping.py::test_bounded_at_any_length",
        "tests/training/test_dp_sgd.py::test_bounded_change_by_one_record",
    ),
    Fault(
        "a repeated step draws other noise",
        "training/noise.py",
        'streams.lent("gradient noise", step)',
        'SecretStreams.from_entropy().lent("gradient noise", step)',
        "tests/training/test_noise.py::test_once_a_step",
    ),
    Fault(
        "a private record count is published as it is",
        "mechanisms/private_count.py",
        "noise = int(gaussian_on_lattice(generator, 1, noise_multiplier)[0])",
        "noise = 0 * int(gaussian_on_lattice(generator, 1, noise_multiplier)[0])",
        "tests/mechanisms/test_private_count.py::test_estimates_follow_their_law",
    ),
    Fault(
        "two queries for a quantile get the noise of one",
        "mechanisms/private_count.py",
        "else math.sqrt(2) * noise",
        "else noise",
        "tests/mechanisms/test_private_count.py::test_both_queries_for_a_quantile_have_their_noise",
    ),
    Fault(
        "records are read before the ledger is charged",
        "jobs/job.py",
        "        charged = Charge()\n",
        "        next(iter(self.opened.source.batches(1)))\n        charged = Charge()\n",
        "tests/cli/test_one_record.py::test_no_record_is_read_before_the_ledger_is_charged",
    ),
    Fault(
        "the ledger lets a dataset overspend",
        "ledger/pricing.py",
        "    if not composed <= dataset.epsilon:\n",
        "    if not composed <= 2 * dataset.epsilon:\n",
        "tests/ledger/test_ledger.py::test_overspending_is_refused_with_the_figures_and_charges_nothing",
        "tests/ledger/test_ledger.py::test_many_at_once_never_overspend",
    ),
    Fault(
        "public records may be the private ones",
        "jobs/job.py",
        "        refuse_overlap(public, self.opened.source, made_of, self.whose)\n",
        "",
        "tests/cli/test_one_record.py::test_public_data_that_are_the_private_ones_are_refused",
    ),
    Fault(
        "the key is kept when a run is done",
        "mechanisms/run_folder.py",
        "        shred(KEY_FILE, dir_fd=self.descriptor)\n",
        "        return\n",
        "tests/releases/test_resume.py::test_the_run_folder_is_private_and_the_key_ends_with_the_run",
    ),
    Fault(
        "one key serves two datasets",
        "mechanisms/run.py",
        'elif not hmac.compare_digest(str(self._notes["fingerprint"]), fingerprint):',
        "elif False:",
        "tests/test_runs.py::test_one_key_one_dataset",
    ),
    Fault(
        "a fixed seed is not marked",
        "mechanisms/streams.py",
        "return cls(bytearray(key), insecure_seed=True)",
        "return cls(bytearray(key), insecure_seed=False)",
        "tests/mechanisms/test_streams.py::test_a_seed_marks_itself",
    ),
    Fault(
        "an error shows a private label",
        "engine/tiles.py",
        'raise InvalidInput("labels", WITHHELD, f"class numbers',
        'raise InvalidInput("labels", labels.max(), f"class numbers',
        "tests/engine/test_rows.py::test_labels_outside_the_classes_are_refused_without_naming_them",
    ),
    Fault(
        "features follow from the records beside them",
        "features/identity.py",
        "return unit_range(x).reshape(len(x), math.prod(x.shape[1:]))",
        "return unit_range(x).reshape(len(x), math.prod(x.shape[1:])) - unit_range(x).mean()",
        "tests/features/test_extractors.py::test_per_record",
    ),
    Fault(
        "a certificate's noise is believed",
        "releases/verify.py",
        '    _check_noise(certificate["noise_std"], plan)\n',
        "",
        "tests/releases/test_folder.py::test_tampering_is_found",
    ),
    Fault(
        "a stranger's file is opened through a link",
        "untrusted.py",
        "os.O_RDONLY | os.O_NOFOLLOW |",
        "os.O_RDONLY |",
        "tests/test_untrusted.py::test_links_pipes_folders_and_large_files_are_refused",
    ),
    Fault(
        "a bound is printed to the nearest",
        "jobs/budget.py",
        "{rounded_up(self.epsilon, 4)}",
        "{self.epsilon:.4g}",
        "tests/test_rounding.py::test_no_bound_is_printed_to_the_nearest",
    ),
)


def copied(target: Path) -> Path:
    """A copy of what tests need of the checkout."""
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "Makefile", "README.md"):
        shutil.copy(ROOT / name, target)
    return target


def run_tests(root: Path, tests: tuple[str, ...], *more: str) -> tuple[int, str]:
    """What pytest exits with, and says."""
    # Hypothesis knows no deadlines then.
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "CI": "true"}
    # Plainly: to tell how megabytes of released rows differ takes minutes.
    how = ("-x", "-q", "--assert=plain", "--tb=short", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *how, *more, *tests]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return done.returncode, done.stdout + done.stderr


def caught_by(root: Path, fault: Fault) -> str:
    """Where the fault is caught: in ``make test``, only in ``make test-all``, or nowhere."""
    place = root / "src" / "privmix" / fault.file
    honest = place.read_text(encoding="utf-8")
    assert honest.count(fault.right) == 1, f"{fault.file}: {fault.right}"
    compiled = list((place.parent / "__pycache__").glob(f"{place.stem}.*"))
    try:
        place.write_text(honest.replace(fault.right, fault.wrong), encoding="utf-8")
        for file in compiled:
            file.unlink()
        found, said = run_tests(root, fault.tests, "-m", "not thorough")
        if found == _FAILED:
            return "make test"
        assert found in (_PASSED, _NONE), f"{fault.says}: pytest exits with {found}\n{said}"
        return "make test-all" if run_tests(root, fault.tests)[0] == _FAILED else "nowhere"
    finally:
        place.write_text(honest, encoding="utf-8")
        for file in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
            file.unlink()


def main(words: str) -> int:
    known: dict[str, dict[str, Any]] = {}
    if words and KEPT.exists():
        known = {run["fault"]: run for run in json.loads(KEPT.read_text(encoding="utf-8"))["results"]}
    chosen = [fault for fault in FAULTS if words in fault.says]
    # Tests import this file, also in the copy, which has no benchmarks.
    from benchmarks import common

    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder))
        every = tuple(sorted({test for fault in chosen for test in fault.tests}))
        print("the tests on the honest source", flush=True)
        code, said = run_tests(root, every)
        if code != _PASSED:
            print(f"they do not pass there\n{said}")
            return 1
        for fault in chosen:
            started = time.perf_counter()
            where = caught_by(root, fault)
            told = {"fault": fault.says, "file": fault.file, "tests": list(fault.tests), "caught in": where}
            known[fault.says] = told
            print(f"{where:13} {time.perf_counter() - started:5.1f} s  {fault.says}", flush=True)
    runs = [known[fault.says] for fault in FAULTS if fault.says in known]
    missed = sum(run["caught in"] == "nowhere" for run in runs)
    rows = []
    for run in runs:
        names = ", ".join(f"`{test.split('::')[1]}`" for test in run["tests"])
        where = "**not caught**" if run["caught in"] == "nowhere" else f"`{run['caught in']}`"
        rows.append([run["fault"], f"`{run['file']}`", names, where])
    seen = f"{len(runs) - missed} of {len(runs)} faults"
    body = [
        f"{seen} are caught by the tests named for them, which pass without a fault.",
        common.table(["fault", "planted in", "tests", "caught in"], rows),
    ]
    common.save("detection", "Planted faults, and the tests that catch them", {"faults": len(runs)}, runs, body)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
