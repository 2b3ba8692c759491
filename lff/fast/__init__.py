"""What makes it quick: kernels, submodels, sorting networks, processes, stacked peers.

The core never imports this room. `lff.experiments` puts its pieces in the place of the plain ones,
and a test holds each equal to its plain twin.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from lff.defenses import Defense, Rule
from lff.errors import InputError, unknown
from lff.fast import coordinatewise, gram
from lff.fast.kernels import accelerate
from lff.fast.pool import Pool
from lff.fast.stacked import AGREEMENT, Stacked, disagreement
from lff.fast.submodels import FastLoop
from lff.models import CNN, FlatModel
from lff.training import LocalTraining, Peer, Trainer

__all__ = ["ENGINES", "RULES", "accelerate", "check_engine", "choose_trainer", "make_rule"]

logger = logging.getLogger("lff")

ENGINES = ("auto", "loop", "stacked")

# The fast form of a defense, by its name.
RULES = {
    "median": coordinatewise.median,
    "multi_krum": gram.multi_krum,
    "repeated_median": coordinatewise.repeated_median,
    "trimmed_mean": coordinatewise.trimmed_mean,
}


def make_rule(defense: Defense, options: Mapping[str, Any]) -> Rule:
    """A fresh rule with these options: the fast form of a defense of ours, if there is one."""
    if defense.factory.__module__.startswith("lff.defenses.") and defense.name in RULES:
        defense = replace(defense, factory=RULES[defense.name])
    return defense.create(**options)


def choose_trainer(
    engine: str,
    workers: int,
    *,
    model: FlatModel,
    plain: nn.Module,
    training: LocalTraining,
    peers: Sequence[Peer],
    own_loss: bool = False,
) -> Trainer:
    """The trainer for this model and device; `auto` stacks the CNN on a GPU, else it loops.

    `plain` is another copy of the model, neither accelerated nor flat, for those that make their
    own of it. Attackers with a loss of their own (`own_loss`) train in this process. On a GPU the
    stack must first agree with the loop; where it does not, the loop is taken.
    """
    check_engine(engine, workers)
    device = model.vector.device.type
    fits = isinstance(plain, CNN) and training.optimizer == "sgd" and not own_loss
    if engine == "stacked" and not fits:
        raise InputError(
            "engine 'stacked' is for the CNN with SGD and attacks without a loss of their own; "
            "choose 'loop' or 'auto'"
        )
    if workers > 1 and (engine == "stacked" or device != "cpu"):
        raise InputError(f"{workers} workers train on the CPU with engine 'loop'; choose 1 worker")
    wanted = engine == "stacked" or (engine == "auto" and fits and device == "cuda")
    if wanted and (device == "cpu" or _agrees(plain, model.layout.output_layer, training, peers)):
        return Stacked(plain, model.layout, training)
    if workers > 1 and not own_loss:
        return Pool(workers, plain, model.layout.output_layer, training)
    return FastLoop(model, training)


def _agrees(
    plain: nn.Module, output_layer: str, training: LocalTraining, peers: Sequence[Peer]
) -> bool:
    """Whether the stack trains as the loop does on this device; a word on it if not."""
    try:
        apart = disagreement(plain, output_layer, training, peers)
    except RuntimeError as error:
        logger.warning("engine 'loop' is taken, for the stack failed: %s", error)
        return False
    if not apart <= AGREEMENT:
        logger.warning(
            "engine 'loop' is taken, for the stack is %.1e of a step away from it, more than %.0e",
            apart,
            AGREEMENT,
        )
    return apart <= AGREEMENT


def check_engine(engine: str, workers: int) -> None:
    """Refuse an engine there is not, and a number of workers that is none."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if type(workers) is not int or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")
