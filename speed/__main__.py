"""`python -m speed [part ...] [--quick]`: measure, print Markdown, write JSON, renew README.md."""

import argparse
import importlib
import os

from speed import PARTS

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads do not spin


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
            renew()


def renew() -> None:
    """Judge the goals by what is measured now, and put all tables into `README.md`."""
    from speed import goals
    from speed.common import README, refreshed

    goals.run().save()
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
