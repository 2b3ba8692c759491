"""The models, their flat vector, and local training against the textbook loop."""

import contextlib
import copy

import helpers  # noqa: F401  one thread
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lff.errors import InputError
from lff.fast.kernels import FastCNN, ToOnePixel, accelerate, conv_pool
from lff.fast.submodels import FastLoop, shrinkage, used_taps
from lff.metrics import loss_function
from lff.models import (
    MODELS,
    OUTPUT_LAYER,
    Dropout,
    FlatModel,
    Layout,
    build_model,
    draw_dropout,
    dropouts,
)
from lff.seeds import random_words, stream, torch_generator
from lff.training import Examples, LocalTraining, Loop, Peer, batches, make_optimizer, peer_update
from lff.vision import import_torchvision

WORDS = 40
PARAMETERS = {"cnn": 21_840, "resnet18": 11_181_642, "bilstm": 100 * WORDS + 236_033}


def fresh(name, seed=0, width=0):
    return build_model(name, vocabulary=WORDS, seed=seed, width=width)


def set_dropout(model, key, step, n):
    """Give a model's dropout layers their factors for a batch, as local training does."""
    layers = list(dropouts(model))
    for layer, factors in zip(
        layers, draw_dropout(layers, key, step, n, torch.device("cpu")), strict=True
    ):
        layer.factors = factors


def flat(name, seed=0, width=0):
    return FlatModel(fresh(name, seed, width), OUTPUT_LAYER[name])


def some_examples(name, count, seed=0):
    """Inputs as small as the model takes them, and labels."""
    generator = torch.Generator().manual_seed(seed)
    if name == "bilstm":
        x = torch.randint(WORDS, (count, 6), generator=generator)
    else:
        shape = {"cnn": (1, 28, 28), "resnet18": (3, 32, 32)}[name]
        x = torch.randn(count, *shape, generator=generator)
    return x, torch.randint(2 if name == "bilstm" else 10, (count,), generator=generator)


def state_of(model):
    """Every floating-point entry: the parameters, then the buffers."""
    parts = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    return torch.cat([part.detach().flatten() for part in parts])


# --- the models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_numbers_of_parameters(name):
    model = fresh(name)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    assert Layout.of(model, OUTPUT_LAYER[name]).parameters == PARAMETERS[name]


def resnet18_parameters(width):
    """By hand: the first layer, four stages of two blocks of two 3x3 kernels, each layer with the
    two vectors of its BatchNorm, and the output layer."""
    count = 3 * width * 49 + 2 * width
    before = width
    for channels in (width, 2 * width, 4 * width, 8 * width):
        count += 9 * before * channels + 3 * 9 * channels**2 + 4 * 2 * channels
        if channels != before:
            count += before * channels + 2 * channels  # the shortcut
        before = channels
    return count + 8 * width * 10 + 10


@pytest.mark.parametrize("width", [1, 16, 48, 64, 128])
def test_a_resnet_of_another_width_has_in_every_layer_in_proportion_as_many_channels(width):
    model, paper = fresh("resnet18", width=width), fresh("resnet18")
    assert sum(p.numel() for p in model.parameters()) == resnet18_parameters(width)
    assert resnet18_parameters(64) == PARAMETERS["resnet18"]
    assert list(model.state_dict()) == list(paper.state_dict())
    for (name, ours), theirs in zip(model.named_parameters(), paper.parameters(), strict=True):
        outputs = 10 if name.startswith("fc") else theirs.shape[0] * width // 64
        assert (ours.shape[0], ours.shape[2:]) == (outputs, theirs.shape[2:]), name
    x, _ = some_examples("resnet18", 2)
    assert model.eval()(x).shape == (2, 10)


