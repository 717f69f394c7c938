"""Functions of the demo: models that are loaded once and asked often.

Every answer says how much of a core it took.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn


def load_images() -> nn.Module:
    """Return a network for images."""
    torch.set_num_threads(1)
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()
    return _ready(nn.Sequential(*layers, nn.LazyLinear(10)), torch.randn(1, 3, 32, 32))


def load_texts() -> nn.Module:
    """Return a network for texts."""
    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return _ready(nn.TransformerEncoder(layer, 2), torch.randn(1, 32, 128))


def classify(model: nn.Module, asked: dict[str, Any]) -> dict[str, Any]:
    """Say what is on an image."""
    return _answered(model, torch.randn(1, 3, 32, 32), asked)


def embed(model: nn.Module, asked: dict[str, Any]) -> dict[str, Any]:
    """Turn a text into numbers."""
    return _answered(model, torch.randn(1, 32, 128), asked)


def _ready(model: nn.Module, example: Tensor) -> nn.Module:
    model.eval()
    with torch.inference_mode():
        model(example)
    return model


def _answered(model: nn.Module, inputs: Tensor, asked: dict[str, Any]) -> dict[str, Any]:
    begin_s = time.process_time()
    with torch.inference_mode():
        answer = model(inputs).mean().item()
    return {"of": asked["number"], "answer": answer, "cpu_s": time.process_time() - begin_s}
