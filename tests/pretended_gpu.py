"""A pretended GPU: tensors that compute on the CPU but say that they are on `cuda:0`.

What torch refuses of a real GPU is refused here: an operation on tensors of both devices, and NumPy
on one of the GPU. The numbers are real, so that whole rounds can be played and compared.
(`FakeTensorMode` has no numbers, and torch's CPU build makes no gradients of it on `cuda`.)
"""

import contextlib
from collections import Counter
from typing import ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

CUDA = torch.device("cuda", 0)
BETWEEN_DEVICES = ("_to_copy", "copy_")
BY_INDEX = ("index", "index_put", "index_put_", "_index_put_impl_")  # indices may be on the CPU


class OnGpu(torch.Tensor):
    """A tensor of the pretended GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return PretendedGpu().__torch_dispatch__(func, types, args, kwargs)

    @property
    def device(self):
        return CUDA

    def cpu(self):
        PretendedGpu.counts["to the CPU"] += 1
        with no_dispatch():
            return self.detach().clone().as_subclass(torch.Tensor)

    def to(self, *args, **kwargs):
        asked = [*args, *kwargs.values()]
        if any(isinstance(a, str | torch.device) and torch.device(a).type == "cpu" for a in asked):
            return self.cpu()
        return super().to(*(CUDA if isinstance(a, str) else a for a in args), **kwargs)

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __array__(self, *_):
        return self.numpy()


class PretendedGpu(TorchDispatchMode):
    """Runs operations on either device, and counts those of the GPU by their names."""

    counts: ClassVar = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        on_gpu = any(isinstance(t, OnGpu) for t in tensors)
        on_cpu = [t for t in tensors if not isinstance(t, OnGpu) and t.dim() > 0]
        if name in BY_INDEX and isinstance(tensors[0], OnGpu):
            on_cpu = [t for t in on_cpu if t.is_floating_point()]
        if on_gpu and on_cpu and name not in BETWEEN_DEVICES:
            raise RuntimeError(f"{func}: all tensors must be on the same device, not cuda and cpu")
        if name == "copy_":
            on_gpu = isinstance(tensors[0], OnGpu)
        if kwargs.get("device") is not None:
            on_gpu = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = torch.device("cpu")
        arrived = name in BETWEEN_DEVICES and any(not isinstance(t, OnGpu) for t in tensors)
        self.counts["to the GPU" if arrived else name] += on_gpu
        with no_dispatch():
            result = func(*args, **kwargs)
        return tree_map_only(torch.Tensor, labelled, result) if on_gpu else result


class Indexed(TorchFunctionMode):
    """Takes over where torch asks the driver, or in C++ where a tensor is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(self.indexed, args), tree_map(self.indexed, kwargs or {})
        if func is torch.tensor and kwargs.get("device") == CUDA:
            return func(*args, **kwargs | {"device": "cpu"}).to(CUDA)
        if func is torch.Tensor.quantile and isinstance(args[0], OnGpu):
            return func(args[0].cpu(), *args[1:], **kwargs).to(CUDA)
        return func(*args, **kwargs)

    @staticmethod
    def indexed(value):
        unnamed = isinstance(value, str | torch.device) and str(value) == "cuda"
        return CUDA if unnamed else value


def labelled(tensor):
    """The same numbers, on the pretended GPU."""
    with no_dispatch():
        return tensor.as_subclass(OnGpu) if type(tensor) is torch.Tensor else tensor


@contextlib.contextmanager
def pretended_gpu():
    """While it lasts there is a GPU; gives the counts of operations on it."""
    driver = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: "pretended GPU",
        "get_rng_state": lambda device=None: torch.zeros(1),
        "set_rng_state": lambda state, device=None: None,
        "manual_seed": lambda seed: None,
        "synchronize": lambda device=None: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "max_memory_allocated": lambda device=None: 1 << 20,
    }
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    PretendedGpu.counts.clear()
    with pytest.MonkeyPatch.context() as patch, Indexed(), PretendedGpu():
        for name, function in driver.items():
            patch.setattr(torch.cuda, name, function)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            yield PretendedGpu.counts
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