def test_the_width_of_the_paper_is_torchvisions_own_model():
    torch.manual_seed(5)
    theirs = state_of(import_torchvision().models.resnet18(num_classes=10))
    assert torch.equal(state_of(fresh("resnet18", 5, 64)), theirs)
    assert torch.equal(state_of(fresh("resnet18", 5)), theirs)
    one, same, other = (state_of(fresh("resnet18", seed, 16)) for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_narrow_resnet_begins_like_torchvisions():
    """Kernels of mean 0 and variance 2 / (channels out x taps)."""
    for name, weight in fresh("resnet18", width=32).named_parameters():
        if weight.dim() == 4:
            wanted = (2 / (weight.shape[0] * weight[0, 0].numel())) ** 0.5
            assert weight.std().item() == pytest.approx(wanted, rel=0.1), name


@pytest.mark.parametrize("name", MODELS)
def test_outputs_have_one_score_per_class_or_a_single_logit(name):
    x, _ = some_examples(name, 2)
    assert fresh(name).eval()(x).shape == ((2,) if name == "bilstm" else (2, 10))


@pytest.mark.parametrize("name", ["cnn", "bilstm"])
def test_building_depends_on_the_seed_and_leaves_the_global_generator_alone(name):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (state_of(fresh(name, seed)) for seed in (5, 5, 2**62))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert torch.equal(one, state_of(fresh(name, 5)))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_an_unknown_model_is_an_error():
    with pytest.raises(InputError, match=r"'resnet'.*'resnet18'"):
        build_model("resnet")


def scrambled(words):
    """The twin of `scramble`, in NumPy's own arithmetic of 32 bits."""
    words = np.asarray(words, dtype=np.uint32)
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x7FEB352D)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x846CA68B)
    return words ^ (words >> np.uint32(16))


def test_random_words_are_their_twins():
    keys = [0, 1, 2**32, 2**63 - 1, stream(5, "dropout", 3, 7)]
    for step in (0, 1, 29):
        rows = []
        for key in keys:
            state = scrambled([key % 2**32]) ^ np.uint32(key >> 32)
            state = scrambled(scrambled(state) ^ np.uint32(step))
            rows.append(scrambled(scrambled(np.arange(1000)) ^ state).astype(np.int64))
            found = random_words(key, step, 1000, "cpu")
            assert found.tolist() == rows[-1].tolist()
        stacked = random_words(torch.tensor(keys), step, 1000, "cpu")
        assert torch.equal(stacked, torch.from_numpy(np.stack(rows)))


def test_random_words_look_random():
    """Each bit is set half the time, and peers, steps and neighbors have nothing in common."""
    keys = torch.tensor([stream(0, "dropout", 0, peer) for peer in range(100)])
    words = torch.stack([random_words(keys, step, 512, "cpu") for step in range(20)])
    bits = ((words.flatten().unsqueeze(1) >> torch.arange(32)) & 1).double()
    n = len(bits)
    assert ((bits.mean(dim=0) - 0.5).abs() < 5 * 0.5 / n**0.5).all()
    signs = (words >= 2**31).double() * 2 - 1  # what dropout of a half looks at
    for one, two in (
        (signs[1:], signs[:-1]),
        (signs[:, 1:], signs[:, :-1]),
        (signs[..., 1:], signs[..., :-1]),
    ):
        product = one * two
        assert abs(product.mean().item()) < 5 / product.numel() ** 0.5
    assert len(words.unique()) > 0.999 * words.numel()


