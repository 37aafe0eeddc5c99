"""Fine-tuning on conversations against transformers, from the same folder and file: python tests/parity/chat.py.

transformers renders, tokenizes and masks each conversation (apply_chat_template with its assistant mask) and runs it
alone in float64; a step's loss is the mean over the trained tokens of all its micro-batches. Hearth gets the folder
and the JSONL file, packed and not; 20 losses with accumulation within 1e-4. Needs ./hearth (tools/build).
"""

import json
import random
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from language import SMALL, train_on
from parity import descend, logged_losses, make_optimizer, relative_gap, run_checks, within

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


def make_model(vocab_size):
    torch.manual_seed(1)
    config = AutoConfig.for_model("llama", **{**SMALL, "vocab_size": vocab_size, "max_position_embeddings": 128})
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


def check(folder, packing):
    talks = conversations(41)
    tokenizer = make_tokenizer(talks)
    model = make_model(len(tokenizer))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    samples = [tokenize(tokenizer, talk) for talk in talks]
    lengths = [len(ids) for ids, _ in samples]
    assert max(lengths) <= CONTEXT
    rows = first_fit_decreasing(lengths) if packing else one_to_a_row(lengths)
    gap = relative_gap(run_hearth(folder, packing), torch_losses(model, samples, steps_of(rows)))
    how = f"{len(rows)} packed rows" if packing else "padded rows"
    return within(TOLERANCE, gap, f"chat in {how}: {STEPS} losses within {gap:.1e} of float64")


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(run_checks((f"packing {on}", lambda folder, on=on: check(folder, on)) for on in (True, False)))
