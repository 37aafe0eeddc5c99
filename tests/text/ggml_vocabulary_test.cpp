#include "text/ggml_vocabulary.h"

#include <gtest/gtest.h>

#include "expect_fault.h"
#include "gguf_vocabulary.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace hearth::text {
namespace {

using Kind = GgmlVocabulary::Kind;

/// A folder with one tokenizer.json.
class Tokenizers : public testing::Test {
 protected:
  void put(const std::string& pre_tokenizer, const std::string& more = "",
           const std::string& model_more = "") {
    write_file_atomically(
        folder_.path() / "tokenizer.json",
        R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "<t>"}],)" +
            more + R"("pre_tokenizer": )" + pre_tokenizer + R"(, "model": {"type": "BPE", )" + model_more +
            R"("vocab": {"a": 0, "b": 1, "ab": 2, "<|x|>": 3}, "merges": ["a b"]}})");
  }
  GgmlVocabulary read(int64_t size = 7) const { return ggml_vocabulary(folder_.path(), size); }

  TemporaryFolder folder_;
};

constexpr const char* kByteLevel = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";

TEST_F(Tokenizers, ByteLevelHasMergesKindsAndUnusedIds) {
  put(kByteLevel);
  const GgmlVocabulary made = read();
  EXPECT_EQ(made.model, "gpt2");
  EXPECT_EQ(made.pre, "gpt-2");
  EXPECT_EQ(made.tokens, (std::vector<std::string>{"a", "b", "ab", "<|x|>", "<s>", "<t>", "[PAD6]"}));
  EXPECT_EQ(made.kinds, (std::vector<Kind>{Kind::normal, Kind::normal, Kind::normal, Kind::normal,
                                           Kind::control, Kind::user_defined, Kind::unused}));
  EXPECT_EQ(made.merges, std::vector<std::string>{"a b"});
  EXPECT_TRUE(made.scores.empty());
}

TEST_F(Tokenizers, SplitsThatLlamaCppLacksAreRefused) {
  put(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x+"},
"behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  EXPECT_THAT(fault_of([&] { read(); }), testing::HasSubstr("a pre_tokenizer that llama.cpp supports"));
  put(R"({"type": "ByteLevel", "add_prefix_space": true})");
  EXPECT_THAT(fault_of([&] { read(); }), testing::HasSubstr("a pre_tokenizer that llama.cpp supports"));
  put(kByteLevel, R"("normalizer": {"type": "Lowercase"},)");
  EXPECT_THAT(fault_of([&] { read(); }), testing::HasSubstr("NFC (llama.cpp supports no other)"));
}

TEST_F(Tokenizers, WhatNoMergeOfBytesOrBytePiecesIsIsRefused) {
  put(R"({"type": "Whitespace"})");
  EXPECT_THAT(fault_of([&] { read(); }), testing::HasSubstr("byte_fallback"));
}

TEST_F(Tokenizers, MoreTokensThanTheModelHasAreRefused) {
  put(kByteLevel);
  EXPECT_THAT(fault_of([&] { read(5); }), testing::HasSubstr("the model has only 5 tokens"));
}

TEST_F(Tokenizers, MergesOutOfSentencePiecesOrderAreRefused) {
  write_file_atomically(folder_.path() / "tokenizer.json",
                        R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0, "b": 1, "ab": 2,
"ba": 3, "aba": 4}, "merges": ["a b", "ab a", "b a", "a ba"]}})");
  EXPECT_THAT(fault_of([&] { read(); }),
              testing::HasSubstr("all merges that form the same token to be adjacent"));
}

void expect_pieces(const GgmlVocabulary& made, const GgufVocabulary& wanted) {
  ASSERT_EQ(made.tokens.size(), wanted.pieces.size());
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    EXPECT_EQ(made.tokens[i], wanted.pieces[i].text) << i;
    EXPECT_EQ(made.scores[i], wanted.pieces[i].score) << i;
    EXPECT_EQ(static_cast<int>(made.kinds[i]), static_cast<int>(wanted.pieces[i].kind)) << i;
  }
}

TEST(GgmlVocabulary, SentencePieceIsAsLlamaCppsConverterHasIt) {
  HEARTH_SHARED_DATA(folder, "tokenizers");
  const GgmlVocabulary made = ggml_vocabulary(folder / "llama2", 32000);
  EXPECT_EQ(made.model, "llama");
  EXPECT_EQ(made.pre, "default");
  EXPECT_TRUE(made.add_space_prefix);
  expect_pieces(made, GgufVocabulary(read_file(folder / "llamacpp_vocab/ggml-vocab-llama-spm.gguf")));
}

TEST(GgmlVocabulary, QwenIsReadFromVocabAndMerges) {
  HEARTH_SHARED_DATA(folder, "tokenizers/qwen");
  const GgmlVocabulary made = ggml_vocabulary(folder, 151936);
  EXPECT_EQ(made.pre, "qwen2");
  EXPECT_EQ(made.merges.size(), 151387U);
  EXPECT_EQ(made.tokens[151645], "<|im_end|>");
  EXPECT_EQ(made.kinds[151645], Kind::control);
  EXPECT_EQ(made.kinds[151935], Kind::unused);
}

TEST(GgmlVocabulary, UnigramModelsAndTiktokenAreRefused) {
  HEARTH_SHARED_DATA(folder, "tokenizers");
  const TemporaryFolder copy;
  fs::copy_file(folder / "torchtune_small/m.model", copy.path() / "tokenizer.model");
  EXPECT_THAT(fault_of([&] { ggml_vocabulary(copy.path(), 2000); }), testing::HasSubstr("of type BPE"));
  EXPECT_THAT(fault_of([&] { ggml_vocabulary(folder / "llama3_tiktoken", 128256); }),
              testing::HasSubstr("tiktoken"));
}

}  // namespace
}  // namespace hearth::text
