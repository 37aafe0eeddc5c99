#include "support.h"
#include "text/components_json.h"

namespace hearth::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Tokens = std::vector<std::string>;

Json unigram_json(const std::vector<std::pair<std::string, double>>& vocabulary, const Json& unk_id = 0) {
  return {{"model", {{"type", "Unigram"}, {"unk_id", unk_id}, {"vocab", vocabulary}}}};
}

TEST(Unigram, TakesTheTokensOfTheLargestSum) {
  const auto tokenizer = load(unigram_json({{"<unk>", 0},
                                            {"a", 0},
                                            {"b", 0},
                                            {"c", 0},
                                            {"d", 0},
                                            {"cd", 1},
                                            {"ab", 2},
                                            {"abc", 5},
                                            {"abcd", 10}}));
  EXPECT_EQ(tokens(*tokenizer, "abcdacdab"), Tokens({"abcd", "a", "cd", "ab"}));
  EXPECT_EQ(tokenizer->decode(Ids({8, 1})), "abcd a") << "as without a decoder";
  EXPECT_EQ(tokenizer->special().unk, 0);
}

TEST(Unigram, OfEqualSumsTheOneWithTheLongestLastTokenCounts) {
  const auto tokenizer =
      load(unigram_json({{"<unk>", 0}, {"a", -1}, {"b", -1}, {"c", -1}, {"ab", -2}, {"bc", -2}}));
  EXPECT_EQ(tokens(*tokenizer, "abc"), Tokens({"a", "bc"}));
  EXPECT_EQ(tokens(*tokenizer, "ab"), Tokens({"ab"}));
}

TEST(Unigram, UnknownCharactersAreOneToken) {
  const auto tokenizer = load(unigram_json({{"<unk>", 0}, {"a", -1}, {"xy", -50}}));
  EXPECT_EQ(encode(*tokenizer,
                   "\u00e9\u4e2d"
                   "a\xFF"),
            Ids({0, 1, 0}));
  EXPECT_EQ(encode(*tokenizer, "xy"), Ids({2}));
  EXPECT_EQ(encode(*tokenizer, "axyz"), Ids({1, 2, 0}))
      << "the worst token is better than two unknown characters";
  EXPECT_EQ(encode(*tokenizer, "a<unk>"), Ids({1, 0}));
  const auto known = load(unigram_json({{"a", -1}}, nullptr));
  EXPECT_EQ(encode(*known, "aa"), Ids({0, 0}));
  EXPECT_THAT(refusal([&] { encode(*known, "ab"); }), AllOf(HasSubstr("'model'"), HasSubstr("unk_id")));
}

TEST(Unigram, UnknownPartsBecomeBytesWhereThereAreAll) {
  Json json = unigram_json({{"<unk>", 0}, {"a", -1}, {"<0xC3>", -9}, {"<0xA9>", -9}, {"<0x62>", -9}});
  EXPECT_EQ(tokens(*load(json), "a\u00e9"), Tokens({"a", "<unk>"}));
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(tokens(*load(json),
                   "a\u00e9"
                   "b"),
            Tokens({"a", "<0xC3>", "<0xA9>", "<0x62>"}));
  EXPECT_EQ(tokens(*load(json), "a\u00e9x"), Tokens({"a", "<unk>"})) << "one byte is missing";
}

/// Looking for all tokens at every place takes no longer than the longest.
TEST(Unigram, TokensHaveAMostLength) {
  const std::string text(200'000, 'a');
  const auto tokenizer = load(unigram_json({{"<unk>", 0}, {"a", -1}, {std::string(1023, 'a') + "b", -1}}));
  EXPECT_EQ(encode(*tokenizer, text).size(), text.size());
  EXPECT_THAT(refusal([&] { load(unigram_json({{std::string(1025, 'a'), 0}})); }), HasSubstr("1024 bytes"));
}

TEST(Unigram, RefusesWhatIsNone) {
  const auto refused = [](const Json& vocabulary, const Json& unk_id) {
    return refusal([&] {
      load({{"model", {{"type", "Unigram"}, {"unk_id", unk_id}, {"vocab", vocabulary}}}});
    });
  };
  EXPECT_THAT(refused(Json::array(), nullptr), HasSubstr("'model.vocab'"));
  EXPECT_THAT(refused({{"a", 0}}, nullptr), HasSubstr("'model.vocab'"));
  EXPECT_THAT(refused({{"a", "b"}, {"b", 1}}, nullptr), HasSubstr("'model.vocab'"));
  EXPECT_THAT(refused(Json::array({Json::array({"a", 0})}), 1), HasSubstr("'model.unk_id'"));
  EXPECT_THAT(refused(Json::array({Json::array({"a", 0}), Json::array({"a", 1})}), nullptr),
              HasSubstr("'a' occurs twice"));
}

std::string to_base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (at + i < bytes.size() ? uint8_t(bytes[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63];
  }
  return text;
}

/// A map of three keys of one byte: a -> "x", b -> "", c -> "long".
class SmallMap {
 public:
  SmallMap() : units_(512) {
    units_[0] = 256U << 10;
    for (const char key : {'a', 'b', 'c'})
      units_[256U ^ static_cast<uint8_t>(key)] = static_cast<uint8_t>(key);
    set('a', 1, 0);
    set('b', 2, 2);
    set('c', 4, 3);
  }
  std::vector<uint32_t>& units() { return units_; }
  std::string bytes() const {
    std::string bytes;
    const auto put = [&](uint32_t value) {
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift);
    };
    put(static_cast<uint32_t>(4 * units_.size()));
    for (const uint32_t unit : units_) put(unit);
    return bytes + std::string("x\0\0long\0", 8);
  }
  void set(char key, uint32_t leaf, uint32_t string) {
    const uint32_t place = 256U ^ static_cast<uint8_t>(key);
    units_[place] |= 1U << 8 | (place ^ leaf) << 10;
    units_[leaf] = 1U << 31 | string;
  }

 private:
  std::vector<uint32_t> units_;
};

