"""The networks: a multi-layer perceptron, a small CNN and a ResNet, all fed with raw pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import resnet
from .config import InputError, Options


class Classifier(nn.Module):
    """Pixels as stored (bytes, n x channels x height x width) to logits (n x classes).

    The normalisation is part of the network, so that an exported one needs no recipe beside it.
    """

    def __init__(self, body: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.body = body
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("deviation", torch.tensor(deviation))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.body((pixels.float() - self.mean) / self.deviation)


def build(
    options: Options, shape: torch.Size, classes: int, mean: float, deviation: float
) -> Classifier:
    """Return the network that the options describe, initialised from torch's global random state.

    Args:
        options: ``model``, ``layers``, ``width``, ``dropout``, ``data`` (for ``auto``),
            ``norm`` and ``channels_last``.
        shape: Channels, height and width of an image.
        classes: Number of classes.
        mean, deviation: Of the training set's pixels.

    Raises:
        InputError: The CNN has more layers than the image can be halved.
    """
    kind = options.model
    if kind == "auto":
        kind = {"digits": "mlp", "cifar10": "resnet"}.get(options.data, "cnn")
    body: nn.Sequential
    if kind == "resnet":
        body = resnet.build(
            shape[0], classes, options.layers, options.width, options.dropout, options.norm
        )
    else:
        build_body = _build_mlp if kind == "mlp" else _build_cnn
        body = build_body(shape, classes, options.layers, options.width, options.dropout)
    network = Classifier(body, mean, deviation)
    if options.channels_last:
        # The layout that convolutions are fastest in, here by a third on a CPU.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _build_mlp(
    shape: torch.Size, classes: int, layers: int, width: int, dropout: float
) -> nn.Sequential:
    width = width or 256
    size = shape.numel()
    body: list[nn.Module] = [nn.Flatten()]
    for _ in range(layers):
        # Normalising each layer makes far more learning rates work (on digits, 8 instead of 1 of 30
        # random settings reach 0.97), and unlike batch norm it doesn't mix the examples of a batch.
        body += [nn.Linear(size, width), nn.LayerNorm(width), nn.ReLU(), *_dropout(dropout)]
        size = width
    return nn.Sequential(*body, nn.Linear(size, classes))


def _build_cnn(
    shape: torch.Size, classes: int, layers: int, width: int, dropout: float
) -> nn.Sequential:
    """Return a CNN whose every layer halves the image and all but the first double the channels.

    The first halves by its stride instead of pooling: at full size it would take most of the time.
    """
    width = width or 16
    channels, height, breadth = shape
    if min(height, breadth) >> layers < 1:
        most = min(height, breadth).bit_length() - 1
        raise InputError(
            f"--layers {layers}: each layer of the cnn halves the {height} x {breadth} image. "
            f"Take at most {most}, or --model mlp."
        )
    body: list[nn.Module] = []
    for layer in range(layers):
        if layer == 0:
            body += [nn.Conv2d(channels, width, 5, stride=2, padding=2), nn.ReLU()]
            channels, height, breadth = width, (height + 1) // 2, (breadth + 1) // 2
        else:
            # Pooling before the activation gives the same values for a quarter of the work.
            body += [nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
            channels, height, breadth = 2 * channels, height // 2, breadth // 2
    size = channels * height * breadth
    return nn.Sequential(*body, nn.Flatten(), *_dropout(dropout), nn.Linear(size, classes))


def _dropout(probability: float) -> list[nn.Module]:
    return [nn.Dropout(probability)] if probability else []
