"""Segmentation as the papers have it, in torch, in torchvision's names where Hearth takes those. Pictures are NCHW."""

import torch
from torch import nn
from torch.nn import functional


class TwoConvs(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)))


def like(x, other):
    if x.shape[2:] == other.shape[2:]:
        return x
    return functional.interpolate(x, other.shape[2:], mode="bilinear", align_corners=False)


class UNet(nn.Module):
    """Ronneberger et al. 2015 with padding, batch norm and bilinear upsampling."""

    def __init__(self, width, num_classes):
        super().__init__()
        self.down0 = TwoConvs(3, width)
        for level in range(1, 5):
            setattr(self, f"down{level}", TwoConvs(width << level - 1, width << level))
        for step, level in enumerate(range(3, -1, -1)):
            setattr(self, f"up{step + 1}", TwoConvs((width << level) + (width << level + 1), width << level))
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, images):
        skips = [self.down0(images)]
        for level in range(1, 5):
            skips.append(getattr(self, f"down{level}")(functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for step in range(4):
            skip = skips.pop()
            x = getattr(self, f"up{step + 1}")(torch.cat([skip, like(x, skip)], 1))
        return {"out": self.head(x)}


class Block(nn.Module):
    def __init__(self, before, width, stride, dilation, bottleneck):
        super().__init__()
        after = 4 * width if bottleneck else width
        self.bottleneck = bottleneck
        if bottleneck:
            self.conv1 = nn.Conv2d(before, width, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False)
            self.conv3 = nn.Conv2d(width, after, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(after)
        else:
            self.conv1 = nn.Conv2d(before, width, 3, stride, dilation, dilation, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, 1, dilation, dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(functional.relu(y)))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """He et al. 2015; `dilated` of the last stages keep their size (torchvision's replace_stride_with_dilation)."""

    def __init__(self, blocks, bottleneck, width, dilated=0, small=False):
        super().__init__()
        self.small = small
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels, dilation = width, 1
        for stage, count in enumerate(blocks):
            before, dilates = dilation, stage + dilated >= len(blocks)
            dilation *= 2 if dilates else 1
            layers = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 and not dilates else 1
                layers.append(Block(channels, width << stage, stride, before if block == 0 else dilation, bottleneck))
                channels = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))

    def forward(self, images):
        stem = functional.relu(self.bn1(self.conv1(images)))
        x, stages = stem if self.small else functional.max_pool2d(stem, 3, 2, 1), []
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
            stages.append(x)
        return stem, stages


class UNetResNet18(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.encoder = ResNet((2, 2, 2, 2), False, width, small=True)
        channels = [width << 3, 2 * width << 1, 2 * width, width, width // 2, width // 4]
        skips = [width << 2, width << 1, width, width, 0]
        for step in range(5):
            setattr(self, f"up{step + 1}", TwoConvs(channels[step] + skips[step], channels[step + 1]))
        self.head = nn.Conv2d(channels[5], num_classes, 1)

    def forward(self, images):
        stem, stages = self.encoder(images)
        x = stages[3]
        for step, skip in enumerate([stages[2], stages[1], stages[0], stem]):
            x = getattr(self, f"up{step + 1}")(torch.cat([skip, like(x, skip)], 1))
        return {"out": self.head(self.up5(like(x, images)))}


class Aspp(nn.Module):
    def __init__(self, channels, dropout):
        super().__init__()

        def branch(kernel, dilation):
            padding = dilation if kernel == 3 else 0
            conv = nn.Conv2d(channels, 256, kernel, padding=padding, dilation=dilation, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(256), nn.ReLU())

        pooled = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()
        )
        self.convs = nn.ModuleList([branch(1, 1), branch(3, 12), branch(3, 24), branch(3, 36), pooled])
        project = nn.Conv2d(5 * 256, 256, 1, bias=False)
        self.project = nn.Sequential(project, nn.BatchNorm2d(256), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, x):
        return self.project(torch.cat([like(conv(x), x) for conv in self.convs], 1))


def fcn_head(channels, num_classes, dropout):
    conv = nn.Conv2d(channels, channels // 4, 3, padding=1, bias=False)
    norm = nn.BatchNorm2d(channels // 4)
    return nn.Sequential(conv, norm, nn.ReLU(), nn.Dropout(dropout), nn.Conv2d(channels // 4, num_classes, 1))


class Dilated(nn.Module):
    """FCN and DeepLabV3 on ResNet-50 of output stride 8, in torchvision's names. Two programs drop other units, so that only
    without dropout they compute the same."""

    def __init__(self, width, num_classes, deeplab, dropout=False):
        super().__init__()
        rate = 0.1 if dropout else 0.0
        self.backbone = ResNet((3, 4, 6, 3), True, width, dilated=2)
        self.aux_classifier = fcn_head(16 * width, num_classes, rate)
        if deeplab:
            head = nn.Conv2d(256, 256, 3, padding=1, bias=False)
            self.classifier = nn.Sequential(
                Aspp(32 * width, 5 * rate), head, nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, num_classes, 1)
            )
        else:
            self.classifier = fcn_head(32 * width, num_classes, rate)

    def forward(self, images):
        _, stages = self.backbone(images)
        return {
            "out": like(self.classifier(stages[3]), images),
            "aux": like(self.aux_classifier(stages[2]), images),
        }