def test_dropout_takes_factors_and_no_global_random_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    layer = Dropout(100, p=0.25)
    (layer.factors,) = draw_dropout([layer], 1, 0, 100, torch.device("cpu"))
    kept = layer(torch.ones(100, 100))
    assert torch.equal(torch.get_rng_state(), before)
    assert sorted(kept.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert (kept == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(layer.eval()(torch.ones(5, 2)), torch.ones(5, 2))


def test_dropout_of_channels_drops_whole_maps():
    layer = Dropout(10)
    (layer.factors,) = draw_dropout([layer], 1, 0, 20, torch.device("cpu"))
    maps = layer(torch.ones(20, 10, 4, 4)).flatten(2)
    assert (maps == maps[:, :, :1]).all()
    assert sorted(maps.unique().tolist()) == [0, 2]
    alike = maps[:, :, 0] == maps[:1, :, 0]
    assert not alike.all(), "each example has a mask of its own"


def test_dropout_of_an_example_depends_on_neither_the_batch_nor_the_stack():
    layers = [Dropout(20), Dropout(50)]
    cpu = torch.device("cpu")
    keys = torch.tensor([stream(0, "dropout", 4, peer) for peer in range(3)])
    stack = draw_dropout(layers, keys, 9, 64, cpu)
    for row, key in enumerate(keys.tolist()):
        for whole, small in zip(stack, draw_dropout(layers, key, 9, 11, cpu), strict=True):
            assert torch.equal(whole[row, :11], small)
    other = draw_dropout(layers, keys, 10, 64, cpu)
    assert not any(torch.equal(a, b) for a, b in zip(stack, other, strict=True))
    assert draw_dropout([], 1, 0, 4, cpu) == []


# --- the flat vector -------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_vector_is_the_whole_floating_point_state(name):
    model = fresh(name)
    before = copy.deepcopy(model)
    flattened = FlatModel(model, OUTPUT_LAYER[name])
    assert torch.equal(flattened.vector, state_of(before))
    views = flattened.layout.views(flattened.vector)
    state = {k: v for k, v in before.state_dict().items() if v.is_floating_point()}
    assert set(views) == set(state)
    assert all(torch.equal(views[k], state[k]) for k in state)


@pytest.mark.parametrize("name", MODELS)
def test_loading_a_vector_loads_the_model(name):
    flattened, other = flat(name), fresh(name, seed=1)
    with torch.no_grad():
        for buffer in other.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 2)
    vector = state_of(other)
    flattened.load(vector)
    x, _ = some_examples(name, 3)
    torch.testing.assert_close(flattened.module.eval()(x), other.eval()(x))
    assert torch.equal(state_of(flattened.module), vector)
    flattened.vector.zero_()
    assert not torch.equal(vector, flattened.vector), "a copy, not the vector itself"
    assert not flattened.module(x).any()


@pytest.mark.parametrize("name", MODELS)
def test_flat_gradients_are_autograds(name):
    twin = accelerate(fresh(name), "cpu")
    flattened = FlatModel(copy.deepcopy(twin), OUTPUT_LAYER[name])
    x, y = some_examples(name, 3)
    for model in (twin, flattened.module):
        set_dropout(model, 1, 0, 3)
        loss_function(model(x), y).backward()
    wanted = torch.cat([p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(flattened.parameters.grad, wanted)
    assert torch.count_nonzero(wanted) > 0.1 * len(wanted)


@pytest.mark.parametrize("name", MODELS)
def test_the_output_layer_is_its_weights_and_its_bias(name):
    model = fresh(name)
    layer = dict(model.named_modules())[{"cnn": "fc2", "resnet18": "fc", "bilstm": "output"}[name]]
    classes, features = (1, 512) if name == "bilstm" else (10, 50 if name == "cnn" else 512)
    wanted = torch.cat([layer.weight, layer.bias.unsqueeze(1)], dim=1).detach()
    layout = Layout.of(model, OUTPUT_LAYER[name])
    vector = state_of(model)
    got = layout.output_layer_of(torch.stack([vector, 2 * vector]))
    assert got.shape == (2, classes, features + 1)
    assert torch.equal(got[0], wanted)
    assert torch.equal(got[1], 2 * wanted)


def test_batchnorm_statistics_come_after_the_parameters():
    layout = Layout.of(fresh("resnet18"), "fc")
    statistics = layout.names[len(layout.names) - 40 :]
    assert all(n.endswith(("running_mean", "running_var")) for n in statistics)
    assert layout.slice("bn1.running_mean").start == layout.parameters
    assert layout.size == layout.parameters + 2 * 4800
    assert not any("num_batches_tracked" in name for name in layout.names)
    assert flat("resnet18").has_batchnorm
    assert not flat("cnn").has_batchnorm


# --- local training --------------------------------------------------------------------------


def textbook(model, x, y, training, *, seed, round, peer_id):
    """PEER_UPDATE with an ordinary model, optimizer and loop, from the same streams."""
    shuffle = torch_generator(seed, "shuffle", round, peer_id)
    key, step = stream(seed, "dropout", round, peer_id), 0
    rate = training.learning_rate
    if training.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )
    model.train()
    for _ in range(training.local_epochs):
        order = torch.randperm(len(y), generator=shuffle)
        for start in range(0, len(y), training.batch_size):
            batch = order[start : start + training.batch_size]
            optimizer.zero_grad()
            set_dropout(model, key, step, len(batch))
            loss_function(model(x[batch]), y[batch]).backward()
            optimizer.step()
            step += 1


@pytest.mark.parametrize(
    ("name", "optimizer", "count", "epochs"),
    [
        ("cnn", "sgd", 10, 3),
        ("cnn", "adam", 10, 3),
        ("bilstm", "adam", 10, 2),
        ("bilstm", "sgd", 10, 2),
        ("resnet18", "sgd", 6, 1),
    ],
)
def test_training_is_the_textbook_loop(name, optimizer, count, epochs):
    """With a last batch of two; momentum, weight decay and BatchNorm's statistics included."""
    training = LocalTraining(
        local_epochs=epochs,
        batch_size=4,
        learning_rate=0.01,
        optimizer=optimizer,
        momentum=0.9,
        weight_decay=0.0 if optimizer == "adam" else 0.1,
    )
    x, y = some_examples(name, count)
    twin = fresh(name)
    start = state_of(twin)
    model = FlatModel(copy.deepcopy(twin), OUTPUT_LAYER[name])
    peer_update(model, Peer(7, Examples(x, y)), training, seed=3, round=2)
    textbook(twin, x, y, training, seed=3, round=2, peer_id=7)
    wanted = state_of(twin)
    assert (wanted - start).abs().max() > 1e-3
    torch.testing.assert_close(model.vector, wanted, rtol=1e-4, atol=1e-5)


def test_adam_decays_weights_as_told():
    """With a gradient of zero, only weight decay can move the weights."""
    moved = {}
    for decay in (0.0, 0.1):
        model = flat("cnn")
        training = LocalTraining(
            local_epochs=1, batch_size=4, learning_rate=0.01, optimizer="adam", weight_decay=decay
        )
        before = model.vector.clone()
        make_optimizer(model, training).step()
        moved[decay] = (model.vector - before).abs().max().item()
    assert moved[0.0] == 0
    assert moved[0.1] > 0


@pytest.mark.parametrize("name", MODELS)
def test_an_update_depends_on_no_other_peer_and_no_order(name):
    training = LocalTraining(local_epochs=1, batch_size=2, learning_rate=0.01)
    x, y = some_examples(name, 12)
    thirds = list(zip(x.split(3), y.split(3), strict=True))
    peers = [Peer(k, Examples(*thirds[k])) for k in (0, 1, 3)]
    model = flat(name)
    weights = model.vector.clone()
    torch.manual_seed(0)
    before = torch.get_rng_state()

    def updates(chosen, round=0):
        return Loop(model, training).train(weights, chosen, seed=1, round=round)

    all_three = updates(peers)
    assert torch.equal(updates(peers[::-1]), all_three.flip(0))
    assert torch.equal(updates(peers[2:]), all_three[2:])
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(updates(peers[:1], round=1), all_three[:1])
    assert not torch.equal(all_three[0], weights)


def test_peers_with_equal_examples_still_draw_their_own_noise():
    training = LocalTraining(local_epochs=1, batch_size=2, learning_rate=0.01)
    x, y = some_examples("cnn", 4)
    peers = [Peer(k, Examples(x, y)) for k in (0, 1)]
    model = flat("cnn")
    one, two = Loop(model, training).train(model.vector.clone(), peers, seed=0, round=0)
    assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("count", "size", "smallest", "sizes"),
    [
        (10, 4, 1, [4, 4, 2]),
        (9, 4, 1, [4, 4, 1]),
        (9, 4, 2, [4, 5]),
        (10, 4, 2, [4, 4, 2]),
        (8, 4, 2, [4, 4]),
        (3, 4, 2, [3]),
        (5, 4, 2, [5]),
        (1, 4, 1, [1]),
    ],
)
def test_the_last_batch_may_be_small_but_not_too_small(count, size, smallest, sizes):
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    parts = batches(order, size, smallest=smallest)
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat(parts), order)


