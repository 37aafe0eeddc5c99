#include "support.h"
#include "text/components_json.h"
#include "text/tokenizer.h"

namespace hearth::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Tokens = std::vector<std::string>;

Json vocabulary_json(const Tokens& vocabulary) {
  Json vocab = Json::object();
  for (size_t id = 0; id < vocabulary.size(); ++id) vocab[vocabulary[id]] = id;
  return vocab;
}

Json word_level_json(const Tokens& vocabulary) {
  return {{"model", {{"type", "WordLevel"}, {"vocab", vocabulary_json(vocabulary)}, {"unk_token", "[UNK]"}}},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
}

Json word_piece_json(const Tokens& vocabulary) {
  return {{"model",
           {{"type", "WordPiece"},
            {"vocab", vocabulary_json(vocabulary)},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 5}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}};
}

Json bert_normalizer(bool lowercase, const Json& strip_accents = nullptr) {
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", true},
          {"strip_accents", strip_accents},
          {"lowercase", lowercase}};
}

TEST(WordLevel, WordsAreTokensOrUnknown) {
  const auto tokenizer = load(word_level_json({"[UNK]", "a", "bc", "\u00e9"}));
  EXPECT_EQ(tokens(*tokenizer, " bc a  b \u00e9 a\xFF"),
            Tokens({"bc", "a", "[UNK]", "\u00e9", "a", "[UNK]"}));
  EXPECT_EQ(tokenizer->decode(Ids({2, 1, 0})), "bc a [UNK]") << "as without a decoder";
  EXPECT_EQ(tokenizer->special().unk, 0);
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  const auto known = load(word_level_json({"a"}));
  EXPECT_EQ(tokens(*known, "a"), Tokens({"a"}));
  EXPECT_THAT(refusal([&] { encode(*known, "b"); }), AllOf(HasSubstr("'model'"), HasSubstr("unk_token")));
}

TEST(WordPiece, TakesTheLongestTokenThatFits) {
  const auto tokenizer =
      load(word_piece_json({"[UNK]", "a", "ab", "##c", "##cd", "##d", ",", "##", "##\u00e9"}));
  EXPECT_EQ(tokens(*tokenizer, "abcd"), Tokens({"ab", "##cd"}));
  EXPECT_EQ(tokens(*tokenizer, "acd,a"), Tokens({"a", "##cd", ",", "a"}));
  EXPECT_EQ(tokens(*tokenizer, "abx a"), Tokens({"[UNK]", "a"})) << "one part makes the whole word unknown";
  EXPECT_EQ(tokens(*tokenizer, "d"), Tokens({"[UNK]"})) << "only as a continuation";
  EXPECT_EQ(tokens(*tokenizer, "a\u00e9\u00e9\u00e9\u00e9"),
            Tokens({"a", "##\u00e9", "##\u00e9", "##\u00e9", "##\u00e9"}));
  EXPECT_EQ(tokens(*tokenizer, "a\u00e9\u00e9\u00e9\u00e9\u00e9"), Tokens({"[UNK]"})) << "six characters";
  EXPECT_EQ(tokenizer->decode(Ids({2, 4, 6, 1, 0})), "abcd, a [UNK]");
  EXPECT_EQ(tokenizer->special().unk, 0);
  const auto known = load(word_piece_json({"a"}));
  EXPECT_THAT(refusal([&] { encode(*known, "b"); }), AllOf(HasSubstr("'model'"), HasSubstr("unk_token")));
}

