"""Fine-tuning on conversations against transformers, from the same folder and file: python tests/parity/chat.py.

transformers renders, tokenizes and masks each conversation (apply_chat_template with its assistant mask) and runs it
alone in float64; a step's loss is the mean over the trained tokens of all its micro-batches. Hearth gets the folder
and the JSONL file, packed and not; 20 losses with accumulation within 1e-4. Needs ./hearth (tools/build).

Before that, token ids and masks themselves, for templates that are hard to cut into turns: special tokens that take the
white space beside them, end marks that differ for the last turn, system messages in the last one. Without its
generation blocks each template must come to the same ids and the same mask.
"""

import json
import random
import re
import subprocess
import sys

import numpy
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from language import SMALL, train_on
from parity import descend, hearth, logged_losses, make_optimizer, relative_gap, run_checks, within

STEPS = 20
TOLERANCE = 1e-4
CONTEXT = 96
BATCH = 2
ACCUMULATE = 3
RATE = 1e-3
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}
GENERATION = re.compile(r"{%-? (end)?generation -?%}")
HARD_TEMPLATES = {
    "a shared start of what ends and what follows": (
        "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>"
        "{% if loop.last and not add_generation_prompt %}<|endoftext|>{% endif %}{% endgeneration %}{% else %}"
        "{{ m.content }}<|end|>{% if loop.last and not add_generation_prompt %}<|endoftext|>{% endif %}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ '\n' }}{% endif %}"
    ),
    "another end mark for the last turn": (
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}{% generation %}<|message|>"
        "{{ m.content }}{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}"
        "{% endgeneration %}{% else %}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
    "the system message in the last turn": (
        "{% set system = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages %}"
        "{% if m.role == 'user' %}[INST]{% if loop.index0 >= messages|length - 2 %} {{ system }}{{ '\n\n' }}{% endif %}"
        "{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{% generation %} {{ m.content|trim }}</s>"
        "{% endgeneration %}{% endif %}{% endfor %}"
    ),
    "a thought that the prompt opens": (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{% if loop.last %}<think>"
        "{{ '\n\n' }}</think>{% endif %}{{ m.content|trim }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|><think>{{ '\n' }}{% endif %}"
    ),
}
HARD_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|start|>", "<|message|>", "<|end|>", "<|endoftext|>", "<|return|>",
               "[INST]", "[/INST]")  # fmt: skip
WORDS = "the cat sat on a mat while seven dogs ran home quickly and nobody knew why it rained again".split()


def conversations(count):
    draw = random.Random(4)

    def words(most):
        return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))

    turns = [draw.randint(1, 2) for _ in range(count)]
    return [
        [{"role": role, "content": words(6)} for _ in range(number) for role in ("user", "assistant")]
        for number in turns
    ]


