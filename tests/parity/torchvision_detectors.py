"""RetinaNet and FCOS against torch from the same weights on the same pictures:
python tests/parity/torchvision_detectors.py [CASE...].

The reference models, targets and losses are written here from their papers in torchvision's names. Per case: what
`hearth predict` finds, the first step's gradients within 1e-5 of float64 (relative to each tensor's largest element) or
twice as far as torch's float32 is, and the losses of 20 steps within 1e-4. Where torchvision can be imported, its own
models are loaded with the reference's weights, names and all, and Hearth's loss and detections are compared with theirs.
Needs ./hearth (tools/build).
"""

import argparse
import copy
import json
import math
import re
import sys

import numpy
import torch
from parity import (
    dumped_gap,
    gradient_gap,
    hearth,
    hearth_train,
    judge_gradients,
    logged_losses,
    relative_gap,
    run_checks,
    within,
    write_sgd_recipe,
)
from PIL import Image
from safetensors.torch import save_file
from segment_model import ResNet
from torch import nn
from torch.nn import functional

STEPS = 20
BATCH = 4
CLASSES = 3
HEIGHT, WIDTH = 96, 160
LOSS_TOLERANCE = 1e-4
RATE = 0.005
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Fpn(nn.Module):
    """Lin et al. 2016, with P6 and P7 made from P5."""

    def __init__(self, width):
        super().__init__()
        channels = 4 * width
        sizes = [8 * width, 16 * width, 32 * width]
        self.inner_blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(size, channels, 1)) for size in sizes])
        self.layer_blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1)) for _ in sizes])
        self.extra_blocks = nn.ModuleDict({key: nn.Conv2d(channels, channels, 3, 2, 1) for key in ("p6", "p7")})

    def forward(self, stages):
        above, made = None, []
        for inner, layer, stage in list(zip(self.inner_blocks, self.layer_blocks, stages, strict=True))[::-1]:
            x = inner(stage)
            if above is not None:
                x = x + above.repeat_interleave(2, 2).repeat_interleave(2, 3)
            made.insert(0, layer(x))
            above = x
        p6 = self.extra_blocks["p6"](made[-1])
        return [*made, p6, self.extra_blocks["p7"](functional.relu(p6))]


