"""What `tools/card` says in the end: which bars are met, and the report that people read."""

import dataclasses

import measure

# Section by section, as a reader looks for them. Ratios are torch's time over Hearth's.
FIRST_LINES = """Made by `tools/card`; do not edit. GPU-*.json beside it has the same figures, and the state of every part.
"""


@dataclasses.dataclass
class Bar:
    work: str
    figure: str  # as parts name it
    limit: float
    value: float | None

    @property
    def verdict(self):
        if self.value is None:
            return "not measured"
        return "met" if self.value >= self.limit else "missed"


LLAMA, LORA, QLORA = measure.LLAMA
RESNET = measure.IMAGES[0]
# Figures that have to be reached on AMD's GPUs of gfx11 and gfx12: shares of the peak, and TFLOP/s.
AMD_BARS = {
    "matmul NT": {f"matmul_{name}-b4-bf16 share": 0.75 for name in ("q", "kv", "up", "down", "head")},
    "matmul NN": {"matmul_up_dx-b4-bf16 share": 0.75},
    "matmul TN": {"matmul_up_dw-b4-bf16 share": 0.70},
    "attention": {"attention-b4-bf16 TFLOP/s": 45},
    "attention, backward": {"attention_grad-b4-bf16 TFLOP/s": 32},
    "convolution": {
        f"{RESNET} {op} TFLOP/s": 60 for op in ("conv2d_moments", "conv2d_grad_input", "conv2d_grad_weight")
    },
    "nf4 linear": {f"{QLORA} quantized_linear TFLOP/s": 55},
    "head with cross-entropy": {f"{LLAMA} head_cross_entropy_train TFLOP/s": 60},
    "Llama 1B": {f"{case} share": 0.45 for case in (LLAMA, LORA)},
}
# And on NVIDIA's: against torch.
NVIDIA_BARS = {
    "matmul": {f"matmul_{name}-b4-bf16 ratio": 1.0 for name in measure.MATMULS},
    "attention": {f"{name} ratio": 0.9 for name in measure.ATTENTION if "grad" not in name},
    "attention, backward": {f"{name} ratio": 0.9 for name in measure.ATTENTION if "grad" in name},
    "convolution": {f"{RESNET} ratio": 1.0},
    "nf4 linear": {f"{QLORA} ratio": 1.2},
    "Llama 1B": {f"{LLAMA} ratio": 1.1, f"{LORA} ratio": 1.2, f"{LLAMA} share": 0.45, f"{LORA} share": 0.45},
}
# On both: shares of the vendor's bandwidth.
BANDWIDTH_BAR = 0.85
BANDWIDTH_OPS = {
    LLAMA: ("rms_norm", "rms_norm_grad", "embedding_grad", "adamw_update", "glu", "glu_grad", "cast"),
    RESNET: ("batch_norm", "batch_norm_grad"),
}


def bars_of(card, figures):
    """Every bar for the card, measured or not; none for an emulated one, or one without a matrix unit."""
    if card.vendor == "nvidia":
        own = NVIDIA_BARS
    elif card.architecture.startswith(("gfx11", "gfx12")):
        own = AMD_BARS
    else:
        return []
    bandwidth = {f"{case} {op} bandwidth": BANDWIDTH_BAR for case, ops in BANDWIDTH_OPS.items() for op in ops}
    bars = {**own, "norms, gradients, optimizers, elementwise": bandwidth}
    return [Bar(work, name, limit, figures.get(name)) for work, of in bars.items() for name, limit in of.items()]


# ------------------------------------------------------------------------------------------------ the report


def row(cells):
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |\n"


def table(head, rows):
    return row(head) + row(["---"] * len(head)) + "".join(row(cells) for cells in rows) + "\n" if rows else ""


def items(lines):
    return "".join(f"- {line}\n" for line in lines) + "\n" if lines else ""


def section(title, text):
    return f"## {title}\n\n{text}" if text else ""


def not_run(parts, all_parts):
    for name in all_parts:
        part = parts.get(name)
        if part is None:
            yield f"{name}: not run yet"
        elif part["status"] == "skipped":
            yield f"{name}: {part['why']}"
        else:
            yield from (f"{name}: {text}" for text in part["missing"])


def wrong(parts):
    for name, part in parts.items():
        yield from (f"{name}: {text}" for text in part["wrong"])
        if part["status"] == "stopped":
            yield f"{name}: stopped after {part['seconds']:.0f} s, its limit: {part['why']}"
        elif part["status"] == "running":
            yield f"{name}: cut off before its end"
        elif part["status"] == "failed" and part.get("why"):
            yield f"{name}: failed: {part['why']}"


def bar_rows(bars):
    return [[b.work, b.figure, measure.text(b.value, ".3f"), b.limit, b.verdict] for b in bars]


def sensor_rows(parts):
    for name, part in parts.items():
        sensors = part.get("sensors") or {}
        cells = ["{:.0f} / {:.0f} / {:.0f}".format(*sensors[key]) if key in sensors else "-" for key in SENSORS]
        if sensors:
            yield [name, *cells, " and ".join(sensors.get("held down by", [])) or "nothing"]


SENSORS = ("temperature", "power", "core clock", "memory clock", "busy")
SENSOR_HEAD = ["part", "temperature (C)", "power (W)", "core clock (MHz)", "memory clock (MHz)", "busy (%)", "held down by"]


def to_markdown(card, parts, all_parts):
    # Parts of an older report that PARTS no longer contains come last.
    ordered = {name: parts[name] for name in dict.fromkeys([*all_parts, *parts]) if name in parts}
    figures = {key: value for part in ordered.values() for key, value in part["figures"].items()}
    right = [f"{name}: {text}" for name, part in ordered.items() for text in part["right"]]
    out = f"# Hearth on {card.name} ({card.architecture or 'architecture not known'})\n\n{FIRST_LINES}\n"
    if card.vendor == "emulated":
        out += "A rehearsal on an emulated GPU, in sizes of a test: its times say nothing.\n\n"
    out += section("Wrong", items(list(wrong(ordered))) or "Nothing was found wrong.\n\n")
    out += section("Right", items(right))
    out += section("Not here or not run", items(list(not_run(ordered, all_parts))))
    out += section("Bars", table(["work", "figure", "value", "at least", "result"], bar_rows(bars_of(card, figures))))
    rows = [[name, part["status"], f"{part['seconds']:.0f}", part["date"], part["commit"]] for name, part in ordered.items()]
    out += section("Parts", table(["part", "status", "seconds", "date", "commit"], rows))
    out += section("Heat, power and clocks (least / mean / most)", table(SENSOR_HEAD, list(sensor_rows(ordered))))
    for name, part in ordered.items():
        for found in part["tables"]:
            out += section(f"{name}: {found['title']}", table(found["head"], found["rows"]))
    return out.rstrip() + "\n"
