"""MobileNetV3 (arXiv 1905.02244) and EfficientNet-B0 (arXiv 1905.11946) in torch, in torchvision's names. Pictures are NCHW."""

import collections

from torch import nn

SMALL = """3 16 16 SE relu 2, 3 72 24 - relu 2, 3 88 24 - relu 1, 5 96 40 SE swish 2, 5 240 40 SE swish 1, 5 240 40 SE swish 1,
5 120 48 SE swish 1, 5 144 48 SE swish 1, 5 288 96 SE swish 2, 5 576 96 SE swish 1, 5 576 96 SE swish 1"""
LARGE = """3 16 16 - relu 1, 3 64 24 - relu 2, 3 72 24 - relu 1, 5 72 40 SE relu 2, 5 120 40 SE relu 1, 5 120 40 SE relu 1,
3 240 80 - swish 2, 3 200 80 - swish 1, 3 184 80 - swish 1, 3 184 80 - swish 1, 3 480 112 SE swish 1, 3 672 112 SE swish 1,
5 672 160 SE swish 2, 5 960 160 SE swish 1, 5 960 160 SE swish 1"""
# Of table 1: how much a block widens, kernel, stride, channels, blocks.
B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
      (6, 3, 1, 320, 1))
ACTIVATIONS = {"relu": nn.ReLU, "swish": nn.Hardswish, "silu": nn.SiLU}


def divisible(channels):
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Strides:
    """Below 64 pixels the first two halvings are left out."""

    def __init__(self, side):
        self.left_out = 2 if side < 64 else 0

    def __call__(self, stride):
        if stride == 2 and self.left_out > 0:
            self.left_out -= 1
            return 1
        return stride


class Squeeze(nn.Module):
    def __init__(self, channels, squeezed, activation, gate):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation, gate

    def forward(self, x):
        return x * self.gate(self.fc2(self.activation(self.fc1(x.mean((2, 3), keepdim=True)))))


class Block(nn.Module):
    def __init__(self, unit, before, wide, after, kernel, stride, squeeze, adds):
        super().__init__()
        self.adds = adds
        layers = [unit(before, wide, 1)] if wide != before else []
        layers.append(unit(wide, wide, kernel, stride, wide))
        layers += [squeeze] if squeeze else []
        self.block = nn.Sequential(*layers, unit(wide, after, 1, active=False))

    def forward(self, x):
        return self.block(x) + x if self.adds else self.block(x)


def unit_of(activation, **norm):
    def unit(before, after, kernel, stride=1, groups=1, active=True):
        conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after, **norm), *([ACTIVATIONS[activation]()] if active else []))

    return unit


class Classifier(nn.Module):
    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = features, classifier

    def forward(self, images):
        return self.classifier(self.features(images).mean((2, 3)))


def mobilenet(rows, hidden, width, side, classes):
    scale, norm, strides = width / 16, {"eps": 1e-3, "momentum": 0.01}, Strides(side)
    before = divisible(width)
    layers = [unit_of("swish", **norm)(3, before, 3, strides(2))]
    for row in rows.split(","):
        kernel, wide, after, squeezes, activation, stride = row.split()
        wide, after = divisible(int(wide) * scale), divisible(int(after) * scale)
        squeeze = Squeeze(wide, divisible(wide // 4), nn.ReLU(), nn.Hardsigmoid()) if squeezes == "SE" else None
        adds = stride == "1" and before == after
        unit = unit_of(activation, **norm)
        layers.append(Block(unit, before, wide, after, int(kernel), strides(int(stride)), squeeze, adds))
        before = after
    layers.append(unit_of("swish", **norm)(before, 6 * before, 1))
    hidden = divisible(hidden * scale)
    # Two programs drop other units, so that only without dropout they compute the same.
    head = nn.Sequential(nn.Linear(6 * before, hidden), nn.Hardswish(), nn.Identity(), nn.Linear(hidden, classes))
    return Classifier(nn.Sequential(*layers), head)


def efficientnet(width, side, classes):
    scale, strides, unit = width / 32, Strides(side), unit_of("silu")
    before = divisible(width)
    layers = [unit(3, before, 3, strides(2))]
    for widening, kernel, stride, after, count in B0:
        after = divisible(after * scale)
        blocks = []
        for block in range(count):
            wide, own = divisible(before * widening), stride if block == 0 else 1
            squeeze = Squeeze(wide, max(1, before // 4), nn.SiLU(), nn.Sigmoid())
            adds = own == 1 and before == after
            blocks.append(Block(unit, before, wide, after, kernel, strides(own), squeeze, adds))
            before = after
        layers.append(nn.Sequential(*blocks))
    layers.append(unit(before, 4 * before, 1))
    head = nn.Sequential(collections.OrderedDict({"1": nn.Linear(4 * before, classes)}))
    return Classifier(nn.Sequential(*layers), head)


# The width of a stem, the side of pictures, classes: a model.
MODELS = {
    "mobilenet_v3_small": lambda *shape: mobilenet(SMALL, 1024, *shape),
    "mobilenet_v3_large": lambda *shape: mobilenet(LARGE, 1280, *shape),
    "efficientnet_b0": efficientnet,
}
