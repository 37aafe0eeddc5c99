#include "support.h"
#include "text/tokenizer.h"

namespace hearth::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refused(const Json& json) {
  return refusal([&] { load(json); });
}

TEST(TokenizerJson, ByteLevelThereAndBack) {
  Json json = byte_level_json({"t h", "th e", "\u0120 the"});
  json["normalizer"] = {{"type", "NFC"}};
  json["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
  const auto tokenizer = load(json);
  EXPECT_EQ(encode(*tokenizer, "the the"), Ids({257, 258}));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, all)), all) << "bytes that are no text";
  EXPECT_EQ(tokenizer->id_of("\u0120the"), 258);
  EXPECT_EQ(tokenizer->id_of(" the"), std::nullopt);
  EXPECT_EQ(tokenizer->token(258), "\u0120the");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->token(259), "");
  EXPECT_EQ(tokenizer->decode(Ids({-1, 257, 259, 1 << 30})), "the");
}

TEST(TokenizerJson, MetaspaceThereAndBack) {
  const auto tokenizer = load(metaspace_json({"\u2581", "a",
                                              "\u2581"
                                              "a"},
                                             {"\u2581 a"}));
  for (const std::string text : {"a", " a", "  a  a ", "\n", " ", "a\xFF"}) {
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
  EXPECT_EQ(encode(*tokenizer, ""), Ids());
  EXPECT_EQ(tokens(*tokenizer, "a"), std::vector<std::string>({"\u2581"
                                                               "a"}));
}

TEST(TokenizerJson, WhatGoesAroundAText) {
  Json json = byte_level_json({});
  json["added_tokens"] = {{{"id", 256}, {"content", "<s>"}, {"special", true}},
                          {{"id", 257}, {"content", "</s>"}, {"special", true}}};
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
         {"special_tokens", {{"<s>", {{"ids", {256}}}}, {"</s>", {{"ids", {257, 256}}}}}}}}}};
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->special().prefix, Ids({256}));
  EXPECT_EQ(tokenizer->special().suffix, Ids({257, 256}));
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_FALSE(tokenizer->is_special(65));
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 257}}, {"cls", {"<s>", 256}}};
  EXPECT_EQ(load(json)->special().prefix, Ids({256}));
  EXPECT_EQ(load(json)->special().suffix, Ids({257}));
}

TEST(TokenizerJson, RolesComeFromTheConfigBesideIt) {
  const TemporaryFolder folder;
  Json json = byte_level_json({});
  json["added_tokens"] = {{{"id", 256}, {"content", "<s>"}, {"special", true}},
                          {{"id", 257}, {"content", "</s>"}, {"special", true}}};
  put(folder.path() / "tokenizer.json", json.dump());
  EXPECT_EQ(open_tokenizer(folder.path())->bos(), std::nullopt);
  const Json config = {{"bos_token", "<s>"}, {"pad_token", nullptr}, {"eos_token", {{"content", "</s>"}}}};
  put(folder.path() / "tokenizer_config.json", config.dump());
  put(folder.path() / "special_tokens_map.json", R"({"pad_token": "</s>", "bos_token": "A"})");
  const auto tokenizer = open_tokenizer(folder.path() / "tokenizer.json");
  EXPECT_EQ(tokenizer->bos(), 256);
  EXPECT_EQ(tokenizer->eos(), 257);
  EXPECT_EQ(tokenizer->pad(), 257);
}

TEST(TokenizerJson, PrefixSpaceFollowsTheConfigAsInTransformers) {
  const TemporaryFolder folder;
  const auto encoded = [&](bool written, const Json& config) {
    Json json = byte_level_json({});
    json["pre_tokenizer"]["add_prefix_space"] = written;
    put(folder.path() / "tokenizer.json", json.dump());
    put(folder.path() / "tokenizer_config.json", config.dump());
    return open_tokenizer(folder.path());
  };
  const Json gpt2 = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}};
  const Json general = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  EXPECT_EQ(encode(*encoded(false, gpt2), "a"), Ids({' ', 'a'}));
  EXPECT_EQ(encode(*encoded(true, Json::object()), "a"), Ids({'a'}));
  EXPECT_EQ(encode(*encoded(false, general), "a"), Ids({'a'}));
  EXPECT_THAT(refusal([&] { encoded(true, general); }),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'add_prefix_space'")));
}

