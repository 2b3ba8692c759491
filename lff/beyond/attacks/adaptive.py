"""Label flippers who know that LFighter, LabelAudit or their like is there.

LFighter looks at the two neurons of largest gradients, splits the peers by these gradients, and
drops the smaller and denser part; once it has dropped the wrong one, that can last. LabelAudit
learns from all peers what a class looks like, asks who pushes the source class's neuron away from
that and the target class's towards it, and sums what each peer did over the rounds.
"""

import torch
from torch import Tensor, nn

from lff.attacks import Context, attack
from lff.beyond.attacks.updates import LabelFlipper, output_layer, with_output_layer
from lff.errors import InputError
from lff.training import Examples, honest_loss


@attack("proximal", label="Proximal flip")
class Proximal(LabelFlipper):
    """Flipped labels, and a loss that keeps the model near the global one: + mu/2 ||X - W||^2."""

    def __init__(self, *, mu: float = 1.0):
        if not 0 <= mu < float("inf"):
            raise InputError(f"mu must be 0 or more, not {mu!r}")
        self.mu = mu

    def loss(self, model: nn.Module, batch: Examples, context: Context) -> Tensor:
        """The honest loss and the proximal term."""
        start = context.model.layout.views(context.global_weights)
        moved = [(x - start[name]).square().sum() for name, x in model.named_parameters()]
        return honest_loss(model, batch) + self.mu / 2 * torch.stack(moved).sum()


def relevant_neurons(context: Context) -> list[int]:
    """The source and the target class's neuron; the only one of a model with a single neuron."""
    neurons = output_layer(context, context.global_weights.unsqueeze(0)).shape[1]
    return [0] if neurons == 1 else [context.source_class, context.target_class]


@attack("rescaled_neurons", label="Rescaled neurons", knows="all updates")
class RescaledNeurons(LabelFlipper):
    """Flipped labels, and the relevant neurons' gradients as long as the honest ones on average."""

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """Each relevant neuron's step keeps its direction and takes the honest mean length."""
        rows = relevant_neurons(context)
        start = output_layer(context, context.global_weights.unsqueeze(0))[0]
        layer = output_layer(context, update.unsqueeze(0))[0]
        honest = output_layer(context, context.honest) - start
        length = honest[:, rows].norm(dim=2).mean(dim=0)
        layer[rows] = start[rows] + resized(layer[rows] - start[rows], length)
        return with_output_layer(context, update, layer)


@attack("noisy_neurons", label="Noisy neurons")
class NoisyNeurons(LabelFlipper):
    """Flipped labels, and noise on the relevant neurons' gradients: attackers look less dense.

    The noise is drawn anew in each round, `scale` times as long as the gradient.
    """

    def __init__(self, *, scale: float = 1.0):
        self.scale = scale

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """Each relevant neuron's step plus noise in proportion."""
        rows = relevant_neurons(context)
        start = output_layer(context, context.global_weights.unsqueeze(0))[0]
        layer = output_layer(context, update.unsqueeze(0))[0]
        length = (layer[rows] - start[rows]).norm(dim=1)
        noise = torch.randn(layer[rows].shape, generator=context.generator).to(layer.device)
        layer[rows] += resized(noise, self.scale * length)
        return with_output_layer(context, update, layer)


@attack("decoy", label="Decoy neuron")
class Decoy(LabelFlipper):
    """Flipped labels, and a third neuron's gradient inflated so that the rule looks there.

    It becomes `factor` times as long as the longer of the two relevant ones. The third neuron is
    `neuron`, or else the lowest that is not relevant.
    """

    def __init__(self, *, neuron: int = -1, factor: float = 3.0):
        self.neuron, self.factor = neuron, factor

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """The decoy's step in its own direction, at that length."""
        rows = relevant_neurons(context)
        start = output_layer(context, context.global_weights.unsqueeze(0))[0]
        layer = output_layer(context, update.unsqueeze(0))[0]
        others = [i for i in range(len(layer)) if i not in rows]
        if self.neuron not in [-1, *others] or not others:
            raise InputError(f"a decoy must be one of the neurons {others}, not {self.neuron}")
        decoy = [others[0] if self.neuron == -1 else self.neuron]
        length = (layer[rows] - start[rows]).norm(dim=1).max()
        layer[decoy] = start[decoy] + resized(layer[decoy] - start[decoy], self.factor * length)
        return with_output_layer(context, update, layer)


@attack("copied_row", label="Copied row")
class CopiedRow(LabelFlipper):
    """Flipped labels, and the source class's neuron moves as the target class's does.

    Between the two nothing is left to see of a flip (against LabelAudit).
    """

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """The target row's step in the place of the source row's."""
        rows = relevant_neurons(context)
        start = output_layer(context, context.global_weights.unsqueeze(0))[0]
        layer = output_layer(context, update.unsqueeze(0))[0]
        layer[rows[0]] = start[rows[0]] + layer[rows[-1]] - start[rows[-1]]
        return with_output_layer(context, update, layer)


@attack("disguised_row", label="Disguised row", knows="all updates")
class DisguisedRow(LabelFlipper):
    """Flipped labels, and the source class's neuron moves as the honest peers move the target's.

    So the source class seems to look like the target class, and who is honest about that one seems
    to flip (against LabelAudit).
    """

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """The honest peers' mean step of the target row in the place of the source row's."""
        rows = relevant_neurons(context)
        start = output_layer(context, context.global_weights.unsqueeze(0))[0]
        layer = output_layer(context, update.unsqueeze(0))[0]
        honest = output_layer(context, context.honest).mean(dim=0) - start
        layer[rows[0]] = start[rows[0]] + honest[rows[-1]]
        return with_output_layer(context, update, layer)


def resized(vectors: Tensor, length: Tensor) -> Tensor:
    """Each row at its length; rows of zeros stay."""
    size = vectors.norm(dim=1)
    return vectors * (length / torch.where(size > 0, size, 1)).unsqueeze(1)


@attack("early", label="Early flip")
class Early(LabelFlipper):
    """Flipped labels in the first rounds only: if the rule has locked on the wrong peers by then,
    the honest stay out, and nobody attacks any more."""

    def __init__(self, *, rounds: int = 3):
        if rounds < 1:
            raise InputError(f"rounds must be 1 or more, not {rounds!r}")
        self.rounds = rounds

    def poison(self, data: Examples, context: Context) -> Examples:
        """Flipped in the first rounds, true from then on."""
        return super().poison(data, context) if context.round < self.rounds else data


@attack("late", label="Late flip")
class Late(LabelFlipper):
    """True labels in the first rounds, which make a good record, and flipped ones from then on."""

    def __init__(self, *, rounds: int = 4):
        if rounds < 1:
            raise InputError(f"rounds must be 1 or more, not {rounds!r}")
        self.rounds = rounds

    def poison(self, data: Examples, context: Context) -> Examples:
        """True in the first rounds, flipped from then on."""
        return data if context.round < self.rounds else super().poison(data, context)


@attack("turns", label="Flip in turns")
class Turns(LabelFlipper):
    """Flipped labels in turns: of so many `groups` of attackers one attacks in each round."""

    def __init__(self, *, groups: int = 2):
        if groups < 1:
            raise InputError(f"groups must be 1 or more, not {groups!r}")
        self.groups = groups

    def poison(self, data: Examples, context: Context) -> Examples:
        """Flipped if it is her group's turn."""
        place = context.attackers.index(context.peer)
        mine = place % self.groups == context.round % self.groups
        return super().poison(data, context) if mine else data
