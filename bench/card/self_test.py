"""The self-test of every model and way to train, in every precision, in the sizes that people train."""

import json
import math
import re
import struct

from work import ROOT

# The recipes' own first, as a part may run out of time.
PRECISIONS = ("bf16", "fp32", "fp16")
IMAGE_MODELS = {
    "mlp": ["data.kind=idx", "data.channels=1", "data.image_size=28", "data.mean=[0.5]", "data.std=[0.5]"],
    "simplecnn": [], "smallcnn": [], "resnet18": [], "resnet34": [], "resnet50": ["data.image_size=224"],
}
IMAGES = ["train.steps=2", "train.batch=32", "data.count=64", "data.val_count=32"]
FEW_IMAGES = ["train.steps=1", "train.batch=2", "data.count=2", "data.val_count=2", "data.image_size=8"]
# A recipe and its settings, in the sizes that people train; of generated pictures.
SEGMENTERS = {
    "unet": ["segment-demo", "model.width=64", "data.image_size=256"],
    "unet_resnet18": ["segment-unet", "model.num_classes=11", "data.image_size=[480, 352]"],
    "unet_resnet50": ["segment-unet", "model.num_classes=11", "data.image_size=256"],
    "fcn_resnet50": ["segment-deeplab", "model.num_classes=11", "data.image_size=513"],
    "deeplabv3_resnet50": ["segment-deeplab", "model.num_classes=11", "data.image_size=513"],
}
DETECTORS = {
    "yolox_pico": ["detect-demo"],
    "yolox_s": ["detect-yolox", "model.num_classes=10"],
    "yolox_nano": ["detect-yolox", "model.num_classes=10", "data.image_size=416"],
    "retinanet_resnet50_fpn": ["detect-retinanet", "model.num_classes=10"],
    "fcos_resnet50_fpn": ["detect-retinanet", "model.num_classes=10"],
}
SHAPES = ["data.kind=shapes", "train.steps=2", "train.batch=4", "data.count=8", "data.val_count=4", "supervise=false"]
FEW_SHAPES = ["train.steps=1", "train.batch=2", "data.count=2", "data.val_count=2", "data.image_size=32"]
# Whole layers of the real models: few, with random weights.
LLAMAS = {
    "1B": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2,
           "num_attention_heads": 32, "num_key_value_heads": 8},
    "8B": {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
           "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False},
    "tiny": {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 1},
}
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048,
          "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "hidden_act": "silu", "rope_theta": 500000.0}
FAMILIES = {
    "full": ["llama-full", "data.path=TEXT"],
    "lora": ["llama-lora", "data.path=TEXT"],
    "nf4": ["llama-lora", "data.path=TEXT", "adapter.quantize=nf4"],
    "int8": ["llama-lora", "data.path=TEXT", "adapter.quantize=int8"],
    "dpo": ["llama-dpo", "data.path=PAIRS", "data.template=plain"],
}
# Llama, family, precision.
LANGUAGE = [("1B", family, "bf16") for family in FAMILIES] + [("8B", family, "bf16") for family in ("lora", "nf4", "int8")]
LANGUAGE += [("1B", family, precision) for precision in PRECISIONS[1:] for family in FAMILIES]
SHORT = ["train.steps=2", "train.accumulate=1", "schedule.warmup_steps=0", "supervise=false"]
MOST_LETTERS = 120  # of the name of a node
WORDS = ("how", "little", "is", "said", "in", "so", "many", "words")
HEAD = ["training", "precision", "last loss", "nodes on the CPU", "wrong kernels"]


def losses_of(run):
    """The loss of each step that a run's log has."""
    log = run / "trainer_log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line["loss"] for line in lines if "loss" in line]


def distrusted(said):
    """Kernels that failed and what they did, each in a short line."""
    found = re.findall(r"^kernel not used, because it failed its self-test: (.*): (.*)", said, re.M)
    return [f"{name if len(name) <= MOST_LETTERS else name[:MOST_LETTERS] + '...'}: {what}" for name, what in found]


def start(work):
    """Emulated GPUs have no verdicts of before."""
    if work.options.again:
        for file in work.folder("cache").glob("hearth/kernels-*.txt"):
            file.unlink()
    return "self_test=" + ("always" if work.card.vendor == "emulated" else "once")


def train(work, name, precision, settings):
    """A row of the table; None where the run fails."""
    out = work.folder("runs") / "self-test"
    work.run("rm", "-rf", out)
    done = work.run(
        work.program(), "train", *settings, f"precision={precision}", f"device={work.card.device}", "--out", out
    )
    losses = losses_of(out)
    work.run("rm", "-rf", out)
    if done.status != 0 or not losses:
        work.wrong(f"{name} in {precision} ended with status {done.status}: {done.last_line()}")
        return None
    if not all(loss is not None and math.isfinite(loss) for loss in losses):
        work.wrong(f"{name} in {precision} has the losses {losses}")
    wrong = distrusted(done.text)
    for kernel in wrong:
        work.wrong(f"{name} in {precision}: {kernel}")
    host = re.search(r"(\d+ of \d+) nodes of a step have no kernel", done.text)
    return [name, precision, f"{losses[-1]}", host[1] if host else "0", str(len(wrong))]