/// Looking for all tokens at every place takes no longer than the longest.
TEST(WordPiece, TokensHaveAMostLength) {
  Json json = word_piece_json({"[UNK]", "a", "##a", "##" + std::string(1021, 'a') + "b"});
  json["model"]["max_input_chars_per_word"] = 1 << 30;
  EXPECT_EQ(encode(*load(json), std::string(100'000, 'a')).size(), 100'000U);
  json["model"]["vocab"][std::string(1025, 'a')] = 4;
  EXPECT_THAT(refusal([&] { load(json); }), AllOf(HasSubstr("1025"), HasSubstr("1024 bytes")));
}

TEST(Components, NormalizersAndDecodersHaveAMostNumberOfSteps) {
  const auto refused = [](const char* component, const char* list, const Json& step) {
    Json json = word_level_json({"a"});
    json[component] = {{"type", "Sequence"}, {list, std::vector<Json>(257, step)}};
    return refusal([&] { load(json); });
  };
  EXPECT_THAT(refused("normalizer", "normalizers", {{"type", "Lowercase"}}),
              AllOf(HasSubstr("'normalizer'"), HasSubstr("256")));
  EXPECT_THAT(refused("decoder", "decoders", {{"type", "Fuse"}}),
              AllOf(HasSubstr("'decoder'"), HasSubstr("256")));
}

TEST(WordPiece, RefusesWhatIsMissingOrNotItsOwn) {
  for (const char* key : {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}) {
    Json json = word_piece_json({"a"});
    json["model"].erase(key);
    EXPECT_THAT(refusal([&] { load(json); }), AllOf(HasSubstr("'model'"), HasSubstr(key)));
  }
  Json json = word_piece_json({"a"});
  json["pre_tokenizer"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(refusal([&] { load(json); }), AllOf(HasSubstr("'model.type'"), HasSubstr("ByteLevel")));
}

std::string normalized(const Json& normalizer, std::string text) {
  RegexScratch scratch;
  parse_normalizer(JsonNode(normalizer, "test")).apply(text, scratch);
  return text;
}

TEST(BertNormalizer, CleansSpacesAndStrips) {
  EXPECT_EQ(normalized(bert_normalizer(true), "H\u00c9llo\t\u4e2d\u6587 x\u0001y\u200d\ufffd\u00a0Z"),
            "hello  \u4e2d  \u6587  xy z");
  EXPECT_EQ(normalized(bert_normalizer(false), "H\u00c9"), "H\u00c9") << "accents go with capital letters";
  EXPECT_EQ(normalized(bert_normalizer(true, false), "H\u00c9"), "h\u00e9");
  EXPECT_EQ(normalized(bert_normalizer(false, true), "H\u00c9"), "HE");
  EXPECT_EQ(normalized(bert_normalizer(true), "\xFF\xC3"), "\xFF\xC3") << "bytes stay";
  EXPECT_EQ(normalized(bert_normalizer(true), "\u0130"), "i") << "stripped before it is lowered";
}

TEST(BertNormalizer, FollowsTheConfigBesideItAsInTransformers) {
  const TemporaryFolder folder;
  Json json = word_level_json({"[UNK]", "H\u00c9", "h\u00c9", "h\u00e9", "he", "HE"});
  json["normalizer"] = bert_normalizer(true);
  put(folder.path() / "tokenizer.json", json.dump());
  const auto encoded = [&](const Json& config) {
    put(folder.path() / "tokenizer_config.json", config.dump());
    return tokens(*open_tokenizer(folder.path()), "H\u00c9");
  };
  EXPECT_EQ(encoded({{"tokenizer_class", "BertTokenizerFast"}}), Tokens({"he"}));
  EXPECT_EQ(encoded({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}}), Tokens({"H\u00c9"}));
  EXPECT_EQ(encoded({{"do_lower_case", false}, {"strip_accents", true}}), Tokens({"HE"}));
  EXPECT_EQ(encoded({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"do_lower_case", false}}),
            Tokens({"he"}));
}

/// Hugging Face's tables are those of an older Unicode.
TEST(BertNormalizer, MarksAreThoseOfItsUnicode) {
  EXPECT_EQ(normalized(bert_normalizer(false, true), "a\u0300\u20dd\u0903\u1dfa"), "a\u20dd\u0903\u1dfa");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "a\u0300\u20dd\u0903\u1dfa\u1cf2"), "a\u1dfa");
}

TEST(NormalForms, AreThoseOfAnOlderUnicode) {
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "\u2460\U0001fbf9\U0001e030\u00e9"),
            "1\U0001fbf9\U0001e030e\u0301");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\u0301 e\u1dfa\u0301"), "\u00e9 e\u1dfa\u0301");
}

/// The order of many marks is found in less than the square of their number.
TEST(NormalForms, ManyMarksAreOrdered) {
  std::string mixed = "a", above, below;
  for (int i = 0; i < 100'000; ++i) {
    mixed += "\u0301\u0323";
    above += "\u0301";
    below += "\u0323";
  }
  EXPECT_EQ(normalized({{"type", "NFD"}}, mixed), "a" + below + above);
  EXPECT_EQ(normalized({{"type", "NFC"}}, "\u0f73\u0f73e\u0301\u0323\uac00\u11a8"),
            "\u0f71\u0f71\u0f72\u0f72\u1eb9\u0301\uac01");
}

TEST(PostProcessor, LaterOnesGoAroundEarlierOnes) {
  Json json = word_level_json({"a", "b", "c", "d"});
  const Json inner = {{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", 1}}};
  const Json outer = {{"type", "RobertaProcessing"}, {"cls", {"c", 2}}, {"sep", {"d", 3}}};
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {inner, outer}}};
  EXPECT_EQ(load(json)->special().prefix, Ids({2, 0}));
  EXPECT_EQ(load(json)->special().suffix, Ids({1, 3}));
}

TEST(PostProcessor, ATemplateHoldsTheTextOnce) {
  const auto refused = [](const Json& pieces) {
    Json json = word_level_json({"a"});
    json["post_processor"] = {
        {"type", "TemplateProcessing"}, {"single", pieces}, {"special_tokens", Json::object()}};
    return refusal([&] { load(json); });
  };
  const Json a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, b = {{"Sequence", {{"id", "B"}}}};
  EXPECT_THAT(refused({a, a}), HasSubstr("'post_processor.single[1]'"));
  EXPECT_THAT(refused(Json::array({b})), HasSubstr("one Sequence A"));
  EXPECT_THAT(refused(Json::array()), HasSubstr("one Sequence A"));
}

}  // namespace
}  // namespace hearth::text