def test_batchnorm_never_sees_a_lone_example():
    """Five examples in batches of four train as one batch of five."""
    training = LocalTraining(local_epochs=1, batch_size=4, learning_rate=0.01)
    x, y = some_examples("resnet18", 5)
    seen = []
    model = flat("resnet18")

    def note(module, args):
        if type(module) is type(model.module) and not args[0].is_meta:
            seen.append(len(args[0]))

    handle = nn.modules.module.register_module_forward_pre_hook(note)
    peer_update(model, Peer(0, Examples(x, y)), training, seed=0, round=0)
    handle.remove()
    assert seen == [5]


@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (3, 1)])
def test_batches_of_one_are_trained_or_refused_in_our_own_words(count, batch_size):
    """A mild partition may leave a peer with one example; batches of one may be asked for."""
    training = LocalTraining(local_epochs=1, batch_size=batch_size, learning_rate=0.01)
    x, y = some_examples("resnet18", count)
    model = flat("resnet18")
    with contextlib.suppress(InputError):
        peer_update(model, Peer(0, Examples(x, y)), training, seed=0, round=0)
    assert torch.isfinite(model.vector).all()


def test_an_unknown_optimizer_is_an_error():
    with pytest.raises(InputError, match=r"'adamw'.*'adam'"):
        LocalTraining(local_epochs=1, batch_size=1, learning_rate=0.1, optimizer="adamw")


