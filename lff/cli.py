"""`lff run | sweep | study | data | list | verify | speed`: the command line.

The settings of a run are flags made of the fields of `Experiment`. Heavy imports happen inside the
commands, so that `--help`, `--version` and mistakes in the arguments are answered at once.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from lff.data import DATASETS
from lff.errors import InputError, LffError, unknown
from lff.experiments.benchmarks import PAPER_BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.scales import SCALES

Argument = tuple[tuple[str, ...], dict[str, Any]]  # of `add_argument`

MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130

# What a flag says of itself beyond its name; the other settings are the scale's by default.
HELP = {
    "defense": "a defense's name (default: fedavg)",
    "defense_options": "its options, name=value,...",
    "attackers": "attacker ratio in percent (default: 0)",
    "attack": "an attack's name (default: label_flipping)",
    "attack_options": "its options, name=value,...",
    "hooks": "names of hooks, with commas between",
    "data": "real or embedded",
    "distribution": "iid, mild, extreme, or iid-released, the released code's",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (2 for a user's mistake)."""
    try:
        logging.basicConfig(format="lff: %(message)s")
        logging.getLogger("lff").setLevel(logging.INFO)
        options, extra = _parser().parse_known_args(arguments)
        if extra:
            raise unknown("argument", extra[0], options.flags)
        for name in getattr(options, "imports", ()):
            import_module(name)
        return options.command(options) or 0
    except LffError as error:
        sys.stderr.write(f"lff: error: {error}\n")
        return MISTAKE
    except KeyboardInterrupt:
        sys.stderr.write("lff: interrupted; the same command goes on from there\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lff",
        description="The label-flipping attack in federated learning, and defenses against it.",
    )
    parser.add_argument("--version", action="version", version=f"lff {version('lff')}")
    commands: Any = parser.add_subparsers(metavar="command", required=True)
    data = commands.add_parser("data", help="list, fetch or verify the real data sets")
    actions = data.add_subparsers(metavar="action", required=True)
    for name, add in COMMANDS.items():
        add(actions if name.startswith("data ") else commands)
    return parser


COMMANDS: dict[str, Callable[[Any], None]] = {}  # by name, what adds it to a parser


def command(
    name: str,
    text: str,
    *arguments: Argument,
    example: str = "",
    settings: Sequence[str] = (),
) -> Callable[[Callable[[argparse.Namespace], int | None]], Callable[..., int | None]]:
    """Register what runs a command, with its arguments and a flag for each of these settings."""

    def register(run: Callable[[argparse.Namespace], int | None]) -> Callable[..., int | None]:
        def add(commands: Any) -> None:
            epilog = f"example: lff {name} {example}" if example else None
            parser = commands.add_parser(name.split()[-1], help=text, epilog=epilog)
            for names, how in arguments:
                parser.add_argument(*names, **how)
            title = "settings of the experiment (default: the scale's)"
            group = parser.add_argument_group(title) if settings else parser
            for field in fields(Experiment):
                if field.name in settings:
                    flag, kind = f"--{field.name.replace('_', '-')}", cast("type", field.type)
                    group.add_argument(flag, type=kind, help=HELP.get(field.name))
            flags = [flag for action in parser._actions for flag in action.option_strings]
            parser.set_defaults(command=run, flags=flags)

        COMMANDS[name] = add
        return run

    return register


def argument(*names: str, **how: Any) -> Argument:
    """An argument of a command, as `add_argument` takes it."""
    return names, how


def _choice(kind: str, choices: Sequence[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(str(unknown(kind, value, choices)))
        return value

    return check


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {value!r}")
    return int(value)


SETTINGS = [field.name for field in fields(Experiment) if field.name not in ("scale", "user_code")]
SCALE = argument(
    "--scale",
    type=_choice("scale", list(SCALES)),
    default="quick",
    metavar="NAME",
    help=f"{', '.join(SCALES)} (default: quick)",
)
SEEDS = argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
JOBS = argument(
    "--jobs",
    type=_positive,
    metavar="N",
    help="runs at a time (default: one per core, or per worker)",
)
DEVICE = argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
QUIET = argument("--quiet", action="store_true", help="no progress bar")
IMPORT = argument(
    "--import",
    dest="imports",
    action="append",
    default=[],
    metavar="MODULE",
    help="a module or file.py that registers your own defense, attack, ...; may be repeated",
)
DATA = argument(
    "names",
    nargs="*",
    type=_choice("data set", DATASETS),
    default=DATASETS,
    metavar="name",
    help=f"{', '.join(DATASETS)} (default: all)",
)


@command(
    "run",
    "run one benchmark, attacked and defended",
    argument("benchmark", help=f"{', '.join(PAPER_BENCHMARKS)}, or your own"),
    argument("--engine", default="auto", help="auto, loop or stacked (default: auto)"),
    argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="processes for a round (default: one, or one per core if the run is long)",
    ),
    *(SCALE, DEVICE, QUIET, IMPORT),
    example="mnist-mild --defense lfighter --attackers 40 --scale quick",
    settings=[name for name in SETTINGS if name != "benchmark"],
)
def _run(options: argparse.Namespace) -> None:
    from lff.experiments.run import run
    from lff.study.terminal import summarize

    record = run(
        device=options.device,
        engine=options.engine,
        workers=options.workers,
        progress=not options.quiet,
        **_given(options),
    )
    _say(summarize(record))


@command(
    "sweep",
    "run every combination of benchmarks, defenses, ratios and seeds",
    argument("--benchmarks", nargs="+", default=[], metavar="NAME", help="default: the paper's"),
    argument("--defenses", nargs="+", default=[], metavar="NAME", help="default: the scale's"),
    argument(
        "--ratios",
        nargs="+",
        type=float,
        default=[],
        metavar="PERCENT",
        help="default: the scale's",
    ),
    argument(
        "--cluster",
        metavar="tcp://HOST:PORT",
        help="spread the runs over the workers of this Dask scheduler; only on a network you trust",
    ),
    argument("--dashboard", action="store_true", help="show Dask's dashboard"),
    *(SEEDS, JOBS, SCALE, DEVICE, QUIET, IMPORT),
    example="--benchmarks mnist-iid mnist-mild --defenses fedavg lfighter",
    settings=[n for n in SETTINGS if n not in ("benchmark", "defense", "attackers", "seed")],
)
def _sweep(options: argparse.Namespace) -> int:
    from lff.experiments.scales import grid
    from lff.experiments.sweep import run_all

    lists = options.benchmarks, options.defenses, options.ratios, options.seeds
    outcome = run_all(
        grid(*lists, **_given(options)),
        jobs=options.jobs,
        device=options.device,
        cluster=options.cluster,
        dashboard=options.dashboard,
        progress=not options.quiet,
    )
    for name, error in outcome.failed.items():
        sys.stderr.write(f"lff: {name} failed: {error.strip().splitlines()[-1]}\n")
    _say(f"{len(outcome.done)} runs recorded, {len(outcome.failed)} failed")
    return FAILURE if outcome.failed else 0


@command(
    "study",
    "run the notebooks: every table and figure, and one report",
    argument("notebooks", nargs="*", metavar="notebook", help="default: all, in order"),
    argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="another parameter of the notebooks; may be repeated",
    ),
    *(SCALE, SEEDS, JOBS, DEVICE),
    example="--scale smoke 05_robustness",
)
def _study(options: argparse.Namespace) -> int:
    from lff.study.runner import parse_parameters, run_study

    given = {"scale": options.scale, "seeds": options.seeds, "device": options.device}
    given |= parse_parameters(options.parameter)
    outcome = run_study(options.notebooks, given, jobs=options.jobs, say=_say)
    return FAILURE if outcome.failed else 0


