#include <sentencepiece_processor.h>

#include <sstream>

#include "gguf_vocabulary.h"
#include "sentencepiece_file.h"
#include "shared_data.h"
#include "support.h"
#include "text/bpe.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace hearth::text {
namespace {

std::vector<std::string> split_texts(const std::string& all) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  for (size_t from = 0; from < all.size();) {
    const size_t end = std::min(all.find(kSeparator, from), all.size());
    texts.push_back(all.substr(from, end - from));
    from = end + kSeparator.size();
  }
  return texts;
}

std::vector<Ids> parse_ids(const std::string& all) {
  std::vector<Ids> lists;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    lists.emplace_back();
    for (int32_t id = 0; numbers >> id;) lists.back().push_back(id);
  }
  return lists;
}

/// llama.cpp's 47 texts and the ids that the original tokenizers give them.
void expect_llamacpp(const Tokenizer& tokenizer, const fs::path& data, const char* name) {
  const std::string stem = (data / "llamacpp_vocab/ggml-vocab-").string() + name + ".gguf";
  const std::vector<std::string> texts = split_texts(read_file(stem + ".inp"));
  const std::vector<Ids> expected = parse_ids(read_file(stem + ".out"));
  ASSERT_EQ(texts.size(), expected.size());
  ASSERT_GE(texts.size(), 46U);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(encode(tokenizer, texts[i]), expected[i]) << name << ", text " << i << ": '" << texts[i] << "'";
    EXPECT_EQ(tokenizer.decode(expected[i]), texts[i]) << name << ", text " << i;
  }
}

/// 30 texts in many scripts, with the ids and the decoded text of transformers 4.57.1, which changes that of
/// some models (clean_up_tokenization_spaces) beyond what their tokenizer.json says.
enum class Decoded { compared, cleaned_up };
void expect_multilingual(const Tokenizer& tokenizer, const fs::path& data, const char* name,
                         Decoded decoded = Decoded::compared) {
  const fs::path folder = data / "expected_multilingual";
  const Json inputs = Json::parse(read_file(folder / "inputs.json"));
  const Json expected = Json::parse(read_file(folder / "baselines" / (std::string(name) + ".json")));
  ASSERT_EQ(inputs["inputs"].size(), 30U);
  for (const Json& input : inputs["inputs"]) {
    const std::string key = input["id"];
    const Json& entry = expected["entries"][key];
    Ids ids = tokenizer.special().prefix;
    tokenizer.encode(input["text"].get<std::string>(), SpecialTokens::parsed, ids);
    ids.insert(ids.end(), tokenizer.special().suffix.begin(), tokenizer.special().suffix.end());
    EXPECT_EQ(ids, entry["input_ids"].get<Ids>()) << name << ": " << key;
    if (decoded == Decoded::cleaned_up) continue;
    EXPECT_EQ(tokenizer.decode(ids), entry["decoded_with_special"].get<std::string>()) << name << ": " << key;
  }
}

TEST(Golden, Gpt2) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  const auto tokenizer = open_tokenizer(data / "gpt2");
  expect_llamacpp(*tokenizer, data, "gpt-2");
  expect_multilingual(*tokenizer, data, "openai-community__gpt2");
  EXPECT_EQ(tokenizer->eos(), 50256);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
}

TEST(Golden, Llama3) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  const auto tokenizer = open_tokenizer(data / "llama3_tiktoken");
  expect_llamacpp(*tokenizer, data, "llama-bpe");
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  EXPECT_EQ(tokenizer->special().prefix, Ids({128000}));
  EXPECT_EQ(tokenizer->id_of("<|eot_id|>"), 128009);
  EXPECT_EQ(encode(*tokenizer, "<|start_header_id|>user<|end_header_id|>", SpecialTokens::parsed),
            Ids({128006, 882, 128007}));
}

TEST(Golden, Qwen) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  const auto tokenizer = open_tokenizer(data / "qwen");
  expect_llamacpp(*tokenizer, data, "qwen2");
  expect_multilingual(*tokenizer, data, "Qwen__Qwen2.5-0.5B");
  EXPECT_EQ(tokenizer->id_of("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer->vocab_size(), 151669);
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
}

TEST(Golden, Llama2) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  const auto tokenizer = open_tokenizer(data / "llama2");
  expect_llamacpp(*tokenizer, data, "llama-spm");
  expect_multilingual(*tokenizer, data, "TinyLlama__TinyLlama-1.1B-Chat-v1.0");
  EXPECT_EQ(tokenizer->vocab_size(), 32000);
}

std::string model_of_gguf(const fs::path& path) {
  const std::string bytes = read_file(path);
  SentencePieceModel model = llama2_model({});
  model.pieces = GgufVocabulary(bytes).pieces;
  // Phi-3's padding pieces are all marked unknown, of which SentencePiece takes one.
  for (size_t i = 1; i < model.pieces.size(); ++i) {
    using Kind = SentencePieceModel::PieceKind;
    if (model.pieces[i].kind == Kind::unknown) model.pieces[i].kind = Kind::control;
  }
  return sentencepiece_file(model);
}

