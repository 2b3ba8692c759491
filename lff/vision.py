"""torchvision, also where its compiled operators cannot be loaded."""

import sys
import warnings
from types import ModuleType

import torch

# torchvision registers shape rules for these operators at import, and fails if they are missing.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library = None


def import_torchvision() -> ModuleType:
    """Import torchvision, declaring the operators its import needs if they are missing.

    The registry's torchvision is compiled against CUDA libraries, so beside a CPU build of
    torch its operators cannot be loaded and the import fails. The models and data sets are
    pure Python and need none of them; declaring their names is enough. Where the compiled
    part loads (a GPU machine), nothing is declared.
    """
    global _library
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        try:
            import torchvision
        except RuntimeError as error:
            if "torchvision::" not in str(error) or _library is not None:
                raise
            for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            _library = torch.library.Library("torchvision", "DEF")
            for schema in _OPERATORS:
                _library.define(schema)
            import torchvision
    return torchvision
