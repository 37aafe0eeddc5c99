#include <sentencepiece_processor.h>

#include <random>

#include "sentencepiece_file.h"
#include "support.h"
#include "text/tokenizer.h"

namespace hearth::text {
namespace {

using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  void put(const char* name, const std::string& contents) const {
    text::put(folder_.path() / name, contents);
  }
  std::unique_ptr<Tokenizer> open() const { return open_tokenizer(folder_.path()); }
  std::string refused() const {
    return refusal([&] { open(); });
  }
  TemporaryFolder folder_;
};

TEST_F(Folder, WithoutATokenizer) {
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr(folder_.path().string()), HasSubstr("merges.txt")));
  EXPECT_THAT(refusal([&] { open_tokenizer(folder_.path() / "none.json"); }), HasSubstr("none.json"));
}

TEST_F(Folder, VocabAndMerges) {
  const Json json = byte_level_json({"t h", "\u0120 th", "1 2"});
  Json vocabulary = json["model"]["vocab"];
  vocabulary["<|endoftext|>"] = 259;
  put("vocab.json", vocabulary.dump());
  put("merges.txt", "#version: 0.2\nt h\n\u0120 th\r\n1 2\n\n");
  EXPECT_EQ(encode(*open(), "th th12"), Ids({256, 257, 258})) << "GPT-2 where no class is named";
  EXPECT_EQ(open()->eos(), 259);
  EXPECT_EQ(encode(*open(), "<|endoftext|>", SpecialTokens::parsed), Ids({259}));
  put("tokenizer_config.json", R"({"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>",
      "added_tokens_decoder": {"300": {"content": "<|im_end|>", "special": true},
                               "301": {"content": "<think>", "special": false, "normalized": false}}})");
  const auto qwen = open();
  EXPECT_EQ(encode(*qwen, "12"), Ids({'1' - 0, '2' - 0})) << "Qwen takes digits one by one";
  EXPECT_EQ(encode(*qwen, "e\u0301"), encode(*qwen, "\u00e9")) << "and composes";
  EXPECT_EQ(encode(*qwen, "<think><|im_end|>", SpecialTokens::parsed), Ids({301, 300}));
  EXPECT_EQ(encode(*qwen, "<think><|im_end|>").front(), 301);
  EXPECT_GT(encode(*qwen, "<think><|im_end|>").size(), 2U);
  EXPECT_EQ(qwen->eos(), 300);
  EXPECT_EQ(qwen->vocab_size(), 302);
}

TEST_F(Folder, ClipMarksTheEndsOfWords) {
  Json vocabulary = byte_level_json({})["model"]["vocab"];
  for (int letter = 'a'; letter <= 'z'; ++letter)
    vocabulary[std::string(1, static_cast<char>(letter)) + "</w>"] = 300 + letter;
  vocabulary["7</w>"] = 500;
  vocabulary["ca"] = 501;
  vocabulary["cat</w>"] = 502;
  vocabulary["<|startoftext|>"] = 503;
  vocabulary["<|endoftext|>"] = 504;
  put("vocab.json", vocabulary.dump());
  put("merges.txt", "#version: 0.2\nc a\nca t</w>\n");
  put("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>",
      "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})");
  const auto clip = open();
  EXPECT_EQ(encode(*clip, " Cat\n cas77"), Ids({502, 501, 300 + 's', 500, 500}));
  EXPECT_EQ(clip->special().prefix, Ids({503}));
  EXPECT_EQ(clip->special().suffix, Ids({504}));
  EXPECT_EQ(clip->pad(), 504);
  EXPECT_EQ(clip->decode(Ids({502, 501, 300 + 's'})), "cat cas");
}