Normalizer precompiled(const std::string& bytes) {
  const Json json = {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(bytes)}};
  return parse_normalizer(JsonNode(json, "test"));
}

std::string mapped(const std::string& bytes, std::string text) {
  RegexScratch scratch;
  precompiled(bytes).apply(text, scratch);
  return text;
}

TEST(Precompiled, MapsCharactersAndShortClusters) {
  const SmallMap map;
  EXPECT_EQ(mapped(map.bytes(), "abcd a\xFF"), "xlongd x\xFF");
  EXPECT_EQ(mapped(map.bytes(), "a\u0301b"), "x") << "the shortest key stands for the whole cluster";
  EXPECT_EQ(mapped(map.bytes(), "a\u0301\u0301\u0301b"), "x\u0301\u0301\u0301") << "but not for a long one";
  EXPECT_EQ(mapped(map.bytes(), ""), "");
}

TEST(Precompiled, RefusesBrokenMaps) {
  const auto refused = [](const std::string& bytes, const std::string& text) {
    return refusal([&] { mapped(bytes, text); });
  };
  const std::string good = SmallMap().bytes();
  EXPECT_THAT(refused(good.substr(0, 3), ""), HasSubstr("'precompiled_charsmap'"));
  EXPECT_THAT(refused(good.substr(0, 2000), ""), HasSubstr("'precompiled_charsmap'"));
  EXPECT_THAT(refused(std::string(8, '\0'), ""), HasSubstr("'precompiled_charsmap'"));
  EXPECT_THAT(refused(good + "\xFF", ""), HasSubstr("UTF-8"));
  SmallMap outside;
  outside.units()[0] = 100'000U << 10;
  EXPECT_THAT(refused(outside.bytes(), "a"), HasSubstr("512 units"));
  SmallMap beyond;
  beyond.set('a', 1, 9);
  EXPECT_THAT(refused(beyond.bytes(), "a"), HasSubstr("no string starts at byte 9 of 8"));
  const Json json = {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}};
  EXPECT_THAT(refusal([&] { parse_normalizer(JsonNode(json, "test")); }), HasSubstr("base64"));
}

TEST(Precompiled, GrowthIsBounded) {
  std::string map = SmallMap().bytes();
  map.replace(map.size() - 2, 1, std::string(5000, 'g'));
  EXPECT_THAT(refusal([&] { mapped(map, "c"); }), HasSubstr("64 times"));
}

TEST(Nmt, LeavesOutControlsAndMakesSpaces) {
  const Json json = {{"type", "Nmt"}};
  std::string text = "a\x01\x7F\tb\u200b\u2581\ufeffc\u00a0";
  RegexScratch scratch;
  parse_normalizer(JsonNode(json, "test")).apply(text, scratch);
  EXPECT_EQ(text, "a b   c\u00a0");
}

/// What the first character of the text becomes, and what is put ahead of it, is first.
TEST(Metaspace, FirstIsWhatTheTextBeginsWith) {
  const auto encoded = [](const Json& normalizer, const Json& pre_tokenizers, const char* text) {
    Json json = unigram_json({{"<unk>", 0}, {"\u2581", -1}, {"a", -1}, {"!", -1}});
    json["normalizer"] = normalizer;
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", pre_tokenizers}};
    return tokens(*load(json), text);
  };
  const Json first = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const Json split = {{"type", "Punctuation"}};
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "!"}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "!"}};
  EXPECT_EQ(encoded(nullptr, Json::array({first}), "a"), Tokens({"\u2581", "a"}));
  EXPECT_EQ(encoded(strip, Json::array({first}), " a"), Tokens({"a"}));
  EXPECT_EQ(encoded({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, Json::array({first}),
                    "\u00a0a"),
            Tokens({"\u2581", "<unk>", "a"}));
  EXPECT_EQ(encoded(strip, Json::array({first}), "a"), Tokens({"\u2581", "a"}));
  EXPECT_EQ(encoded({{"type", "StripAccents"}}, Json::array({first}), "\u0301a"), Tokens({"a"}));
  EXPECT_EQ(encoded(replace, Json::array({first}), "  a"), Tokens({"!", "a"}));
  EXPECT_EQ(encoded(prepend, Json::array({split, first}), "aa!"),
            Tokens({"\u2581", "!", "\u2581", "a", "a", "!"}));
}

}  // namespace
}  // namespace hearth::text