class Backbone(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = ResNet((3, 4, 6, 3), True, width)
        self.fpn = Fpn(width)

    def forward(self, images):
        return self.fpn(self.body(images)[1][1:])


def joined(levels, values):
    """[N, K * values, H, W] of each level -> [N, anchors, values]."""
    flat = [x.unflatten(1, (-1, values)).permute(0, 3, 4, 1, 2).flatten(1, 3) for x in levels]
    return torch.cat(flat, 1)


def grids(height, width):
    """Of each level the x and y of its cells in pixels, [cells] each; strides are rounded down."""
    for level in range(3, 8):
        rows, columns = -(-height // (1 << level)), -(-width // (1 << level))
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        yield level, (x * (width // columns)).flatten().double(), (y * (height // rows)).flatten().double()


def iou_of(a, b):
    """[A, 4] and [B, 4], corners -> [A, B]."""
    low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    both = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (a, b)]
    return both / (areas[0][:, None] + areas[1][None] - both)


def focal(logits, wanted):
    """Lin et al. 2017, alpha 0.25 and gamma 2."""
    probability = torch.sigmoid(logits)
    right = torch.where(wanted, probability, 1 - probability)
    alpha = torch.where(wanted, 0.25, 0.75).to(logits.dtype)
    plain = functional.binary_cross_entropy_with_logits(logits, wanted.to(logits.dtype), reduction="none")
    return alpha * (1 - right) ** 2 * plain


class Retinanet(nn.Module):
    """Lin et al. 2017."""

    ANCHORS = 9

    def __init__(self, width, classes):
        super().__init__()
        self.backbone = Backbone(width)

        def head(last, values):
            convs = [nn.Sequential(nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU()) for _ in range(4)]
            predictor = nn.Conv2d(4 * width, self.ANCHORS * values, 3, padding=1)
            return nn.ModuleDict({"conv": nn.Sequential(*convs), last: predictor})

        self.head = nn.ModuleDict(
            {"classification_head": head("cls_logits", classes), "regression_head": head("bbox_reg", 4)}
        )
        self.classes = classes

    def forward(self, images):
        of_class, of_box = self.head["classification_head"], self.head["regression_head"]
        levels = self.backbone(images)
        return {
            "logits": joined([of_class["cls_logits"](of_class["conv"](x)) for x in levels], self.classes),
            "boxes": joined([of_box["bbox_reg"](of_box["conv"](x)) for x in levels], 4),
        }

    @staticmethod
    def anchors(height, width):
        made = []
        for level, x, y in grids(height, width):
            halves = []
            for ratio in (0.5, 1.0, 2.0):
                for octave in range(3):
                    side = int((4 << level) * 2 ** (octave / 3))
                    half = torch.tensor([side / math.sqrt(ratio), side * math.sqrt(ratio)]).double() / 2
                    halves.append(half.round())
            center = torch.stack([x, y], 1)[:, None]
            half = torch.stack(halves)[None]
            made.append(torch.cat([center - half, center + half], 2).flatten(0, 1))
        return torch.cat(made)

    def loss(self, made, boxes, labels):
        """The mean over pictures."""
        anchors = self.anchors(HEIGHT, WIDTH)
        total = 0.0
        for logits, offsets, own, own_labels in zip(made["logits"], made["boxes"], boxes, labels, strict=True):
            if len(own) == 0:
                total = total + focal(logits, torch.zeros_like(logits) > 0).sum()
                continue
            overlaps = iou_of(anchors, own)
            most, match = overlaps.max(1)
            learns = (most >= 0.5) | (overlaps == overlaps.max(0).values).any(1)
            decided = learns | (most < 0.4)
            wanted = torch.zeros_like(logits, dtype=torch.bool)
            wanted[learns, own_labels[match[learns]]] = True
            a, b = anchors[learns], own[match[learns]]
            size = a[:, 2:] - a[:, :2]
            shift = (b[:, :2] + b[:, 2:] - a[:, :2] - a[:, 2:]) / 2 / size
            target = torch.cat([shift, torch.log((b[:, 2:] - b[:, :2]) / size)], 1).to(logits.dtype)
            sums = focal(logits, wanted)[decided].sum() + (offsets[learns] - target).abs().sum()
            total = total + sums / max(1, learns.sum().item())
        return total / len(boxes)

    def decode(self, made):
        """Scores [N, A, C] and corners [N, A, 4]."""
        anchors = self.anchors(HEIGHT, WIDTH)
        size, center = anchors[:, 2:] - anchors[:, :2], (anchors[:, :2] + anchors[:, 2:]) / 2
        center = center + made["boxes"][..., :2] * size
        half = torch.exp(made["boxes"][..., 2:].clamp(max=math.log(1000 / 16))) * size / 2
        return torch.sigmoid(made["logits"]), torch.cat([center - half, center + half], -1)


class Fcos(nn.Module):
    """Tian et al. 2019."""

    def __init__(self, width, classes):
        super().__init__()
        self.backbone = Backbone(width)
        channels = 4 * width

        def tower():
            layers = []
            for _ in range(4):
                layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(32, channels), nn.ReLU()]
            return nn.Sequential(*layers)

        def last(values):
            return nn.Conv2d(channels, values, 3, padding=1)

        self.head = nn.ModuleDict(
            {
                "classification_head": nn.ModuleDict({"conv": tower(), "cls_logits": last(classes)}),
                "regression_head": nn.ModuleDict({"conv": tower(), "bbox_reg": last(4), "bbox_ctrness": last(1)}),
            }
        )
        self.classes = classes

    def forward(self, images):
        of_class, of_box = self.head["classification_head"], self.head["regression_head"]
        levels = self.backbone(images)
        boxes = [of_box["conv"](x) for x in levels]
        return {
            "logits": joined([of_class["cls_logits"](of_class["conv"](x)) for x in levels], self.classes),
            "edges": joined([functional.relu(of_box["bbox_reg"](x)) for x in boxes], 4),
            "centerness": joined([of_box["bbox_ctrness"](x) for x in boxes], 1)[..., 0],
        }

    @staticmethod
    def cells(height, width):
        """[A, 3]: x, y and the side."""
        made = [torch.stack([x, y, torch.full_like(x, 1 << level)], 1) for level, x, y in grids(height, width)]
        return torch.cat(made)

    def loss(self, made, boxes, labels):
        cells = self.cells(HEIGHT, WIDTH)
        side = cells[:, 2]
        nearest, farthest = 4 * side, 8 * side
        nearest[side == 8], farthest[side == 128] = 0, math.inf
        total, learning = 0.0, 0
        for number, (own, own_labels) in enumerate(zip(boxes, labels, strict=True)):
            if len(own) == 0:
                total = total + focal(made["logits"][number], torch.zeros_like(made["logits"][number]) > 0).sum()
                continue
            point = cells[:, None, :2]
            edges = torch.cat([point - own[:, :2], own[:, 2:] - point], 2)
            away = (point - (own[:, :2] + own[:, 2:]) / 2).abs().max(2).values
            fits = (away < 1.5 * side[:, None]) & (edges.min(2).values > 0)
            fits &= (edges.max(2).values > nearest[:, None]) & (edges.max(2).values < farthest[:, None])
            area = torch.where(fits, (own[:, 2:] - own[:, :2]).prod(1), math.inf)
            smallest, match = area.min(1)
            learns = smallest < math.inf
            wanted = torch.zeros_like(made["logits"][number], dtype=torch.bool)
            wanted[learns, own_labels[match[learns]]] = True
            of_box = edges[torch.arange(len(cells)), match][learns]
            ratio = torch.stack([of_box[:, [0, 2]], of_box[:, [1, 3]]], 1)
            centerness = (ratio.min(2).values / ratio.max(2).values).prod(1).sqrt()
            found = made["edges"][number][learns] * side[learns][:, None].to(made["edges"].dtype)
            total = total + focal(made["logits"][number], wanted).sum()
            total = total + (1 - self.giou(found, of_box.to(found.dtype))).sum()
            total = total + functional.binary_cross_entropy_with_logits(
                made["centerness"][number][learns], centerness.to(found.dtype), reduction="sum"
            )
            learning += learns.sum().item()
        return total / max(1, learning)

    @staticmethod
    def giou(a, b):
        """Of boxes around a common point, by the distances of their edges."""

        def area(edges):
            return (edges[:, :2] + edges[:, 2:]).prod(1)

        both = area(torch.minimum(a, b))
        either, around = area(a) + area(b) - both, area(torch.maximum(a, b))
        return both / either - (around - either) / around

    def decode(self, made):
        cells = self.cells(HEIGHT, WIDTH)
        edges = made["edges"] * cells[:, 2:]
        scores = torch.sigmoid(made["logits"]) * torch.sigmoid(made["centerness"])[..., None]
        return scores.sqrt(), torch.cat([cells[:, :2] - edges[..., :2], cells[:, :2] + edges[..., 2:]], -1)


# Case: the model in Hearth, its width, its reference, whether batch norms are frozen.
CASES = {
    "retinanet": ("retinanet_resnet50_fpn", 8, Retinanet, False),
    "retinanet frozen": ("retinanet_resnet50_fpn", 8, Retinanet, True),
    "fcos": ("fcos_resnet50_fpn", 16, Fcos, False),
    "fcos frozen": ("fcos_resnet50_fpn", 16, Fcos, True),
}


def pictures(count, seed):
    """Bytes of pictures, and boxes with labels; some pictures have none."""
    random = numpy.random.default_rng(seed)
    images = random.integers(0, 256, (count, HEIGHT, WIDTH, 3), dtype=numpy.uint8)
    boxes, labels = [], []
    for number in range(count):
        size = random.integers(8, 90, (0 if number % 7 == 2 else 1 + number % 4, 2))
        low = random.integers(0, numpy.array([WIDTH, HEIGHT]) - size)
        boxes.append(torch.from_numpy(numpy.concatenate([low, low + size], 1)).double())
        labels.append(torch.from_numpy(random.integers(0, CLASSES, len(size))))
    # The first picture has one of each class, so that all are named.
    boxes[0] = torch.tensor([[3, 5, 40, 60], [50, 11, 120, 80], [130, 60, 155, 90]]).double()
    labels[0] = torch.arange(CLASSES)
    return images, boxes, labels


def tensors(images):
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255
    return (scaled - torch.tensor(MEAN).double()[:, None, None]) / torch.tensor(STD).double()[:, None, None]


def freeze(model):
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.eval()
            norm.weight.requires_grad_(requires_grad=False)
            norm.bias.requires_grad_(requires_grad=False)


def keep_statistics(model):
    """Those of a batch of pictures become the running ones."""
    norms = [norm for norm in model.modules() if isinstance(norm, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model(tensors(pictures(BATCH, 4)[0]).float())
    for norm in norms:
        norm.momentum = 0.1


def calm(model, make, width, class_bias):
    """Relus keep away from their kink: a mask that rounding flips changes a gradient by far more than rounding does, in
    torch as well. Half of the channels are off, but where a shortcut is added."""
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
                layer.weight.uniform_(0.1, 0.2)
                layer.bias.fill_(1.5)
                if not re.search(r"bn3|downsample", name):
                    layer.bias[::2] = -1.5
            elif re.search(r"head\.conv\.\d\.0|extra_blocks", name) and isinstance(layer, nn.Conv2d):
                layer.weight.normal_(std=0.1 / math.sqrt(9 * 4 * width))
                layer.bias.fill_(1)
                layer.bias[::2] = -1
            elif isinstance(layer, nn.Conv2d) and re.search(r"head|fpn", name):
                layer.reset_parameters()
            if name.endswith("cls_logits"):
                layer.bias.fill_(class_bias)
            elif name.endswith("bbox_reg") and make is Fcos:
                layer.bias.fill_(2)
    keep_statistics(model.backbone)


def make_model(case):
    _, width, make, frozen = CASES[case]
    torch.manual_seed(3)
    model = make(width, CLASSES)
    calm(model, make, width, -2)
    if frozen:
        freeze(model)
    return model


def state_of(model):
    return {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}


def gradients(model, inputs, boxes, labels, dtype):
    model = copy.deepcopy(model).to(dtype)
    model.loss(model(inputs.to(dtype)), boxes, labels).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}


def put(folder, name, images, boxes, labels):
    """A set as COCO JSON."""
    (folder / name).mkdir(parents=True)
    annotations = []
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / name / f"{number:03}.png")
        for box, label in zip(boxes[number].tolist(), labels[number].tolist(), strict=True):
            size = [box[2] - box[0], box[3] - box[1]]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 1,
                    "category_id": label + 1,
                    "bbox": [*box[:2], *size],
                    "area": size[0] * size[1],
                    "iscrowd": 0,
                }
            )
    made = {
        "images": [
            {"id": number + 1, "file_name": f"{number:03}.png", "width": image.shape[1], "height": image.shape[0]}
            for number, image in enumerate(images)
        ],
        "annotations": annotations,
        "categories": [{"id": label + 1, "name": f"class{label}"} for label in range(CLASSES)],
    }
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / f"instances_{name}.json").write_text(json.dumps(made))


