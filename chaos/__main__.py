"""`python -m chaos [--short] [--kills N] [--seed N]`: disturb, compare, count."""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos import faults, kills
from chaos.commands import LostError, say, warm_up


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a handful of kills, in a minute")
    parser.add_argument("--kills", type=int, help="at random moments (default: 60, short: 4)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    wanted = options.kills or (4 if options.short else 60)
    chosen = kills.scenarios(wanted, short=options.short)
    say(f"chaos: seed {options.seed}")
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="lff-chaos-"))
    warm_up(folder / "warm")
    try:
        rng = random.Random(options.seed)
        for number, scenario in enumerate(chosen):
            say(f"{scenario.name} ...")
            kills.play(scenario, _made(folder / str(number)), rng)
        say("a fault at every file operation of a run ...")
        counted = faults.play(_made(folder / "faults"), short=options.short)
    except LostError as error:
        say(f"LOST: {error}\nthe files are in {folder}")
        return 1
    shutil.rmtree(folder)
    for scenario in chosen:
        say(kills.summary(scenario))
    for kind, trials in counted.items():
        say(f"{kind}: {trials} trials, one for each")
    say(f"nothing lost, doubled, half-written or left over ({time.monotonic() - start:.0f} s)")
    return 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
