"""`python -m speed [part ...] [--quick]`: measure, print Markdown, write JSON."""

import argparse
import importlib
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads do not spin

# Modules of this package with run(quick) -> Report.
PARTS = ("goals", "training", "aggregation", "checkpoint", "growth", "flower")


def main() -> None:
    parser = argparse.ArgumentParser(prog="speed", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; nothing is written")
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        if name not in PARTS:
            parser.error(f"no part {name!r}; choose of {', '.join(PARTS)}")
        report = importlib.import_module(f"speed.{name}").run(quick=arguments.quick)
        print(report.markdown())
        if not arguments.quick:
            report.save()


if __name__ == "__main__":
    main()
