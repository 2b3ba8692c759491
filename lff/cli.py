"""`lff run | sweep | study | data | list | speed`: the command line.

Its flags are the fields of `Experiment`. Heavy imports happen inside the commands, so that
`--help`, `--version` and mistakes in the arguments are answered at once.
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
    commands = parser.add_subparsers(metavar="command", required=True)
    _add_run(commands)
    _add_sweep(commands)
    _add_study(commands)
    _add_data(commands)
    listing = commands.add_parser("list", help="show benchmarks, defenses, attacks, scales")
    _add_imports(listing)
    listing.set_defaults(command=_list)
    _add_verify(commands)
    _add_speed(commands)
    for command in commands.choices.values():
        command.set_defaults(flags=[f for a in command._actions for f in a.option_strings])
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run one benchmark, attacked and defended",
        epilog="example: lff run mnist-mild --defense lfighter --attackers 40 --scale quick",
    )
    named = ", ".join(PAPER_BENCHMARKS)
    parser.add_argument("benchmark", help=f"{named}, or your own")
    parser.add_argument("--engine", default="auto", help="auto, loop or stacked (default: auto)")
    parser.add_argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="processes for a round (default: one, or one per core if the run is long)",
    )
    _add_settings(parser, leaving_out=("benchmark",))
    parser.set_defaults(command=_run)


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="run every combination of benchmarks, defenses, ratios and seeds",
        epilog="example: lff sweep --benchmarks mnist-iid mnist-mild --defenses fedavg lfighter",
    )
    several = {"nargs": "+", "default": []}
    parser.add_argument("--benchmarks", metavar="NAME", help="default: the paper's", **several)
    parser.add_argument("--defenses", metavar="NAME", help="default: the scale's", **several)
    parser.add_argument(
        "--ratios", metavar="PERCENT", type=float, help="default: the scale's", **several
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="runs at a time (default: one per core, or per worker)",
    )
    parser.add_argument(
        "--cluster",
        metavar="tcp://HOST:PORT",
        help="spread the runs over the workers of this Dask scheduler; only on a network you trust",
    )
    parser.add_argument("--dashboard", action="store_true", help="show Dask's dashboard")
    _add_settings(parser, leaving_out=("benchmark", "defense", "attackers", "seed"))
    parser.set_defaults(command=_sweep)


def _add_study(commands: Any) -> None:
    parser = commands.add_parser(
        "study",
        help="run the notebooks: every table and figure, and one report",
        epilog="example: lff study --scale smoke 05_robustness",
    )
    parser.add_argument("notebooks", nargs="*", metavar="notebook", help="default: all, in order")
    _add_scale(parser)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--jobs", type=_positive, help="runs at a time (default: one per core)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="another parameter of the notebooks; may be repeated",
    )
    parser.set_defaults(command=_study)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale",
        type=_choice("scale", list(SCALES)),
        default="quick",
        metavar="NAME",
        help=f"{', '.join(SCALES)} (default: quick)",
    )


def _add_settings(parser: argparse.ArgumentParser, leaving_out: Sequence[str]) -> None:
    """A flag for each field of `Experiment`, but for these."""
    _add_scale(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_imports(parser)
    group = parser.add_argument_group("settings of the experiment (default: the scale's)")
    settings = [f for f in fields(Experiment) if f.name not in (*leaving_out, "scale", "user_code")]
    for field in settings:
        flag, kind = f"--{field.name.replace('_', '-')}", cast("type", field.type)
        group.add_argument(flag, type=kind, help=HELP.get(field.name))
    parser.set_defaults(settings=[field.name for field in settings])


def _add_imports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or file.py that registers your own defense, attack, ...; may be repeated",
    )


def _add_data(commands: Any) -> None:
    parser = commands.add_parser("data", help="list, fetch or verify the real data sets")
    actions = parser.add_subparsers(metavar="action", required=True)
    for name, command, text in (
        ("list", _data_list, "which data sets are in the cache"),
        ("fetch", _data_fetch, "fetch data sets into the cache"),
        ("verify", _data_verify, "check every cached file against its checksum"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument(
            "names",
            nargs="*",
            type=_choice("data set", DATASETS),
            default=DATASETS,
            metavar="name",
            help=f"{', '.join(DATASETS)} (default: all)",
        )
        action.set_defaults(command=command)


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="play the first rounds of recorded runs again, and compare",
        epilog="example: lff verify --scale laptop --runs 4 --rounds 2",
    )
    _add_scale(parser)
    parser.add_argument(
        "--runs", type=_positive, default=4, help="how many records, evenly spaced (default: 4)"
    )
    parser.add_argument(
        "--rounds", type=_positive, default=2, help="how many of their rounds (default: 2)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.set_defaults(command=_verify)


def _add_speed(commands: Any) -> None:
    parser = commands.add_parser(
        "speed",
        help="measure a round of each model on this device, by engine",
        epilog="example: lff speed --device cuda",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--file", type=Path, help="what to write (default: speed-DEVICE.json)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try it out")
    parser.set_defaults(command=_speed)


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
    """The settings that were given."""
    chosen = {name: getattr(options, name) for name in options.settings}
    return {name: value for name, value in chosen.items() if value is not None}


def _run(options: argparse.Namespace) -> None:
    from lff.experiments.run import run
    from lff.study.terminal import summarize

    record = run(
        options.benchmark,
        scale=options.scale,
        device=options.device,
        engine=options.engine,
        workers=options.workers,
        progress=not options.quiet,
        **_given(options),
    )
    _say(summarize(record))


def _sweep(options: argparse.Namespace) -> int:
    from lff.experiments.scales import grid
    from lff.experiments.sweep import run_all

    experiments = grid(
        options.benchmarks,
        options.defenses,
        options.ratios,
        options.seeds,
        scale=options.scale,
        **_given(options),
    )
    outcome = run_all(
        experiments,
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


def _study(options: argparse.Namespace) -> int:
    from lff.study.runner import parse_parameters, run_study

    given = {"scale": options.scale, "seeds": options.seeds, "device": options.device}
    given |= parse_parameters(options.parameter)
    outcome = run_study(options.notebooks, given, jobs=options.jobs, say=_say)
    return FAILURE if outcome.failed else 0


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


def _list(_: argparse.Namespace) -> None:
    from lff.study.terminal import overview

    _say(overview())


def _data_list(options: argparse.Namespace) -> None:
    from lff.study.terminal import data_listing

    _say(data_listing(options.names))


def _data_fetch(options: argparse.Namespace) -> None:
    from lff.data import fetch

    for name in options.names:
        paths = fetch(name)
        _say(f"{name}: {len(paths)} verified files in {paths[0].parent}")


def _data_verify(options: argparse.Namespace) -> int:
    from lff.study.terminal import data_verification

    text, sound = data_verification(options.names)
    _say(text)
    return 0 if sound else FAILURE


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