def write_recipe(folder, name, width, frozen, state, taught, steps, rate):
    save_file(state, folder / "init.safetensors")
    put(folder, "train", *taught)
    put(folder, "val", *pictures(3, 5))
    keys = {
        "model": {"name": name, "num_classes": CLASSES, "width": width, "frozen_norm": frozen},
        "data": {"kind": "coco", "path": str(folder), "image_size": [WIDTH, HEIGHT], "shuffle": False},
        "detect": {"mosaic": 0, "hsv": False, "score": 0.0, "nms": 1.0, "max_detections": 10000},
    }
    return write_sgd_recipe(folder, rate, steps, BATCH, keys)


def check_gradients(case, folder):
    name, width, _, frozen = CASES[case]
    model = make_model(case)
    images, boxes, labels = pictures(BATCH, 1)
    exact = gradients(model, tensors(images), boxes, labels, torch.float64)
    own = gradient_gap(gradients(model, tensors(images), boxes, labels, torch.float32), exact)
    recipe = write_recipe(folder, name, width, frozen, state_of(model), (images, boxes, labels), 1, 1e-3)
    return judge_gradients(case, [dumped_gap(recipe, folder, exact)], [own])


def check_losses(case, folder):
    name, width, _, frozen = CASES[case]
    model = make_model(case)
    images, boxes, labels = pictures(BATCH * STEPS, 77)
    exact, inputs, losses = copy.deepcopy(model).double(), tensors(images), []
    optimizer = torch.optim.SGD([p for p in exact.parameters() if p.requires_grad], lr=RATE, momentum=0.9)
    for at in range(0, len(images), BATCH):
        optimizer.zero_grad()
        loss = exact.loss(exact(inputs[at : at + BATCH]), boxes[at : at + BATCH], labels[at : at + BATCH])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    recipe = write_recipe(folder, name, width, frozen, state_of(model), (images, boxes, labels), STEPS, RATE)
    gap = relative_gap(logged_losses(hearth_train(folder / "run", [recipe])), losses)
    text = f"{case}: losses within {gap:.1e} of float64 over {STEPS} steps, {losses[0]:.3f} to {losses[-1]:.3f}"
    return within(LOSS_TOLERANCE, gap, text)


