"""Layers like torch's, computed faster on small images.

Results are those of torch up to the last bits of floating-point sums; `speed/README.md` has what
each brings.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lff.models import CNN


class _ConvPool(torch.autograd.Function):
    """See `conv_pool`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        *stack, channels, height, width, n = x.shape
        *_, features, _, k, _ = weight.shape
        rows, columns = (height - k + 1) // 2, (width - k + 1) // 2
        *outer, c, h, w, _ = x.stride()
        windows = x.as_strided(
            (*stack, channels, k + 1, k + 1, rows, columns, n), (*outer, c, h, w, 2 * h, 2 * w, 1)
        ).reshape(*stack, channels * (k + 1) ** 2, -1)
        shifted = [F.pad(weight, (b, 1 - b, a, 1 - a)) for a in (0, 1) for b in (0, 1)]
        kernels = torch.stack(shifted, dim=-5).view(*stack, 4 * features, -1)
        maps = (kernels @ windows).view(*stack, 4, features, -1)
        first, *corners = maps.unbind(-3)
        top = torch.maximum(first, corners[0])
        for corner in corners[1:]:
            torch.maximum(top, corner, out=top)
        ctx.save_for_backward(windows, kernels, maps, top)
        ctx.shapes = (x.shape, weight.shape, rows, columns)
        return (top + bias[..., None]).view(*stack, features, rows, columns, n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        windows, kernels, maps, top = ctx.saved_tensors
        (*stack, channels, height, width, n), weight_shape, rows, columns = ctx.shapes
        *_, features, _, k, _ = weight_shape
        grad = grad.reshape(*stack, features, -1)
        left = grad.clone()  # goes to the first corner that is the largest, as in torch
        *corners, last = maps.unbind(-3)
        for corner in corners:
            corner.eq_(top).mul_(left)
            left -= corner
        last.copy_(left)
        grad_maps = maps.view(*stack, 4 * features, -1)
        grad_kernels = (grad_maps @ windows.mT).view(*stack, 4, features, channels, k + 1, k + 1)
        places = [(a, b) for a in (0, 1) for b in (0, 1)]
        grad_weight = sum(
            g[..., a : a + k, b : b + k]
            for g, (a, b) in zip(grad_kernels.unbind(-5), places, strict=True)
        )
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_windows = (kernels.mT @ grad_maps).view(
                *stack, channels, k + 1, k + 1, rows, columns, n
            )
            by_row = grad.new_zeros(*stack, channels, height, k + 1, columns, n)
            grad_x = grad.new_zeros(*stack, channels, height, width, n)
            for i in range(k + 1):
                by_row[..., i : i + 2 * rows : 2, :, :, :] += grad_windows[
                    ..., i, :, :, :, :
                ].transpose(-4, -3)
            for j in range(k + 1):
                grad_x[..., j : j + 2 * columns : 2, :] += by_row[..., j, :, :]
        return grad_x, grad_weight, grad.sum(dim=-1)


def conv_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`max_pool2d(conv2d(x, weight, bias), 2)` of images `[channels, height, width, n]`.

    Each pooled pixel sees a window of k + 1 by k + 1 pixels, and is the largest of four products
    of that window with the kernel, shifted to one of its corners: all in one matrix product. With
    the examples innermost, cutting out the windows copies runs of n numbers. The map before
    pooling must have an even height and width. All three may be stacks of as many, by a first
    dimension before theirs.
    """
    return _ConvPool.apply(x.contiguous(), weight, bias)


class _Taps(torch.autograd.Function):
    """A linear layer whose matrix is some taps of a convolution's kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: int) -> Tensor:
        used = slice(first, first + x.shape[-1])
        # A copy even of a whole kernel: a product's last bits may depend on where its matrix lies.
        taps = weight[:, :, used, used].clone(memory_format=torch.contiguous_format).flatten(1)
        pixels = x.flatten(1)
        ctx.save_for_backward(pixels, taps)
        ctx.shapes = (x.shape, weight.shape, used)
        return (pixels @ taps.t())[:, :, None, None]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        pixels, taps = ctx.saved_tensors
        x_shape, weight_shape, used = ctx.shapes
        grad = grad.flatten(1)
        grad_weight = grad.new_zeros(weight_shape)
        grad_weight[:, :, used, used] = (grad.t() @ pixels).view(*weight_shape[:2], *x_shape[2:])
        return (grad @ taps).view(x_shape), grad_weight, None


class ToOnePixel(nn.Conv2d):
    """A convolution that multiplies no padding where its result is a single pixel.

    In ResNet18's last stage a 32x32 image has become 2x2 and then 1x1 pixels: five or eight of
    the nine taps of each padded 3x3 kernel only ever meet padding. The result is the same, at a
    fraction of the work.
    """

    @staticmethod
    def fits(layer: nn.Conv2d) -> bool:
        """Whether a map of at most `stride` pixels a side has one pixel after this layer."""
        kinds = [((3, 3), (1, 1), (1, 1)), ((3, 3), (2, 2), (1, 1)), ((1, 1), (2, 2), (0, 0))]
        kind = (layer.kernel_size, layer.stride, layer.padding)
        return layer.bias is None and layer.groups == 1 and kind in kinds

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != x.shape[-2] or x.shape[-1] > self.stride[0]:
            return super().forward(x)
        if self.kernel_size == (1, 1):
            x = x[:, :, :1, :1]
        whole = self.weight.shape[2:] == self.kernel_size  # a submodel has the used taps alone
        return _Taps.apply(x, self.weight, self.padding[0] if whole else 0)


class FastCNN(CNN):
    """The same network, faster on a CPU.

    A dropped map is zero before or after max-pooling, and a factor that is not negative leaves
    the largest pixel the largest: dropout may come after the pooling.
    """

    def features(self, x: Tensor) -> Tensor:
        n = len(x)
        x = x.permute(1, 2, 3, 0)
        for layer in (self.conv1, self.conv2):
            assert layer.bias is not None
            x = F.relu(conv_pool(x, layer.weight, layer.bias))
        if self.training:
            x = x * self.dropout2d.drawn(x, n).t()[:, None, None]
        return x.flatten(0, 2).t()


def accelerate(model: nn.Module, device: torch.device | str) -> nn.Module:
    """Exchange a model's layers, in place, for equal ones that are faster on `device`."""
    if isinstance(model, CNN) and torch.device(device).type == "cpu":
        model.__class__ = FastCNN
    for layer in model.modules():
        if type(layer) is nn.Conv2d and ToOnePixel.fits(layer):
            layer.__class__ = ToOnePixel
    return model
