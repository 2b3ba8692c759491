"""`lff run | sweep | study | data | list`: the command line.

Heavy imports happen inside the commands, so that `--help`, `--version` and mistakes in the
arguments are answered at once.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from lff.errors import LffError, unknown
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import SCALES

MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (2 for a user's mistake)."""
    try:
        logging.basicConfig(format="lff: %(message)s")
        logging.getLogger("lff").setLevel(logging.INFO)
        options, extra = _parser().parse_known_args(arguments)
        if extra:
            raise unknown("argument", extra[0], options.flags)
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
    listing.set_defaults(command=_list)
    for command in commands.choices.values():
        command.set_defaults(flags=[f for a in command._actions for f in a.option_strings])
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run one benchmark, attacked and defended",
        epilog="example: lff run mnist-mild --defense lfighter --attackers 40 --scale quick",
    )
    parser.add_argument("benchmark", type=_choice("benchmark", BENCHMARKS), metavar="benchmark",
                        help=", ".join(BENCHMARKS))  # fmt: skip
    parser.add_argument("--defense", default="fedavg", help="a defense's name (default: fedavg)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of the defense; may be repeated")  # fmt: skip
    parser.add_argument("--attackers", type=float, default=0, metavar="PERCENT",
                        help="attacker ratio in percent (default: 0)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="auto", help="auto, loop or stacked (default: auto)")
    parser.add_argument("--workers", type=_positive, metavar="N", help="processes for a "
                        "round (default: one, or one per core if the run is long)")  # fmt: skip
    _add_common(parser)
    parser.set_defaults(command=_run)


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="run every combination of benchmarks, defenses, ratios and seeds",
        epilog="example: lff sweep --benchmarks mnist-iid mnist-mild --defenses fedavg lfighter",
    )
    parser.add_argument("--benchmarks", nargs="+", type=_choice("benchmark", BENCHMARKS),
                        default=list(BENCHMARKS), metavar="NAME")  # fmt: skip
    parser.add_argument("--defenses", nargs="+", metavar="NAME", default=[],
                        help="default: the scale's")  # fmt: skip
    parser.add_argument("--ratios", nargs="+", type=float, default=[],
                        metavar="PERCENT", help="default: the scale's")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--jobs", type=_positive, metavar="N",
                        help="runs at a time (default: one per core, or per worker)")  # fmt: skip
    parser.add_argument("--cluster", metavar="tcp://HOST:PORT",
                        help="spread the runs over the workers of this Dask scheduler; only on "
                        "a network you trust")  # fmt: skip
    _add_common(parser)
    parser.set_defaults(command=_sweep)


def _add_study(commands: Any) -> None:
    parser = commands.add_parser(
        "study",
        help="run the notebooks: every table and figure, and one report",
        epilog="example: lff study --scale smoke 04_robustness",
    )
    parser.add_argument("notebooks", nargs="*", metavar="notebook", help="default: all, in order")
    parser.add_argument("--scale", type=_choice("scale", SCALES), default="quick", metavar="NAME",
                        help=f"{', '.join(SCALES)} (default: quick)")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--jobs", type=_positive, help="runs at a time (default: one per core)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=JSON",
                        help="another parameter of the notebooks; may be repeated")  # fmt: skip
    parser.set_defaults(command=_study)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=_choice("scale", SCALES), default="quick",
                        metavar="NAME", help=f"{', '.join(SCALES)} (default: quick)")  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    sizes = parser.add_argument_group("sizes and settings (default: the scale's)")
    for name, kind in _SETTINGS.items():
        sizes.add_argument(f"--{name.replace('_', '-')}", type=kind)


_SETTINGS: dict[str, type] = {
    "rounds": int,
    "peers": int,
    "fraction": float,
    "examples": int,
    "test_examples": int,
    "vocabulary": int,
    "width": int,
    "local_epochs": int,
    "batch_size": int,
    "learning_rate": float,
    "alpha": float,
    "source_class": int,
    "target_class": int,
    "data": str,
    "distribution": str,
    "attack": str,
    "optimizer": str,
    "momentum": float,
    "weight_decay": float,
}


def _add_data(commands: Any) -> None:
    parser = commands.add_parser("data", help="list, fetch or verify the real data sets")
    actions = parser.add_subparsers(metavar="action", required=True)
    for name, command, text in (
        ("list", _data_list, "which data sets are in the cache"),
        ("fetch", _data_fetch, "fetch data sets into the cache"),
        ("verify", _data_verify, "check every cached file against its checksum"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("names", nargs="*", type=_choice("data set", _DATASETS),
                            default=_DATASETS, metavar="name",
                            help=f"{', '.join(_DATASETS)} (default: all)")  # fmt: skip
        if name == "fetch":
            action.add_argument("--from", dest="folder", help="a folder that has the files")
        action.set_defaults(command=command)


_DATASETS = list(dict.fromkeys(b.dataset for b in BENCHMARKS.values()))


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


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    chosen = {name: getattr(options, name) for name in _SETTINGS}
    return {name: value for name, value in chosen.items() if value is not None}


def _run(options: argparse.Namespace) -> None:
    from lff.experiments.runs import experiment, run
    from lff.experiments.workers import sensible_workers
    from lff.study.report import summarize

    e = experiment(
        options.benchmark,
        defense=options.defense,
        defense_options=",".join(options.option),
        attackers=options.attackers,
        seed=options.seed,
        scale=options.scale,
        **_settings(options),
    )
    record = run(
        e,
        device=options.device,
        engine=options.engine,
        workers=options.workers or sensible_workers(e, options.device, options.engine),
        progress=not options.quiet,
    )
    _say(summarize(record))


def _sweep(options: argparse.Namespace) -> int:
    from lff.experiments.sweep import grid, run_all

    experiments = grid(
        options.benchmarks,
        options.defenses,
        options.ratios,
        options.seeds,
        scale=options.scale,
        **_settings(options),
    )
    outcome = run_all(
        experiments,
        jobs=options.jobs,
        device=options.device,
        cluster=options.cluster,
        progress=not options.quiet,
    )
    for name, error in outcome.failed.items():
        sys.stderr.write(f"lff: {name} failed: {error.strip().splitlines()[-1]}\n")
    _say(f"{len(outcome.done)} runs recorded, {len(outcome.failed)} failed")
    return FAILURE if outcome.failed else 0


def _study(options: argparse.Namespace) -> int:
    from lff.study.papermill import parse_parameters, run_study

    given = {"scale": options.scale, "seeds": options.seeds, "device": options.device}
    given |= parse_parameters(options.parameter)
    outcome = run_study(options.notebooks, given, jobs=options.jobs, say=_say)
    return FAILURE if outcome.failed else 0


def _list(_: argparse.Namespace) -> None:
    from lff.study.report import overview

    _say(overview())


def _data_list(options: argparse.Namespace) -> None:
    from lff.study.report import data_listing

    _say(data_listing(options.names))


def _data_fetch(options: argparse.Namespace) -> None:
    from lff.data import fetch

    for name in options.names:
        paths = fetch(name, folder=options.folder)
        _say(f"{name}: {len(paths)} verified files in {paths[0].parent}")


def _data_verify(options: argparse.Namespace) -> int:
    from lff.study.report import data_verification

    text, sound = data_verification(options.names)
    _say(text)
    return 0 if sound else FAILURE


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