def detections_gap(found, scores, boxes, text):
    """Each of what torch finds, scores [K, C] and boxes [K, 4], is found at its place; the largest gap."""
    if len(found) != scores.numel():
        raise AssertionError(f"{text}: expected {scores.numel()} detections, got {len(found)}")
    worst = 0.0
    for label in range(scores.shape[1]):
        of_label = [one for one in found if one["category_id"] == label + 1]
        own = torch.tensor([[one["score"] * 100, *one["bbox"]] for one in of_label]).double()
        own[:, 3:] += own[:, 1:3]
        wanted = torch.cat([scores[:, label : label + 1] * 100, boxes], 1)
        distance = (wanted[:, None] - own[None]).abs().max(2).values
        nearest = distance.min(1)
        if len(nearest.indices.unique()) != len(wanted) and nearest.values.max() > 1e-3:
            raise AssertionError(f"{text}: detections lie elsewhere")
        worst = max(worst, nearest.values.max().item(), distance.min(0).values.max().item())
    return worst


def clipped(corners):
    return torch.minimum(corners.clamp(min=0), torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT]).double())


def rounding_of(reference, images, least):
    """How far torch's float32 is off where scores reach `least`, in pixels and percents."""
    decoded = []
    for dtype in (torch.float64, torch.float32):
        model = copy.deepcopy(reference).to(dtype).eval()
        with torch.no_grad():
            scores, corners = model.decode(model(tensors(images).to(dtype)))
        decoded.append((scores * 100, clipped(corners)))
    (scores, corners), (own_scores, own_corners) = decoded
    kept = scores >= least * 100
    of_boxes = (corners - own_corners)[kept.any(2)].abs().max()
    return max(of_boxes.item(), (scores - own_scores)[kept].abs().max().item())