TEST(TokenizerJson, RefusesWhatItLacks) {
  const auto with = [](const std::string& component, const char* type) {
    Json json = byte_level_json({});
    json[component]["type"] = type;
    return refused(json);
  };
  EXPECT_THAT(with("model", "Letters"),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("'model.type'"), HasSubstr("\"Letters\"")));
  EXPECT_THAT(with("normalizer", "Uppercase"), AllOf(HasSubstr("'normalizer.type'"), HasSubstr("Uppercase")));
  EXPECT_THAT(with("pre_tokenizer", "UnicodeScripts"),
              AllOf(HasSubstr("'pre_tokenizer.type'"), HasSubstr("UnicodeScripts")));
  EXPECT_THAT(with("decoder", "CTC"), AllOf(HasSubstr("'decoder.type'"), HasSubstr("CTC")));
  EXPECT_THAT(with("post_processor", "Nothing"),
              AllOf(HasSubstr("'post_processor.type'"), HasSubstr("Nothing")));
  Json json = bpe_json({"a"}, {});
  json["decoder"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(refused(json), HasSubstr("'decoder'"));
  json = bpe_json({"a"}, {});
  json["model"]["dropout"] = 0.1;
  EXPECT_THAT(refused(json), HasSubstr("'model.dropout'"));
  json["model"]["dropout"] = 0.0;
  json["model"]["continuing_subword_prefix"] = "##";
  EXPECT_THAT(refused(json), HasSubstr("'model.continuing_subword_prefix'"));
}

TEST(TokenizerJson, RefusesLies) {
  Json json = bpe_json({"a", "b"}, {"a b"});
  EXPECT_THAT(refused(json),
              AllOf(HasSubstr("merge 0"), HasSubstr("has 'ab', which is not in the vocabulary")));
  json = bpe_json({"a", "b"}, {"ab"});
  EXPECT_THAT(refused(json), AllOf(HasSubstr("merge 0"), HasSubstr("'ab'")));
  json = bpe_json({"a", "b"}, {});
  json["model"]["vocab"]["c"] = 4'000'000'000;
  EXPECT_THAT(refused(json), AllOf(HasSubstr("4000000000"), HasSubstr("'c'"), HasSubstr("4194303")));
  json["model"]["vocab"]["c"] = -1;
  EXPECT_THAT(refused(json), HasSubstr("-1"));
  json["model"]["vocab"]["c"] = 1;
  EXPECT_THAT(refused(json), HasSubstr("id 1 has two tokens"));
  json["model"]["vocab"]["c"] = "x";
  EXPECT_THAT(refused(json), HasSubstr("'c'"));
  json["model"]["vocab"]["c"] = 2;
  json["model"]["unk_token"] = "?";
  EXPECT_THAT(refused(json), HasSubstr("'model.unk_token'"));
  json["model"].erase("unk_token");
  json["added_tokens"] = {{{"id", 1 << 30}, {"content", "x"}}};
  EXPECT_THAT(refused(json), HasSubstr("'added_tokens[0].id'"));
  json["added_tokens"] = {{{"id", 3}, {"content", ""}}};
  EXPECT_THAT(refused(json), HasSubstr("'added_tokens[0].content'"));
  json.erase("model");
  json["added_tokens"] = Json::array();
  EXPECT_THAT(refused(json), HasSubstr("'model'"));
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  const auto parse = [](const std::string& text) {
    return refusal([&] { parse_tokenizer_json(text, "x.json", {}); });
  };
  EXPECT_THAT(parse(""), HasSubstr("x.json"));
  EXPECT_THAT(parse("{\"model\":"), HasSubstr("breaks at byte 9 of 9"));
  EXPECT_THAT(parse("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(parse("{\"a\":\"\xFF\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(parse(std::string(1'000'000, '[')), HasSubstr("nested at most 64 deep"));
  EXPECT_THAT(parse("{\"a\":\"" + std::string(100, '[') + "\"}"), HasSubstr("'model'"));
  EXPECT_THAT(parse("{\"a\":1e999}"), HasSubstr("out of range"));
}

}  // namespace
}  // namespace hearth::text