@command("data list", "which data sets are in the cache", DATA)
def _data_list(options: argparse.Namespace) -> None:
    from lff.study.terminal import data_listing

    _say(data_listing(options.names))


@command("data fetch", "fetch data sets into the cache", DATA)
def _data_fetch(options: argparse.Namespace) -> None:
    from lff.data import fetch

    for name in options.names:
        paths = fetch(name)
        _say(f"{name}: {len(paths)} verified files in {paths[0].parent}")


@command("data verify", "check every cached file against its checksum", DATA)
def _data_verify(options: argparse.Namespace) -> int:
    from lff.study.terminal import data_verification

    text, sound = data_verification(options.names)
    _say(text)
    return 0 if sound else FAILURE


@command("list", "show benchmarks, defenses, attacks, scales", IMPORT)
def _list(_: argparse.Namespace) -> None:
    from lff.study.terminal import overview

    _say(overview())


@command(
    "verify",
    "play the first rounds of recorded runs again, and compare",
    argument(
        "--runs", type=_positive, default=4, help="how many records, evenly spaced (default: 4)"
    ),
    argument("--rounds", type=_positive, default=2, help="how many of their rounds (default: 2)"),
    *(SCALE, DEVICE),
    example="--scale laptop --runs 4 --rounds 2",
)
def _verify(options: argparse.Namespace) -> int:
    from lff.experiments.records import iterate
    from lff.experiments.verify import repeat, spread_over

    recorded = list(iterate(scale=options.scale))
    if not recorded:
        raise InputError(f"no run is recorded at scale {options.scale!r}")
    failed = 0
    for record in spread_over(recorded, options.runs):
        found = repeat(record, options.rounds, device=options.device)
        said = "the same bits" if found.same_bits else f"rates within {found.difference:.3f}"
        dropped = f"same peers dropped in {found.same_peers_dropped} of {found.rounds} rounds"
        _say(f"{'ok  ' if found.holds else 'FAIL'} {found.id}: {said}, {dropped}")
        failed += not found.holds
    return FAILURE if failed else 0


@command(
    "speed",
    "measure a round of each model on this device, by engine",
    argument("--file", type=Path, help="what to write (default: speed-DEVICE.json)"),
    argument("--quick", action="store_true", help="tiny sizes, to try it out"),
    DEVICE,
    example="--device cuda",
)
def _speed(options: argparse.Namespace) -> None:
    from lff.experiments.build import choose_device
    from lff.paths import checkout_dir

    device, checkout = choose_device(options.device), checkout_dir()
    if checkout is None:
        raise InputError("lff speed needs the repository: git clone it, then pip install -e .")
    sys.path.insert(0, str(checkout))  # `speed` is no part of the package
    measurement = importlib.import_module("speed.device")
    file = options.file or Path(f"speed-{device.type}.json")
    if not file.parent.is_dir():
        raise InputError(f"no folder {str(file.parent)!r} to write {file.name} to")
    _say(measurement.run(device, file, quick=options.quick))


def import_module(name: str) -> ModuleType:
    """Import a module by its name, from here or the path, or by the path of its file."""
    path = Path(name)
    is_file = path.suffix == ".py"
    sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
    try:
        return importlib.import_module(path.stem if is_file else name)
    except ModuleNotFoundError as error:
        raise InputError(f"no module {name!r} to import ({error})") from error
    finally:
        sys.path.pop(0)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Experiment` that were given, or have a default."""
    chosen = {name: getattr(options, name, None) for name in (*SETTINGS, "scale")}
    return {name: value for name, value in chosen.items() if value is not None}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
