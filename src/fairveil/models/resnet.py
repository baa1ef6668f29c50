"""A residual network with group normalization, for `TorchModel`: ResNet16 of RaCO-DP (Yaghini et al. 2025, E.7)."""

from collections.abc import Sequence
from typing import Any

from fairveil._validation import check_number
from fairveil.models.torch_trials import load_torch

WIDTHS, BLOCKS = (64, 128, 256, 512), (2, 2, 2, 1)
"""ResNet18 without its last block: 15 convolutions and a last layer, 6.4 million parameters, as the paper says."""


def group_norm_resnet(
    n_classes: int = 2,
    n_channels: int = 3,
    *,
    widths: Sequence[int] = WIDTHS,
    blocks: Sequence[int] = BLOCKS,
    n_groups: int = 16,
) -> Any:
    """Return a new residual network whose normalizations read one record at a time (He et al. 2016, Wu and He 2018).

    Pass it to `TorchModel`: ``TorchModel(lambda: group_norm_resnet(2), input_shape=(3, 64, 64))``.

    Parameters
    ----------
    n_classes, n_channels : int
        Outputs, and channels of an image.
    widths, blocks : sequences of int
        Channels and number of blocks of each stage; every stage but the first halves the image.
    n_groups : int
        Groups of each normalization; each width is a multiple of it.
    """
    for name, sizes in (("widths", widths), ("blocks", blocks)):
        for size in sizes:
            check_number(name, size, whole=True)
    nn = load_torch().nn

    def convolution(n_in: int, n_out: int, size: int, stride: int) -> Any:
        return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)

    class Block(nn.Module):  # type: ignore[name-defined]
        """Two convolutions, added to their input."""

        def __init__(self, n_in: int, n_out: int, stride: int) -> None:
            super().__init__()
            self.path = nn.Sequential(
                convolution(n_in, n_out, 3, stride),
                nn.GroupNorm(n_groups, n_out),
                nn.ReLU(),
                convolution(n_out, n_out, 3, 1),
                nn.GroupNorm(n_groups, n_out),
            )
            self.shortcut = nn.Identity()
            if stride > 1 or n_in != n_out:
                self.shortcut = nn.Sequential(convolution(n_in, n_out, 1, stride), nn.GroupNorm(n_groups, n_out))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.path(x) + self.shortcut(x))

    layers = [convolution(n_channels, widths[0], 3, 1), nn.GroupNorm(n_groups, widths[0]), nn.ReLU()]
    n_in = widths[0]
    for stage, (width, n_blocks) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(n_blocks):
            layers.append(Block(n_in, width, stride=2 if stage and not block else 1))
            n_in = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))