def test_the_models_are_ordinary_modules():
    """No module of torch that draws dropout from the global generator is used."""
    for name in MODELS:
        kinds = {type(module) for module in fresh(name).modules()}
        assert not kinds & {nn.Dropout, nn.Dropout2d}


def with_gradients(model, x):
    outputs = model(x)
    weights = torch.linspace(-1, 2, outputs.numel()).view(outputs.shape)
    (outputs * weights).sum().backward()
    return outputs, [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_faster_layers_compute_what_torchs_do(name, training, count):
    """Outputs and gradients, with the same dropout; the images have flat regions, with ties.

    In double precision: BatchNorm over two single pixels magnifies rounding a thousandfold.
    """
    if name == "resnet18" and training and count == 1:
        pytest.skip("BatchNorm cannot train on a single example")
    plain = fresh(name).double().train(training)
    fast = accelerate(copy.deepcopy(plain), "cpu")
    assert {type(m) for m in fast.modules()} & {FastCNN, ToOnePixel}
    x, _ = some_examples(name, count)
    x = x.double().clamp(min=0)
    for model in (plain, fast):
        set_dropout(model, 5, 0, count)
    (wanted, references), (outputs, gradients) = with_gradients(plain, x), with_gradients(fast, x)
    torch.testing.assert_close(outputs, wanted)
    for gradient, reference in zip(gradients, references, strict=True):
        scale = reference.abs().max().item()
        torch.testing.assert_close(gradient, reference, rtol=1e-6, atol=1e-8 * scale)


@pytest.mark.parametrize("channels", [1, 3])
def test_convolution_and_pooling_in_one_product(channels):
    """In double precision, against torch."""
    generator = torch.Generator().manual_seed(channels)
    x, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in [(channels, 8, 6, 4), (5, channels, 3, 3), (5,)]
    )
    wanted = F.max_pool2d(F.conv2d(x.permute(3, 0, 1, 2), weight, bias), 2).permute(1, 2, 3, 0)
    ours = conv_pool(x, weight, bias)
    torch.testing.assert_close(ours, wanted)
    upstream = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    inputs = (x, weight, bias)
    for mine, torchs in zip(
        torch.autograd.grad(ours, inputs, upstream),
        torch.autograd.grad(wanted, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs)


def test_equal_pixels_send_their_gradient_to_the_first_one_only():
    x = torch.ones(1, 4, 4, 1, requires_grad=True)
    conv_pool(x, torch.ones(1, 1, 1, 1), torch.zeros(1)).sum().backward()
    first = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0] * 4] * 2)
    assert torch.equal(x.grad.view(4, 4), first)


