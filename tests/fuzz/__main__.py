"""Run the fuzzer: ``python -m tests.fuzz --seconds 60``; exits with 1 if an input was not handled."""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.runner import Fuzzer
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long (default: 60)")
    parser.add_argument("--seed", default=str(time.time_ns()), help="any text: the same inputs again")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only these (default: all)")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that failed")
    options = parser.parse_args()
    targets = {name: TARGETS[name] for name in options.target or TARGETS}
    fuzzer = Fuzzer(targets, options.seed, options.keep)
    fuzzer.run(options.seconds)
    print(fuzzer.summary())
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())
