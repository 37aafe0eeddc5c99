"""Small tokenizers like those of the families of language models."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(split, ignore_merges=False):
    """A tokenizer of merges of bytes, as Llama 3 and Qwen have."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:80]
    vocab = {letter: i for i, letter in enumerate([*letters, "ab", "abc", "\u0120a"])}
    merges = [(letters[0], letters[1])]
    vocab[letters[0] + letters[1]] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore_merges))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece():
    """A tokenizer as transformers makes of a SentencePiece model: merges with the best tokens first."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    pieces += ["\u2581a", "ab", "\u2581ab", "aba", "\u2581", "a", "b"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("\u2581", "a"), ("a", "b"), ("\u2581a", "b"), ("\u2581", "ab"), ("ab", "a")]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def make_tokenizer(family):
    """Returns the tokenizer, and the names of its model and pre-tokenizer in llama.cpp."""
    if family.startswith(("mistral", "phi3", "gemma2")):
        tokenizer, model, pre = sentencepiece(), "llama", "default"
    elif family.startswith("qwen"):
        tokenizer, model, pre = byte_level(QWEN2_SPLIT), "gpt2", "qwen2"
        tokenizer.normalizer = normalizers.NFC()
    elif family == "llama3.1":
        tokenizer, model, pre = byte_level(LLAMA3_SPLIT, ignore_merges=True), "gpt2", "llama-bpe"
    else:
        tokenizer, model, pre = byte_level(None), "gpt2", "gpt-2"
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return tokenizer, model, pre