def check_prediction(case, folder):
    """What is said of pictures, overlaps and all: of a picture of fewer than a thousand anchors of one class each."""
    name, width, make, frozen = CASES[case]
    model = make_model(case).eval()
    images, boxes, labels = pictures(BATCH, 11)
    recipe = write_recipe(folder, name, width, frozen, state_of(model), (images, boxes, labels), 1, 0.0)
    run = hearth_train(folder / "run", [recipe, "optimizer.momentum=0"])
    save_file(state_of(model), run / "best.safetensors")
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        scores, corners = exact.decode(exact(tensors(images)))
    corners = clipped(corners)
    least = scores.flatten().sort(descending=True).values[: 200 * BATCH]
    # In the widest gap, so that rounding decides nothing.
    at = (least[100:-1] - least[101:]).argmax().item() + 100
    least = (least[at] + least[at + 1]).item() / 2
    hearth("predict", run, folder / "train", "--out", folder / "predicted", f"detect.score={least}")
    found = json.loads((folder / "predicted" / "predictions.json").read_text())
    worst, count = 0.0, 0
    for number in range(BATCH):
        mine = [one for one in found if one["image_id"] == number + 1]
        kept = (scores[number] >= least).nonzero()
        if len(mine) != len(kept):
            raise AssertionError(f"{case}: expected {len(kept)} detections, got {len(mine)}")
        for label in range(CLASSES):
            wanted = kept[kept[:, 1] == label, 0]
            if len(wanted):
                own = [dict(one, category_id=1) for one in mine if one["category_id"] == label + 1]
                of_label = scores[number][wanted, label : label + 1]
                worst = max(worst, detections_gap(own, of_label, corners[number][wanted], case))
        count += len(kept)
    return within(1e-3, worst, f"{case}: {count} detections within {worst:.1e} of a pixel or a percent")


def import_torchvision():
    """torchvision, or None; if its own library does not load beside this torch, with NMS in Python."""
    try:
        import torchvision
    except ImportError:
        return None
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

        def nms(boxes, scores, threshold):
            kept = []
            for index in scores.argsort(descending=True, stable=True).tolist():
                # Boxes without area overlap nothing, which 0 / 0 is no more than.
                if not kept or not (iou_of(boxes[index : index + 1], boxes[kept]) > threshold).any():
                    kept.append(index)
            return torch.tensor(kept, dtype=torch.int64)

        library.impl("nms", nms, "CPU")
        import torchvision

        torchvision.extension._has_ops = lambda: True  # noqa: SLF001
        torchvision.kept_library = library
    return torchvision