def trained_in_part_and_whole(name, x, y, training, width=0):
    """The weights of a model before training, and it trained in part and as a whole."""
    peer = Peer(0, Examples(x, y))
    part, whole = (
        FlatModel(accelerate(fresh(name, width=width), "cpu"), OUTPUT_LAYER[name]) for _ in "12"
    )
    before = whole.vector.clone()
    FastLoop(part, training).train_peer(peer, seed=0, round=0)
    Loop(whole, training).train_peer(peer, seed=0, round=0)
    return before, part, whole


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_on_own_words_alone_changes_nothing(optimizer):
    """Two epochs with momentum: words held, not held, and held in one batch only."""
    training = LocalTraining(
        local_epochs=2, batch_size=3, learning_rate=0.1, optimizer=optimizer, weight_decay=0.0
    )
    x, y = some_examples("bilstm", 7)
    before, own, whole = trained_in_part_and_whole("bilstm", x, y, training)
    assert torch.equal(own.vector, whole.vector)
    moved = (own.vector - before)[own.layout.slice("embedding.weight")].view(WORDS, -1)
    assert moved.abs().amax(dim=1).nonzero().flatten().tolist() == x.unique().tolist()


@pytest.mark.parametrize("width", [0, 16])
@pytest.mark.parametrize(
    ("optimizer", "decay"), [("sgd", 0.1), ("sgd", 0.0), ("adam", 0.1), ("adam", 0.0)]
)
def test_training_the_used_taps_alone_changes_nothing(optimizer, decay, width):
    """Two epochs with momentum; weight decay is large, so that what does not learn shrinks."""
    training = LocalTraining(
        local_epochs=2, batch_size=3, learning_rate=0.01, optimizer=optimizer, weight_decay=decay
    )
    x, y = some_examples("resnet18", 7)
    models = trained_in_part_and_whole("resnet18", x, y, training, width)
    before, part, whole = models
    torch.testing.assert_close(part.vector, whole.vector, rtol=1e-6, atol=1e-7)
    still = (part.vector == before).float().mean()
    assert still > 0.5 if decay == 0 else still < 0.01


def test_of_a_resnet_only_taps_that_meet_pixels_are_trained():
    """In the last stage of 32x32 images five taps of nine meet only padding in the first kernels,
    eight in three more; maps of 64x64 images are twice as large, and every tap meets a pixel."""
    model = flat("resnet18")
    small = used_taps(model, torch.Size([3, 32, 32])).model.layout
    assert model.layout.parameters - small.parameters == 512 * (5 * 256 + 3 * 8 * 512)
    larger = used_taps(model, torch.Size([3, 64, 64])).model.layout
    assert larger.parameters == model.layout.parameters


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_without_a_gradient_weight_decay_shrinks_by_a_factor(steps):
    training = LocalTraining(
        local_epochs=1, batch_size=1, learning_rate=0.1, momentum=0.9, weight_decay=0.2
    )
    weight = torch.nn.Parameter(torch.tensor([1.0, -3.0], dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.2)
    for _ in range(steps):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    wanted = weight.detach() / torch.tensor([1.0, -3.0], dtype=torch.float64)
    torch.testing.assert_close(
        torch.full_like(wanted, shrinkage(training, steps)), wanted, rtol=1e-12, atol=0
    )