TEST(Golden, Phi3AndLlama2FromGguf) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  for (const char* name : {"phi-3", "llama-spm"}) {
    const std::string model =
        model_of_gguf(data / "llamacpp_vocab" / (std::string("ggml-vocab-") + name + ".gguf"));
    expect_llamacpp(*parse_sentencepiece(model, name, {}), data, name);
  }
}

/// BERT's vocabulary from a GGUF file, where tokens that begin a word have U+2581 ahead and others lack "##".
Json bert_json(const fs::path& path) {
  const std::string bytes = read_file(path);
  Json vocab = Json::object();
  for (const SentencePieceModel::Piece& piece : GgufVocabulary(bytes).pieces) {
    const bool starts = piece.text.starts_with(kMetaspace), named = piece.text.starts_with('[');
    const std::string token = starts ? piece.text.substr(kMetaspace.size()) : piece.text;
    vocab[named && piece.text.size() > 1 ? piece.text : (starts ? "" : "##") + token] = vocab.size();
  }
  Json added = Json::array();
  for (const auto& [name, id] : {std::pair("[UNK]", 100), {"[CLS]", 101}, {"[SEP]", 102}, {"[MASK]", 103}})
    added.push_back({{"id", id}, {"content", name}, {"special", true}});
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 102}}, {"cls", {"[CLS]", 101}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

TEST(Golden, Bert) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  const auto tokenizer = load(bert_json(data / "llamacpp_vocab/ggml-vocab-bert-bge.gguf"));
  expect_multilingual(*tokenizer, data, "BAAI__bge-small-en-v1.5", Decoded::cleaned_up);
}

std::vector<fs::path> english(const fs::path& text) {
  return {text / "tinyshakespeare/input.txt", text / "wikitext2/valid.txt", text / "wikitext2/test.txt"};
}

TEST(SlowGolden, EncodeThenDecodeIsTheIdentity) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  HEARTH_SHARED_DATA(text, "text");
  for (const char* name : {"gpt2", "llama3_tiktoken", "qwen", "llama2", "mistral_spm/tokenizer.model.v1",
                           "mistral_spm/mistral_instruct_tokenizer_240323.model.v3", "torchtune_small"}) {
    const auto tokenizer = open_tokenizer(data / name);
    for (const fs::path& file : english(text)) {
      const std::string original = read_file(file);
      EXPECT_TRUE(tokenizer->decode(encode(*tokenizer, original)) == original) << name << " on " << file;
    }
  }
}

/// Our merges by score and the library agree on every line.
TEST(SlowGolden, SentencePieceAsTheLibraryDoes) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  HEARTH_SHARED_DATA(text, "text");
  for (const char* name : {"llama2/tokenizer.model", "mistral_spm/tokenizer.model.v1",
                           "mistral_spm/mistral_instruct_tokenizer_240323.model.v3"}) {
    const auto tokenizer = open_tokenizer(data / name);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.Load((data / name).string()).ok());
    std::vector<fs::path> files = english(text);
    files.push_back(text / "llamafactory_demo/alpaca_zh_demo.json");
    size_t differing = 0;
    for (const fs::path& file : files) {
      std::istringstream lines(read_file(file));
      for (std::string line; std::getline(lines, line);) {
        std::vector<int> expected;
        ASSERT_TRUE(library.Encode(line, &expected).ok());
        if (encode(*tokenizer, line) != Ids(expected.begin(), expected.end()) && ++differing < 5)
          ADD_FAILURE() << line;
      }
    }
    EXPECT_EQ(differing, 0U) << name;
  }
}

/// One tokenizer in two forms: tokenizer.json, and vocab.json with merges.txt and a class.
TEST(Golden, TheFormsOfOneTokenizerAgree) {
  HEARTH_SHARED_DATA(data, "tokenizers/torchtune_small");
  HEARTH_SHARED_DATA(text, "text");
  const TemporaryFolder folder;
  fs::copy_file(data / "tiny_bpe_vocab.json", folder.path() / "vocab.json");
  fs::copy_file(data / "tiny_bpe_merges.txt", folder.path() / "merges.txt");
  put(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  const auto one = open_tokenizer(data / "tiny_bpe_tokenizer.json");
  const auto other = open_tokenizer(folder.path());
  // The only one of these texts that is ASCII, which is all that this vocabulary has.
  const std::string ascii = read_file(text / "tinyshakespeare/input.txt");
  EXPECT_TRUE(encode(*one, ascii) == encode(*other, ascii));
  EXPECT_THAT(refusal([&] { encode(*one, "\u2581"); }), testing::HasSubstr("the byte 0xE2"));
}

TEST(Golden, WhatIsNotSupportedIsRefused) {
  HEARTH_SHARED_DATA(data, "tokenizers");
  EXPECT_THAT(refusal([&] { open_tokenizer(data / "llamacpp_vocab/ggml-vocab-bert-bge.gguf"); }),
              testing::HasSubstr("ggml-vocab-bert-bge.gguf"));
}

}  // namespace
}  // namespace hearth::text