def torchvision_model(torchvision, case):
    """With statistics of pictures, and some scores that reach its thresholds."""
    torch.manual_seed(5)
    name, _, make, _ = CASES[case]
    model = getattr(torchvision.models.detection, name)(
        weights=None, weights_backbone=None, num_classes=CLASSES, min_size=HEIGHT, max_size=WIDTH
    )
    with torch.no_grad():
        for head in model.head.children():
            for layer in head.modules():
                if isinstance(layer, nn.Conv2d):
                    layer.weight.normal_(std=1 / math.sqrt(layer.weight[0].numel()))
        model.head.classification_head.cls_logits.bias.fill_(-2.5 if make is Fcos else -4)
        # So that rounding moves no edge far.
        model.head.regression_head.bbox_reg.weight /= 30
        model.head.regression_head.bbox_reg.bias.fill_(1 if make is Fcos else 0)
    keep_statistics(model.backbone)
    return model


def check_torchvision(case, folder):
    """Names, loss and detections of torchvision's own model, whose detections are those of its defaults."""
    torchvision = import_torchvision()
    if torchvision is None:
        return f"{case}: SKIPPED the comparison with torchvision, which this Python does not have"
    name, _, make, _ = CASES[case]
    model = torchvision_model(torchvision, case)
    state = state_of(model)
    reference = make(64, CLASSES)
    reference.load_state_dict(model.state_dict())
    images, boxes, labels = pictures(BATCH, 23)
    own = rounding_of(reference, images, model.score_thresh)
    scaled = [torch.from_numpy(image).permute(2, 0, 1).float() / 255 for image in images]
    targets = [{"boxes": b.float().reshape(-1, 4), "labels": l} for b, l in zip(boxes, labels, strict=True)]
    loss = sum(copy.deepcopy(model).train()(scaled, targets).values()).item()
    recipe = write_recipe(folder, name, 64, False, state, (images, boxes, labels), 1, 0.0)
    run = hearth_train(folder / "run", [recipe, "optimizer.momentum=0"])
    gap = relative_gap(logged_losses(run), [loss])
    within(1e-4, gap, f"{case}: loss within {gap:.1e} of torchvision's float32")
    save_file(state, run / "best.safetensors")
    settings = [f"detect.score={model.score_thresh}", f"detect.nms={model.nms_thresh}"]
    settings.append(f"detect.max_detections={model.detections_per_img}")
    hearth("predict", run, folder / "train", "--out", folder / "predicted", *settings)
    predicted = json.loads((folder / "predicted" / "predictions.json").read_text())
    with torch.no_grad():
        wanted = model.double().eval()([image.double() for image in scaled])
    worst, count = 0.0, 0
    for number, one in enumerate(wanted):
        mine = [found for found in predicted if found["image_id"] == number + 1]
        if len(mine) != len(one["scores"]):
            raise AssertionError(f"{case}: expected {len(one['scores'])} detections, got {len(mine)}")
        for label in range(CLASSES):
            of_label = one["labels"] == label
            found = [dict(box, category_id=1) for box in mine if box["category_id"] == label + 1]
            if found or of_label.any():
                scores, corners = one["scores"][of_label].double()[:, None], one["boxes"][of_label].double()
                worst = max(worst, detections_gap(found, scores, corners, case))
        count += len(mine)
    text = f"{count} detections within {worst:.1e} of a pixel or a percent (torch {own:.1e})"
    text = f"{case}: torchvision {torchvision.__version__}: loss within {gap:.1e}, {text}"
    return within(1e-2, worst, text)


def checks(names):
    for name in names:
        yield f"{name} gradients", lambda folder, name=name: check_gradients(name, folder)
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        yield f"{name} predictions", lambda folder, name=name: check_prediction(name, folder)
        if not CASES[name][3]:
            yield f"{name} torchvision", lambda folder, name=name: check_torchvision(name, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    return run_checks(checks(parser.parse_args().cases or list(CASES)))


if __name__ == "__main__":
    sys.exit(main())
