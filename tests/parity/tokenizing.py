"""Tokenizers against Hugging Face's: python tests/parity/tokenizing.py [--count N] [--seed N].

Draws small tokenizers of every kind (models that are trained or made up, normalizers, pre-tokenizers, decoders,
post-processors, added tokens), writes their tokenizer.json, and compares ids and decoded texts with those of the
`tokenizers` package for texts of all kinds of characters. Needs build/cpu/tests/encode_texts (tools/build) or the
program in HEARTH_ENCODE.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NUM_TEXTS = 60
SPECIAL = ["<unk>", "[CLS]", "[SEP]", "<pad>"]
# The first and last letters of some scripts.
SCRIPTS = [
    "az", "AZ", "\u00e0\u00ff", "\u03b1\u03c9", "\u0410\u042f", "\u0430\u044f", "\u05d0\u05ea", "\u0628\u064a",
    "\u0915\u0939", "\u0e01\u0e2e", "\uac00\ud7a3", "\u3041\u3093", "\u30a1\u30f6", "\u4e00\u9fa5", "\uff41\uff5a",
    "\ufb00\ufb06", "\u2460\u2473",
]  # fmt: skip
PIECES = [" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u2581", "\u200b", "\u200d", "\ufeff", "\ufffd", "\r\n", "\u0301",
          "e\u0301", "\u00e9", "\u0130", "\u00df", "\u0958", "\u1e9b\u0323", "'s", "n't", " do not", "!", "?!", ",", "...",
          "1", "23", "\u0663", "\u00b2", "\u2167", "\u4e2d", "\u3400", "\ud55c", "\U0001f600", "\U0001f468\u200d\U0001f469",
          "\U0001f1e9\U0001f1ea", "_", "-", "$", "+", "\u00ab", "\u2014", "\u3002", "\x01", "\x7f", "\x85", "<unk>", "[CLS]",
          "<0x41>", "##a", "<x>", "<y>", "\u0e01\u0e33", "\u0915\u094d\u0937", "\u1100\u1161\u11a8"]  # fmt: skip
ASSIGNED = [
    chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
]


def draw_word(draw):
    script = draw.choice(SCRIPTS[:1] * 6 + SCRIPTS)
    letters = [chr(code) for code in range(ord(script[0]), ord(script[1]) + 1)][:12]
    return "".join(draw.choices(letters, k=draw.randint(1, 7)))


def draw_text(draw, words, wild):
    """`wild`: how likely a part is any character that Unicode has."""
    parts = []
    for _ in range(draw.choice([0, 1, 2, 5, 12, 30])):
        kind = draw.random()
        if kind < wild:
            parts.append(draw.choice(ASSIGNED))
        elif kind < 0.55:
            parts.append(draw.choice(words))
        elif kind < 0.85:
            parts.append(draw.choice(PIECES))
        else:
            parts.append(" ")
    return "".join(parts)


def double_array(keys):
    """The units of a darts-clone trie over {bytes: value}, as SentencePiece writes it."""
    children = {}
    for key in keys:
        for length in range(len(key) + 1):
            children.setdefault(key[:length], set()).add(key[length] if length < len(key) else 0)
    units, taken = [0] * 256, {0}
    places, starts = {b"": 0}, set()
    for prefix in sorted(children, key=lambda each: (len(each), each)):
        place, labels = places[prefix], children[prefix]
        offset = next(
            each
            for each in range(1, 1 << 20)
            if each not in starts and not any((place ^ each ^ label) in taken for label in labels)
        )
        starts.add(offset)
        units += [0] * max(0, (max(place ^ offset ^ label for label in labels) | 255) + 1 - len(units))
        units[place] |= offset << 10
        for label in sorted(labels):
            child = place ^ offset ^ label
            taken.add(child)
            if label == 0:
                units[place] |= 1 << 8
                units[child] = 1 << 31 | keys[prefix]
            else:
                units[child] |= label
                places[prefix + bytes([label])] = child
    return units


def charsmap(draw):
    """A map of some characters to what NFKC or lower case makes of them, and of some clusters."""
    become = {}
    for _ in range(60):
        one = draw.choice([draw.choice(ASSIGNED), draw.choice(PIECES), draw_word(draw)[0]])
        become[one] = draw.choice([unicodedata.normalize("NFKC", one), one.lower(), " ", "", "xy"])
    for letter in "aeou":
        become[letter + "\u0301"] = unicodedata.normalize("NFC", letter + "\u0301")
    become = {key.encode(): value for key, value in become.items() if key and "\0" not in value}
    blob, places = b"", {}
    for key, value in become.items():
        places[key] = len(blob)
        blob += value.encode() + b"\0"
    units = double_array(places)
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + blob


def flag(draw):
    return draw.random() < 0.5


def draw_normalizer(draw):
    made = [
        lambda: normalizers.BertNormalizer(flag(draw), flag(draw), draw.choice([None, True, False]), flag(draw)),
        lambda: normalizers.Lowercase(),
        lambda: normalizers.StripAccents(),
        lambda: draw.choice([normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD])(),
        lambda: normalizers.Nmt(),
        lambda: normalizers.Strip(flag(draw), flag(draw)),
        lambda: normalizers.Prepend("\u2581"),
        lambda: normalizers.Replace(Regex(" {2,}"), draw.choice([" ", "\u2581"])),
        lambda: normalizers.Replace("``", '"'),
        lambda: normalizers.Precompiled(charsmap(draw)),
    ]
    steps = [draw.choice(made)() for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def draw_pre_tokenizer(draw, model):
    split = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    made = [
        lambda: pre_tokenizers.BertPreTokenizer(),
        lambda: pre_tokenizers.Whitespace(),
        lambda: pre_tokenizers.WhitespaceSplit(),
        lambda: pre_tokenizers.Punctuation(draw.choice(split)),
        lambda: pre_tokenizers.Digits(flag(draw)),
        lambda: pre_tokenizers.CharDelimiterSplit(draw.choice(["_", "e"])),
        lambda: pre_tokenizers.Split(Regex(r"\p{N}+|\s"), draw.choice(split), flag(draw)),
        lambda: pre_tokenizers.Metaspace("\u2581", draw.choice(["always", "first", "never"]), flag(draw)),
    ]
    likely = {"WordPiece": made[:1], "Unigram": made[-1:], "WordLevel": made[1:3], "BPE": made[1:3] + made[-1:]}[model]
    steps = [draw.choice(made + 4 * likely)() for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def draw_decoder(draw):
    made = [
        lambda: None,
        lambda: decoders.WordPiece("##", flag(draw)),
        lambda: decoders.Metaspace("\u2581", draw.choice(["always", "first", "never"])),
        lambda: decoders.BPEDecoder("</w>"),
        lambda: decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    ]
    return draw.choice(made)()


def unigram_of(draw, words):
    """Tokens with few scores, so that many sums are equal."""
    tokens = {word[first : first + draw.randint(1, 4)] for word in words for first in range(len(word))}
    tokens |= set(PIECES) - {""}
    vocabulary = [("<unk>", 0.0)]
    vocabulary += [(token, float(-draw.randint(0, 6)) / 2) for token in sorted(tokens) if token != "<unk>"]
    byte_fallback = flag(draw)
    if byte_fallback:
        known = {token for token, _ in vocabulary}
        codes = range(256) if flag(draw) else draw.sample(range(256), 128)
        names = [f"<0x{code:02X}>" for code in codes]
        vocabulary += [(name, -20.0) for name in names if name not in known]
    return models.Unigram(vocabulary, unk_id=0, byte_fallback=byte_fallback)


def draw_tokenizer(draw, model, words):
    corpus = [" ".join(draw.choices(words, k=20)) for _ in range(40)]
    size = draw.choice([60, 200, 600])
    if model == "Unigram" and flag(draw):
        made = Tokenizer(unigram_of(draw, words))
        trainer = None
    elif model == "Unigram":
        made = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=size + 400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        )
    elif model == "WordPiece":
        made = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=draw.choice([4, 100])))
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    elif model == "WordLevel":
        made = Tokenizer(models.WordLevel(unk_token="<unk>"))
        trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=flag(draw)))
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    normalizer, pre_tokenizer = draw_normalizer(draw), draw_pre_tokenizer(draw, model)
    decoder = draw_decoder(draw)
    if normalizer is not None:
        made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        made.decoder = decoder
    if trainer is not None:
        made.train_from_iterator(corpus, trainer)
    for content in ("<x>", "<y>", "[CLS]"):
        if flag(draw):
            flags = {name: draw.random() < 0.3 for name in ("lstrip", "rstrip", "single_word", "normalized")}
            token = AddedToken(content, special=flag(draw), **flags)
            (made.add_special_tokens if token.special else made.add_tokens)([token])
    cls, sep = made.token_to_id("[CLS]"), made.token_to_id("[SEP]")
    if cls is not None and sep is not None and flag(draw):
        ids = [("[CLS]", cls), ("[SEP]", sep)]
        made.post_processor = draw.choice(
            [
                processors.BertProcessing(ids[1], ids[0]),
                processors.TemplateProcessing(single="[CLS] $A [SEP] [SEP]", special_tokens=ids),
            ]
        )
    return made


def ask(program, requests):
    lines = "\n".join(json.dumps(request) for request in requests)
    done = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with {done.returncode}: {done.stderr[-800:]}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def expected(tokenizer, texts):
    encoded = [tokenizer.encode(text).ids for text in texts]
    return encoded, [tokenizer.decode(ids, skip_special_tokens=False) for ids in encoded]


def show(text):
    return " ".join(f"{ord(c):04X}" for c in text) + f" {text!r}"


def differences(tokenizer, texts, encoded, decoded, answer):
    if "error" in answer:
        return [f"refused: {answer['error']}"]
    found = []
    for text, ids, got in zip(texts, encoded, answer["encoded"]):
        if ids != got:
            tokens = [list(map(tokenizer.id_to_token, each)) for each in (ids, got)]
            found.append(f"ids of {show(text)}: {tokens[0]}, got {tokens[1]}")
    for ids, text, got in zip(encoded, decoded, answer["decoded"]):
        if text != got:
            found.append(f"text of {list(map(tokenizer.id_to_token, ids))}: {text!r}, got {got!r}")
    return found


def check_normalizers(program):
    """Every character there is, and marks in any order, as a vocabulary of bytes shows them."""
    draw = random.Random("normalizers")
    marks = [one for one in ASSIGNED if unicodedata.combining(one)]
    every = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    texts = [" ".join(every[first::8]) for first in range(8)]
    texts += ["".join(draw.choice(draw.choice([marks, ASSIGNED])) for _ in range(20000)) for _ in range(4)]
    # Which capital letters there are is a matter of the compiler that made the package.
    bert = [normalizers.BertNormalizer(lowercase=False, strip_accents=strip) for strip in (False, True)]
    forms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()]
    kinds = [*forms, normalizers.StripAccents(), normalizers.Nmt(), *bert]
    requests, wanted = [], []
    for kind in kinds:
        codes = [(f"<0x{code:02X}>", -20.0) for code in range(256)]
        tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *codes], unk_id=0, byte_fallback=True))
        tokenizer.normalizer = kind
        requests.append({"tokenizer": tokenizer.to_str(), "texts": texts, "ids": []})
        wanted.append([tokenizer.encode(text).ids for text in texts])
    answers = [answer.get("encoded") for answer in ask(program, requests)]
    wrong = [type(kind).__name__ for kind, one, other in zip(kinds, wanted, answers, strict=True) if one != other]
    print(f"FAILED normalizers: {wrong}" if wrong else f"ok     {len(kinds)} normalizers of every character", flush=True)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="tokenizers of each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="differences to show of a tokenizer")
    arguments = parser.parse_args()
    program = os.environ.get("HEARTH_ENCODE", ROOT / "build/cpu/tests/encode_texts")
    failed = check_normalizers(program)
    for model in ("WordLevel", "WordPiece", "Unigram", "BPE"):
        made, requests, wanted = [], [], []
        for index in range(arguments.count):
            draw = random.Random(f"{arguments.seed} {model} {index}")
            words = [draw_word(draw) for _ in range(80)]
            # As it reads its own file: one that was changed after training may differ from that.
            tokenizer = Tokenizer.from_str(draw_tokenizer(draw, model, words).to_str())
            texts = [draw_text(draw, words, draw.choice([0, 0.05, 0.3])) for _ in range(NUM_TEXTS)]
            encoded, decoded = expected(tokenizer, texts)
            requests.append({"tokenizer": tokenizer.to_str(), "texts": texts, "ids": encoded})
            made.append((tokenizer, texts, encoded, decoded))
        wrong = 0
        for index, (case, answer) in enumerate(zip(made, ask(program, requests), strict=True)):
            found = differences(*case, answer)
            wrong += bool(found)
            for line in found[: arguments.show]:
                print(f"{model} {index}: {line}")
            if found:
                parts = json.loads(case[0].to_str())
                keys = ("normalizer", "pre_tokenizer", "decoder", "added_tokens")
                print("   ", json.dumps({key: parts[key] for key in keys})[:1500])
        print(f"{'FAILED' if wrong else 'ok    '} {model}: {arguments.count - wrong} of {arguments.count} equal", flush=True)
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