def verdicts(work):
    """The last verdict on each kernel that was tried."""
    found = {}
    for file in work.folder("cache").glob("hearth/kernels-*.txt"):
        for line in file.read_text().splitlines():
            verdict, kernel, *_ = line.split("\t")
            found[kernel] = verdict
    return found


def conclude(work, rows, num_trainings):
    """Called at a stop too."""
    work.table("Trainings whose kernels were tried first", HEAD, rows)
    found = list(verdicts(work).values())
    work.figure("kernels right", found.count("right"))
    work.figure("kernels wrong", found.count("wrong"))
    if rows and not work.result["wrong"]:
        work.right(f"{found.count('right')} kernels and nodes are right so far, none wrong")
    if len(rows) < num_trainings:
        work.missing(f"{num_trainings - len(rows)} of {num_trainings} trainings")


# ------------------------------------------------------------------------------------------------ images


def write_digits(folder):
    """Files of MNIST, with stripes for digits."""
    for name, count in (("train", 64), ("t10k", 32)):
        pixels = bytes((7 * i + i // 784) % 251 for i in range(784 * count))
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels
        labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(labels)


def shape_settings(models, model):
    recipe, *settings = models[model]
    return [ROOT / f"recipes/{recipe}.yaml", f"model.name={model}", *settings, *SHAPES]


def image_settings(model, digits):
    more = [f"data.path={digits}"] if model == "mlp" else []
    return [ROOT / "recipes/demo.yaml", f"model.name={model}", *IMAGE_MODELS[model], *more]


def images(work):
    tried, digits, rows = start(work), work.folder("digits"), []
    write_digits(digits)
    emulated = work.card.vendor == "emulated"
    trainings = [(model, precision) for precision in PRECISIONS for model in IMAGE_MODELS]
    if emulated:
        trainings = [("simplecnn", "fp32")]
    try:
        for model, precision in trainings:
            settings = [*image_settings(model, digits), *(FEW_IMAGES if emulated else IMAGES), tried, "supervise=false"]
            row = train(work, model, precision, settings)
            rows += [row] if row else []
    finally:
        conclude(work, rows, len(trainings))


# ------------------------------------------------------------------------------------------------ segmenters, detectors


def shapes(work, models, few):
    """`few` are a rehearsal's models with their settings."""
    tried, rows = start(work), []
    emulated = work.card.vendor == "emulated"
    trainings = [(model, "bf16") for model in few] if emulated else [(m, p) for p in PRECISIONS for m in models]
    try:
        for model, precision in trainings:
            small = [*FEW_SHAPES, *few[model]] if emulated else []
            row = train(work, model, precision, [*shape_settings(models, model), *small, tried])
            rows += [row] if row else []
    finally:
        conclude(work, rows, len(trainings))


def segment(work):
    shapes(work, SEGMENTERS, {"unet": ["model.width=4"]})


def detect(work):
    shapes(work, DETECTORS, {"yolox_pico": [], "fcos_resnet50_fpn": ["model.width=8"]})


# ------------------------------------------------------------------------------------------------ language models


def write_texts(folder, rows):
    (folder / "text.txt").write_text(
        "".join(" ".join(WORDS[i * step % 8] for step in range(1, 7)) + "\n" for i in range(rows))
    )
    pairs = [{"prompt": f"how {WORDS[i % 8]}", "chosen": " so many", "rejected": " so little"} for i in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def make_llama(work, name, context):
    """A folder of a model with random weights, made on the CPU; None where that fails."""
    folder = work.folder("models")
    made = folder / name
    if (made / "made").exists():
        return made
    (folder / f"{name}.json").write_text(json.dumps({**CONFIG, **LLAMAS[name]}))
    work.run("rm", "-rf", made)
    done = work.run(
        work.program(), "train", ROOT / "recipes/pretrain-llama.yaml", f"model.config={folder / name}.json",
        f"model.tokenizer={ROOT / 'recipes/shakespeare'}", f"data.path={folder / 'text.txt'}",
        f"data.cache={folder / 'tokens'}", f"data.context={context}", "train.batch=1", *SHORT, "train.steps=1",
        "precision=fp32", "device=cpu", "--out", made,
    )
    work.run("rm", "-rf", made / "checkpoints", made / "best.safetensors")
    if done.status != 0:
        work.wrong(f"no model with layers of Llama {name} could be made: {done.last_line()}")
        return None
    (made / "made").touch()
    return made


def language_settings(family, folder, model):
    recipe, *settings = FAMILIES[family]
    settings = [s.replace("TEXT", f"{folder}/text.txt").replace("PAIRS", f"{folder}/pairs.jsonl") for s in settings]
    return [ROOT / f"recipes/{recipe}.yaml", *settings, f"model={model}", f"data.cache={folder / 'tokens'}", *SHORT]


def language(work):
    tried, folder, rows = start(work), work.folder("models"), []
    emulated = work.card.vendor == "emulated"
    trainings, context, batch = ([("tiny", "nf4", "bf16")], 16, 1) if emulated else (LANGUAGE, 1024, 2)
    write_texts(folder, 80 if emulated else 1500)
    try:
        for llama, family, precision in trainings:
            model = make_llama(work, llama, 16)
            if model is None:
                continue
            settings = [*language_settings(family, folder, model), f"data.context={context}", f"train.batch={batch}", tried]
            row = train(work, f"{family}, layers of Llama {llama}", precision, settings)
            rows += [row] if row else []
    finally:
        conclude(work, rows, len(trainings))