TEST_F(Folder, SpieceModelOfT5) {
  put("spiece.model", sentencepiece_file(llama2_model({"\u2581a", "b"})));
  put("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
  const auto t5 = open();
  EXPECT_THAT(t5->special().prefix, testing::IsEmpty());
  EXPECT_EQ(t5->special().suffix, Ids({2}));
}

TEST_F(Folder, VocabAndMergesThatAreWrong) {
  put("vocab.json", byte_level_json({})["model"]["vocab"].dump());
  EXPECT_THAT(refused(), HasSubstr("merges.txt"));
  put("merges.txt", "a b\n");
  EXPECT_THAT(refused(),
              testing::AllOf(HasSubstr("merges.txt"), HasSubstr("has 'ab', which is not in the vocabulary")));
  put("merges.txt", "a b c\n");
  EXPECT_THAT(refused(), HasSubstr("'a b c'"));
  put("merges.txt", "");
  put("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("'tokenizer_class'"), HasSubstr("got Bert")));
  put("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  EXPECT_THAT(refused(), HasSubstr("'added_tokens_decoder.x'"));
  put("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(refused(), HasSubstr("'bos_token'"));
}

/// 256 bytes in base64, then "ab", "abc" and " ab".
std::string small_ranks() {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (int byte = 0; byte < 256; ++byte)
    file += fmt::format("{}{}== {}\n", kDigits[byte / 4], kDigits[byte % 4 * 16], byte);
  return file + "YWI= 256\nYWJj 257\nIGFi 258\n";
}

TEST_F(Folder, TiktokenOfAnother) {
  put("tokenizer.model", small_ranks());
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model: the 259 ranks are not those of Llama 3"));
}

TEST_F(Folder, TiktokenThatIsWrong) {
  put("tokenizer.model", small_ranks() + "YWI= 259\n");
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model:260"));
  put("tokenizer.model", small_ranks() + "Y?I= 259\n");
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model:260: expected a token in base64"));
  put("tokenizer.model", small_ranks() + "YWI 259\n");
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model:260"));
  put("tokenizer.model", small_ranks() + "YWJk 99999999999\n");
  EXPECT_THAT(refused(), HasSubstr("99999999999"));
}

const std::vector<std::string> kPieces = {"\u2581",
                                          "a",
                                          "b",
                                          "\u00e9",
                                          "ab",
                                          "\u2581"
                                          "a",
                                          "\u2581\u2581",
                                          "\u2581"
                                          "ab",
                                          "ba"};

TEST_F(Folder, SentencePieceAsTheLibraryDoes) {
  SentencePieceModel model = llama2_model(kPieces);
  for (const char* text : {"[x]", "[x]a", "\n\n"})
    model.pieces.push_back({text, 0, SentencePieceModel::PieceKind::user_defined});
  const std::string file = sentencepiece_file(model);
  put("tokenizer.model", file);
  const auto tokenizer = open();
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(file).ok());
  std::mt19937 random;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t length = random() % 30; length > 0; --length)
      text += std::vector<std::string>{"a", "b", " ", "\u00e9", "\n", "\u4e2d", "[x]"}[random() % 7];
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    ASSERT_EQ(encode(*tokenizer, text), Ids(expected.begin(), expected.end())) << '"' << text << '"';
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
  EXPECT_EQ(tokenizer->special().prefix, Ids({1}));
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokens(*tokenizer, "<s>a", SpecialTokens::parsed), std::vector<std::string>({"<s>",
                                                                                         "\u2581"
                                                                                         "a"}));
  EXPECT_EQ(encode(*tokenizer, "a\xFF").back(), 3 + 255);
}

TEST_F(Folder, SentencePieceWithAddedTokens) {
  put("tokenizer.model", sentencepiece_file(llama2_model(kPieces)));
  put("added_tokens.json", R"({"<|end|>": 270})");
  put("tokenizer_config.json", R"({"legacy": false, "add_bos_token": false, "pad_token": "<|end|>"})");
  const auto tokenizer = open();
  EXPECT_EQ(tokens(*tokenizer, "a<|end|>a", SpecialTokens::parsed),
            std::vector<std::string>({"\u2581"
                                      "a",
                                      "<|end|>", "a"}));
  EXPECT_EQ(tokenizer->pad(), 270);
  EXPECT_EQ(tokenizer->vocab_size(), 271);
  EXPECT_TRUE(tokenizer->special().prefix.empty());
}

/// What our own merges do not cover goes through the library.
TEST_F(Folder, SentencePieceOfOtherKinds) {
  SentencePieceModel model = llama2_model(kPieces);
  model.kind = SentencePieceModel::Kind::unigram;
  model.remove_extra_spaces = true;
  for (SentencePieceModel::Piece& piece : model.pieces) piece.score = -1;
  put("tokenizer.model", sentencepiece_file(model));
  const auto tokenizer = open();
  EXPECT_EQ(tokens(*tokenizer, "  ab  a ", SpecialTokens::parsed), std::vector<std::string>({"\u2581"
                                                                                             "ab",
                                                                                             "\u2581"
                                                                                             "a"}));
  EXPECT_EQ(tokens(*tokenizer, "a</s>a", SpecialTokens::parsed), std::vector<std::string>({"\u2581"
                                                                                           "a",
                                                                                           "</s>",
                                                                                           "\u2581"
                                                                                           "a"}));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "ab a</s>", SpecialTokens::parsed)), "ab a</s>");
  EXPECT_EQ(tokenizer->decode(Ids({-5, 1 << 29})), "");
  EXPECT_EQ(tokenizer->id_of("ab"), 263);
  EXPECT_EQ(tokenizer->id_of("xyz"), std::nullopt);
}

TEST_F(Folder, SentencePieceThatIsWrong) {
  const std::string file = sentencepiece_file(llama2_model(kPieces));
  put("tokenizer.model", file.substr(0, file.size() - 3));
  EXPECT_THAT(refused(),
              testing::AllOf(HasSubstr("tokenizer.model"), HasSubstr("it is incomplete; download it again")));
  put("tokenizer.model", "");
  EXPECT_THAT(refused(), HasSubstr("no pieces"));
  std::string unknown_type;
  ProtobufWriter out(unknown_type);
  out.message(1, [&] { out.bytes(1, "a").integer(3, 77); });
  put("tokenizer.model", unknown_type);
  EXPECT_THAT(refused(), HasSubstr("77"));
  put("tokenizer.model", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_THAT(refused(), HasSubstr("it is incomplete; download it again"));
  put("tokenizer.model", std::string("\x0a\x03\x0a\x01\x61\x0a\x02\x0a\x05"));
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model: byte 9: "));
  put("tokenizer.model", "<html>");
  EXPECT_THAT(refused(), HasSubstr("tokenizer.model"));
}

}  // namespace
}  // namespace hearth::text
