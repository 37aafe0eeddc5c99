"""YOLOX as its paper (arXiv 2107.08430) has it, for parity with torch: the network under the names of Megvii's
checkpoints, the assignment of boxes to anchors (SimOTA), and the losses. Pictures are NCHW."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional

STRIDES = (8, 16, 32)
# name: depth, width, depthwise
SIZES = {
    "yolox_pico": (0.33, 0.25, False),
    "yolox_nano": (0.33, 0.25, True),
    "yolox_tiny": (0.33, 0.375, False),
    "yolox_s": (0.33, 0.5, False),
}


class Unit(nn.Module):
    def __init__(self, before, after, kernel=1, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return functional.silu(self.bn(self.conv(x)))


class Separable(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.dconv = Unit(before, before, 3, stride, groups=before)
        self.pconv = Unit(before, after)

    def forward(self, x):
        return self.pconv(self.dconv(x))


def spatial(before, after, stride, depthwise):
    return Separable(before, after, stride) if depthwise else Unit(before, after, 3, stride)


class Block(nn.Module):
    def __init__(self, channels, residual, depthwise):
        super().__init__()
        self.conv1 = Unit(channels, channels)
        self.conv2 = spatial(channels, channels, 1, depthwise)
        self.residual = residual

    def forward(self, x):
        made = self.conv2(self.conv1(x))
        return made + x if self.residual else made


class CrossStage(nn.Module):
    def __init__(self, before, after, count, residual, depthwise):
        super().__init__()
        half = after // 2
        self.conv1, self.conv2, self.conv3 = Unit(before, half), Unit(before, half), Unit(2 * half, after)
        self.m = nn.Sequential(*(Block(half, residual, depthwise) for _ in range(count)))

    def forward(self, x):
        return self.conv3(torch.cat([self.m(self.conv1(x)), self.conv2(x)], 1))


class PyramidPool(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = Unit(channels, channels // 2), Unit(2 * channels, channels)

    def forward(self, x):
        x = self.conv1(x)
        return self.conv2(torch.cat([x] + [functional.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13)], 1))


class Focus(nn.Module):
    def __init__(self, after):
        super().__init__()
        self.conv = Unit(12, after, 3)

    def forward(self, x):
        columns = (x[..., 0::2], x[..., 1::2])
        return self.conv(torch.cat([half[..., row::2, :] for half in columns for row in (0, 1)], 1))


class Darknet(nn.Module):
    def __init__(self, depth, width, depthwise):
        super().__init__()
        base, blocks = int(64 * width), max(round(3 * depth), 1)
        self.stem = Focus(base)

        def stage(channels, count, residual, *between):
            return nn.Sequential(
                spatial(channels, 2 * channels, 2, depthwise),
                *between,
                CrossStage(2 * channels, 2 * channels, count, residual, depthwise),
            )

        self.dark2 = stage(base, blocks, True)
        self.dark3 = stage(2 * base, 3 * blocks, True)
        self.dark4 = stage(4 * base, 3 * blocks, True)
        self.dark5 = stage(8 * base, blocks, False, PyramidPool(16 * base))

    def forward(self, x):
        fine = self.dark3(self.dark2(self.stem(x)))
        middle = self.dark4(fine)
        return fine, middle, self.dark5(middle)


class Neck(nn.Module):
    def __init__(self, depth, width, depthwise):
        super().__init__()
        fine, middle, coarse = (int(channels * width) for channels in (256, 512, 1024))
        blocks = round(3 * depth)
        self.backbone = Darknet(depth, width, depthwise)
        self.lateral_conv0 = Unit(coarse, middle)
        self.C3_p4 = CrossStage(2 * middle, middle, blocks, False, depthwise)
        self.reduce_conv1 = Unit(middle, fine)
        self.C3_p3 = CrossStage(2 * fine, fine, blocks, False, depthwise)
        self.bu_conv2 = spatial(fine, fine, 2, depthwise)
        self.C3_n3 = CrossStage(2 * fine, middle, blocks, False, depthwise)
        self.bu_conv1 = spatial(middle, middle, 2, depthwise)
        self.C3_n4 = CrossStage(2 * middle, coarse, blocks, False, depthwise)

    def forward(self, x):
        def doubled(of):
            return functional.interpolate(of, scale_factor=2, mode="nearest")

        fine, middle, coarse = self.backbone(x)
        lateral = self.lateral_conv0(coarse)
        reduced = self.reduce_conv1(self.C3_p4(torch.cat([doubled(lateral), middle], 1)))
        fine = self.C3_p3(torch.cat([doubled(reduced), fine], 1))
        middle = self.C3_n3(torch.cat([self.bu_conv2(fine), reduced], 1))
        return fine, middle, self.C3_n4(torch.cat([self.bu_conv1(middle), lateral], 1))


class Head(nn.Module):
    def __init__(self, num_classes, width, depthwise):
        super().__init__()
        own = int(256 * width)

        def branch():
            return nn.Sequential(spatial(own, own, 1, depthwise), spatial(own, own, 1, depthwise))

        def each(make):
            return nn.ModuleList(make(channels) for channels in (256, 512, 1024))

        self.stems = each(lambda channels: Unit(int(channels * width), own))
        self.cls_convs, self.reg_convs = each(lambda _: branch()), each(lambda _: branch())
        self.cls_preds = each(lambda _: nn.Conv2d(own, num_classes, 1))
        self.reg_preds = each(lambda _: nn.Conv2d(own, 4, 1))
        self.obj_preds = each(lambda _: nn.Conv2d(own, 1, 1))
        for conv in [*self.cls_preds, *self.obj_preds]:
            nn.init.constant_(conv.bias, -math.log((1 - 0.01) / 0.01))

    def forward(self, levels):
        made = []
        for i, level in enumerate(levels):
            x = self.stems[i](level)
            of_class, of_box = self.cls_convs[i](x), self.reg_convs[i](x)
            parts = (self.reg_preds[i](of_box), self.obj_preds[i](of_box), self.cls_preds[i](of_class))
            made.append(torch.cat(parts, 1).flatten(2).transpose(1, 2))
        return torch.cat(made, 1)


class Yolox(nn.Module):
    """From pictures to [N, anchors, 5 + classes]: offsets and logarithms of sizes in cells, logits of object and
    classes."""

    def __init__(self, size, num_classes):
        super().__init__()
        depth, width, depthwise = SIZES[size]
        self.backbone = Neck(depth, width, depthwise)
        self.head = Head(num_classes, width, depthwise)

    def forward(self, x):
        return self.head(self.backbone(x))


@functools.cache
def cells(height, width, dtype=torch.float64):
    """{x, y} of the cells of all anchors in cells, and their strides."""
    corners, strides = [], []
    for stride in STRIDES:
        y, x = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
        corners.append(torch.stack([x, y], -1).reshape(-1, 2))
        strides.append(torch.full((len(corners[-1]), 1), stride))
    return torch.cat(corners).to(dtype), torch.cat(strides).to(dtype)


def boxes_of(raw, height, width):
    """{center x, center y, width, height} in pixels."""
    corners, strides = cells(height, width, raw.dtype)
    return torch.cat([(raw[..., :2] + corners) * strides, raw[..., 2:4].exp() * strides], -1)


def iou_of(a, b):
    low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    common = (high - low).clamp(min=0).prod(-1)
    return common / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - common + 1e-16)


@torch.no_grad()
def simota(raw, targets, height, width):
    """Of one picture: which anchors learn, which target, and the IoU with it, computed in the type of `targets`."""
    dtype = targets.dtype
    corners, strides = cells(height, width, dtype)
    centers = ((corners + 0.5) * strides)[None]
    boxes = targets[:, None, 1:]
    distance = (centers - boxes[..., :2]).abs()
    inside = (distance < boxes[..., 2:] / 2).all(-1)
    near = (distance < 2.5 * strides[None]).all(-1)
    candidates = (inside | near).any(0).nonzero()[:, 0]
    raw = raw[candidates].to(dtype)
    inside, near = inside[:, candidates], near[:, candidates]
    iou = iou_of(boxes_of_some(raw, corners[candidates], strides[candidates])[None], boxes)
    score = (raw[:, 5:].sigmoid() * raw[:, 4:5].sigmoid()).sqrt()
    # Binary cross entropy with one label of all: that of none, but for the label's own term.
    yes, no = score.log().clamp(min=-100), (-score).log1p().clamp(min=-100)
    labels = targets[:, 0].long()
    of_class = (no - yes)[:, labels].T - no.sum(-1)
    cost = of_class - 3 * (iou + 1e-8).log() + 1e5 * ~(inside & near)
    chosen = torch.zeros_like(cost, dtype=torch.bool)
    counts = iou.topk(min(10, len(candidates)), 1).values.sum(1).int().tolist()
    for target in range(len(targets)):
        chosen[target, cost[target].topk(max(1, counts[target]), largest=False).indices] = True
    several = chosen.sum(0) > 1
    cheapest = functional.one_hot(cost.argmin(0), len(targets)).T.bool()
    chosen = torch.where(several[None], cheapest, chosen)
    learns = chosen.any(0)
    target = chosen[:, learns].int().argmax(0)
    return candidates[learns], target, iou[target, learns.nonzero()[:, 0]]


def boxes_of_some(raw, corners, strides):
    return torch.cat([(raw[..., :2] + corners) * strides, raw[..., 2:4].exp() * strides], -1)


def loss_of(raw, targets, l1_weight, height, width, assigning=torch.float64):
    """The mean loss of a batch: what is summed over anchors is divided by the number of those that learn. `assigning` is
    the type in which boxes are assigned."""
    corners, strides = cells(height, width, raw.dtype)
    num_anchors = raw.shape[1]
    learning, wanted, ious = [], [], []
    for picture in range(len(raw)):
        own = targets[picture][targets[picture, :, 0] >= 0].to(assigning)
        if len(own):
            anchors, which, iou = simota(raw[picture], own, height, width)
            learning.append(picture * num_anchors + anchors)
            wanted.append(own[which].to(raw.dtype))
            ious.append(iou.to(raw.dtype))
    raw = raw.flatten(0, 1)
    objects = torch.zeros(len(raw), dtype=raw.dtype)
    total = 0
    if learning:
        learning, wanted, iou = torch.cat(learning), torch.cat(wanted), torch.cat(ious)
        objects[learning] = 1
        made, cell, stride = raw[learning], corners[learning % num_anchors], strides[learning % num_anchors]
        labels = functional.one_hot(wanted[:, 0].long(), raw.shape[1] - 5) * iou[:, None]
        total = 5 * (1 - iou_of(boxes_of_some(made, cell, stride), wanted[:, 1:]) ** 2).sum()
        total = total + functional.binary_cross_entropy_with_logits(made[:, 5:], labels, reduction="sum")
        offset = torch.cat([wanted[:, 1:3] / stride - cell, (wanted[:, 3:] / stride + 1e-8).log()], -1)
        total = total + (l1_weight[learning // num_anchors, None] * (made[:, :4] - offset).abs()).sum()
    total = total + functional.binary_cross_entropy_with_logits(raw[:, 4], objects, reduction="sum")
    return total / max(len(learning), 1)