def make_tokenizer(talks):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((turn["content"] for talk in talks for turn in talk), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def hard_conversations(count):
    """Contents that start and end with white space, or look like what stands between them."""
    draw = random.Random(7)
    pieces = [*WORDS, "\n", " \n", "  ", "<|", "|>", "user", "[", "\u00e9\u4e2d", ".", "<", "\t"]

    def content():
        return "".join(draw.choices(pieces, k=draw.randint(1, 6))) + draw.choice(["a", "a\n", "a ", "."])

    talks = []
    for _ in range(count):
        talk = [{"role": "system", "content": content()}] if draw.random() < 0.3 else []
        for _ in range(draw.randint(1, 4)):
            talk += [{"role": "user", "content": content()}, {"role": "assistant", "content": content()}]
        talks.append(talk)
    return talks


def cached_tokens(folder, template, talks, *more):
    """What Hearth keeps of each conversation: ids and mask."""
    (folder / "template.jinja").write_text(template)
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    cache = folder / f"cache{len(list(folder.glob('cache*')))}"
    hearth("validate", "llama-full", f"model={folder / 'model'}", f"data={folder / 'chat.jsonl'}", f"data.cache={cache}",
           f"data.template={folder / 'template.jinja'}", "data.context=4096", "train.batch=1", *more)  # fmt: skip
    data = next(cache.glob("*.tokens")).read_bytes()
    num_tokens, num_samples = numpy.frombuffer(data[-24:-8], dtype=numpy.uint64).astype(int)
    tokens = numpy.frombuffer(data, dtype=numpy.uint32, count=num_tokens)
    starts = numpy.frombuffer(data, dtype=numpy.uint64, count=num_samples + 1, offset=(num_tokens + num_tokens % 2) * 4).astype(int)
    samples = [tokens[first:last] for first, last in zip(starts, starts[1:])]
    return [((sample & 0x7FFFFFFF).tolist(), (sample >> 31).tolist()) for sample in samples]


def check_masks(folder, name, strips):
    template = HARD_TEMPLATES[name]
    talks = hard_conversations(60)
    tokenizer = make_tokenizer(talks)
    tokens = [AddedToken(text, special=True, normalized=False, rstrip=strips) for text in HARD_TOKENS]
    tokenizer.add_special_tokens({"additional_special_tokens": tokens})
    tokenizer.chat_template = template
    make_model(len(tokenizer)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    wanted = [tokenizer.apply_chat_template(talk, return_dict=True, return_assistant_tokens_mask=True) for talk in talks]
    wanted = [(made["input_ids"], made["assistant_masks"]) for made in wanted]
    marked = cached_tokens(folder, template, talks)
    plain = GENERATION.sub("", template)
    found = cached_tokens(folder, plain, talks, "data.train_on_generation_prompt=true")
    wrong_ids = sum(a[0] != b[0] or c[0] != b[0] for a, b, c in zip(marked, wanted, found, strict=True))
    wrong_marks = sum(a[1] != b[1] for a, b in zip(marked, wanted))
    # What a special token has stripped of a turn's start is nobody's; only marks of the template's own say whose it is.
    wrong_turns = 0 if strips else sum(a[1] != b[1] for a, b in zip(found, wanted))
    said = f"{name}: of {len(talks)} conversations {wrong_ids} have other ids, {wrong_marks} another mask, {wrong_turns} another without marks"
    assert wrong_ids == wrong_marks == wrong_turns == 0, said
    # Without the key the loss leaves out what the prompt for an answer contains already, and nothing else.
    answers = cached_tokens(folder, plain, talks)
    assert all(x <= y for a, b in zip(answers, found) for x, y in zip(a[1], b[1], strict=True)), name
    fewer = sum(sum(b[1]) - sum(a[1]) for a, b in zip(answers, found))
    assert (fewer > 0) == (name == "a thought that the prompt opens"), f"{name}: {fewer} fewer tokens are trained"
    return said


def make_model(vocab_size, **options):
    torch.manual_seed(1)
    sizes = {"vocab_size": vocab_size, "max_position_embeddings": 128}
    config = AutoConfig.for_model("llama", **{**SMALL, **sizes, **options})
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def tokenize(tokenizer, talk):
    made = tokenizer.apply_chat_template(talk, return_dict=True, return_assistant_tokens_mask=True)
    return torch.tensor(made["input_ids"]), torch.tensor(made["assistant_masks"], dtype=torch.bool)


def first_fit_decreasing(lengths):
    rows = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((row for row in rows if sum(lengths[k] for k in row) + lengths[i] <= CONTEXT), None)
        if row is None:
            rows.append(row := [])
        row.append(i)
    return rows


def one_to_a_row(lengths):
    """Rows are padded to the context or to half of it, the longer ones first."""
    return [[i] for i in sorted(range(len(lengths)), key=lambda i: lengths[i] <= CONTEXT // 2)]


def steps_of(rows):
    """The samples of each update, epoch after epoch."""
    group = BATCH * ACCUMULATE
    epoch = [sum(rows[at : at + group], []) for at in range(0, len(rows), group)]
    return (epoch * STEPS)[:STEPS]


def sum_loss(model, ids, trained):
    logits = model(ids[None], use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits[trained[1:]], ids[1:][trained[1:]], reduction="sum")


def torch_losses(model, samples, steps):
    model = model.double()

    def loss_of(step):
        count = sum(int(samples[i][1][1:].sum()) for i in step)
        return sum(sum_loss(model, *samples[i]) for i in step) / count

    return descend(make_optimizer("adamw", model.parameters(), RATE), map(loss_of, steps))


def run_hearth(folder, packing):
    train = {"steps": STEPS, "batch": BATCH, "accumulate": ACCUMULATE}
    return logged_losses(train_on(folder, "chat.jsonl", RATE, {"context": CONTEXT, "packing": packing}, train))


def check(folder, packing, rope):
    talks = conversations(41)
    tokenizer = make_tokenizer(talks)
    samples = [tokenize(tokenizer, talk) for talk in talks]
    lengths = [len(ids) for ids, _ in samples]
    assert max(lengths) < CONTEXT
    # Rows are longer than the original context, but no conversation in them is.
    options = {"rope_scaling": LONGROPE, "original_max_position_embeddings": max(lengths), "rope_theta": 10000.0}
    model = make_model(len(tokenizer), **(options if rope == "longrope" else {}))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    rows = first_fit_decreasing(lengths) if packing else one_to_a_row(lengths)
    gap = relative_gap(run_hearth(folder, packing), torch_losses(model, samples, steps_of(rows)))
    how = f"{len(rows)} packed rows" if packing else "padded rows"
    return within(TOLERANCE, gap, f"chat in {how} with {rope}: {STEPS} losses within {gap:.1e} of float64")


if __name__ == "__main__":
    torch.set_num_threads(1)
    masks = [
        (name, lambda folder, name=name, strips=strips: check_masks(folder, name, strips))
        for name in HARD_TEMPLATES
        for strips in (False, True)
    ]
    losses = [
        (f"packing {on} with {rope}", lambda folder, on=on, rope=rope: check(folder, on, rope))
        for on in (True, False)
        for rope in ("plain rope", "longrope")
    ]
    sys.exit(run_checks(masks + losses))
