#include "support.h"
#include "text/components_json.h"

namespace hearth::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const Json& pre_tokenizer, std::string_view text, bool first = true) {
  const PreTokenizer parsed = parse_pre_tokenizer(JsonNode(pre_tokenizer, "test")).pre_tokenizer;
  SplitScratch scratch;
  Pieces pieces;
  parsed.split(text, first, scratch, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

Json split_json(const char* regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(Split, AsGpt2) {
  const Json gpt2 = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(split(gpt2, "Hello  world's 123!\n\n x"),
            Pieces({"Hello", " ", " world", "'s", " 123", "!", "\n\n", " x"}));
  EXPECT_EQ(split(gpt2, "caf\u00e9\u00a0\u4e2d\u6587"), Pieces({"caf\u00e9", "\u00a0", "\u4e2d\u6587"}));
  EXPECT_EQ(split(gpt2, ""), Pieces());
  EXPECT_EQ(split({{"type", "ByteLevel"}}, "Hello"), Pieces({" Hello"}));
  EXPECT_EQ(split({{"type", "ByteLevel"}}, " Hello"), Pieces({" Hello"}));
}

TEST(Split, AsLlama3AndQwen2) {
  EXPECT_EQ(split(split_json(kLlama3Pattern), "ab1234 I'LL\r\n (x)"),
            Pieces({"ab", "123", "4", " I", "'LL", "\r\n", " (", "x", ")"}));
  EXPECT_EQ(split(split_json(kQwen2Pattern), "ab123 .\n\n"), Pieces({"ab", "1", "2", "3", " .\n\n"}));
}

/// What the tokenizers package finds, whose regular expressions Oniguruma reads.
TEST(Split, RegexesAsOnigurumaReadsThem) {
  const auto found = [](const char* regex, std::string_view text) {
    const Json json = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Removed"}, {"invert", true}};
    return split(json, text);
  };
  EXPECT_EQ(found("\\w", "\u0301\u24d0\u00b2_9\u2460\u200d-"),
            Pieces({"\u0301", "\u24d0", "\u00b2", "_", "9"}));
  EXPECT_EQ(found("[\\w]", "\u0301\u24d0\u00b2"), Pieces({"\u0301", "\u24d0"}));
  EXPECT_EQ(found("\\W", "a\u0301\u2460\u00bc-"), Pieces({"\u2460", "-"}));
  EXPECT_EQ(found("e\\b.", "e\u0301e-"), Pieces({"e-"}));
  EXPECT_EQ(found("\\p{Han}", "\u4e00\u3001\u3005\u30fc"), Pieces({"\u4e00", "\u3005"}));
  EXPECT_EQ(found("\\s|[^\\S\n]", "\u180e \u0085"), Pieces({" ", "\u0085"}));
  EXPECT_EQ(found("\\p{N}{1,3}+", "1234567"), Pieces({"1234567"}));
  EXPECT_EQ(found("b{x|a{,2}", "aaab{x"), Pieces({"aa", "a", "b{x"}));
  EXPECT_EQ(found("^b|a$|(?m:c.)", "a\nb\nc\n"), Pieces({"a", "b", "c\n"}));
  EXPECT_EQ(found("\\v|\\h|\\u4e00", "\x0b\u0085g0\u4e00"), Pieces({"\x0b", "0", "\u4e00"}));
  for (const char* other :
       {"[a[bc]]", "[a&&b]", "[[:alpha:]]", "\\R", "\\pL", "(?s).", "a(?i)b|c", "[\\w-x]", "[+-\\d]", "\\xe4",
        "(?<n>a)", "(*FAIL)", "a)", "[a", "\\p{Emoji_Modifier}", "\\"}) {
    EXPECT_THAT(refusal([&] { found(other, "a"); }),
                testing::AllOf(testing::HasSubstr("the regular expression '"),
                               testing::HasSubstr("is not supported")))
        << other;
  }
}

TEST(Split, TheFiveBehaviors) {
  const auto at_dash = [](const char* behavior, bool invert = false) {
    const Json json = {
        {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
    return split(json, "the-final--countdown");
  };
  EXPECT_EQ(at_dash("Removed"), Pieces({"the", "final", "countdown"}));
  EXPECT_EQ(at_dash("Isolated"), Pieces({"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(at_dash("MergedWithPrevious"), Pieces({"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(at_dash("MergedWithNext"), Pieces({"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(at_dash("Contiguous"), Pieces({"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(at_dash("Removed", true), Pieces({"-", "-", "-"}));
}

TEST(Split, TheOtherKinds) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", false}};
  EXPECT_EQ(split(digits, "Call 123 please"), Pieces({"Call ", "123", " please"}));
  const Json each = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(split(each, "Call 123"), Pieces({"Call ", "1", "2", "3"}));
  EXPECT_EQ(split({{"type", "Punctuation"}}, "Hey friend!     How are you?!?"),
            Pieces({"Hey friend", "!", "     How are you", "?", "!", "?"}));
  EXPECT_EQ(split({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "you?!?"), Pieces({"you", "?!?"}));
  EXPECT_EQ(split({{"type", "Whitespace"}}, "Hey man! x_1"), Pieces({"Hey", "man", "!", "x_1"}));
  EXPECT_EQ(split({{"type", "WhitespaceSplit"}}, " Hey  man!\n"), Pieces({"Hey", "man!"}));
  EXPECT_EQ(split({{"type", "CharDelimiterSplit"}, {"delimiter", "x"}}, "axxb"), Pieces({"a", "b"}));
}

/// ASCII but for letters, digits and spaces, and punctuation as an older Unicode has it.
TEST(Split, PunctuationOfBert) {
  EXPECT_EQ(split({{"type", "BertPreTokenizer"}}, " a+b\u00a0$1\u3002\u2e4f\u2020 x'"),
            Pieces({"a", "+", "b", "$", "1", "\u3002", "\u2e4f", "\u2020", "x", "'"}));
  EXPECT_EQ(split({{"type", "Punctuation"}}, "a\u00b4\u2e4fb\u166dc\u20acd"),
            Pieces({"a\u00b4\u2e4fb", "\u166d", "c\u20acd"}));
}

TEST(Split, Metaspace) {
  const Json always = {{"type", "Metaspace"}, {"replacement", kMetaspace}, {"add_prefix_space", true}};
  EXPECT_EQ(split(always, "Hey   friend!"), Pieces({"\u2581Hey", "\u2581", "\u2581", "\u2581friend!"}));
  EXPECT_EQ(split(always, " Hey"), Pieces({"\u2581Hey"}));
  const Json first = {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_EQ(split(first, "Hey friend", true), Pieces({"\u2581Hey\u2581friend"}));
  EXPECT_EQ(split(first, "Hey friend", false), Pieces({"Hey\u2581friend"}));
  const Json never = {{"type", "Metaspace"}, {"prepend_scheme", "never"}};
  EXPECT_EQ(split(never, "Hey friend"), Pieces({"Hey", "\u2581friend"}));
}

TEST(Split, OnlyTheFirstPieceIsFirst) {
  const Json json = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split_json("b"), {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}}}}};
  EXPECT_EQ(split(json, "aba"), Pieces({"\u2581"
                                        "a",
                                        "b", "a"}));
}

/// Falcon splits digits after ByteLevel, where the byte 0xB2 is spelled with a character that is a number.
TEST(Split, WhatFollowsByteLevelSeesItsSpelling) {
  const Json json = {{"type", "Sequence"},
                     {"pretokenizers",
                      {{{"type", "ByteLevel"}, {"add_prefix_space", false}},
                       {{"type", "Digits"}, {"individual_digits", true}}}}};
  EXPECT_EQ(split(json,
                  "\u00f2"
                  "1"),
            Pieces({"\xC3", "\xB2", "1"}));
}

TEST(Split, BytesThatAreNoTextStandAlone) {
  EXPECT_EQ(split(split_json(kLlama3Pattern),
                  "a\xFF\xFE"
                  "b c\xC3"),
            Pieces({"a", "\xFF", "\xFE", "b", " c", "\xC3"}));
}

TEST(Split, GrowthIsBounded) {
  Json steps = Json::array();
  for (int i = 0; i < 100; ++i)
    steps.push_back({{"type", "Metaspace"}, {"replacement", i % 2 == 0 ? "_" : "-"}});
  EXPECT_THAT(refusal([&] {
                split({{"type", "Sequence"}, {"pretokenizers", steps}}, "aaa");
              }),
              testing::HasSubstr("64 times"));
  EXPECT_THAT(refusal([&] {
                split({{"type", "Metaspace"}, {"replacement", "ab"}}, "a");
              }),
              testing::HasSubstr("expected a character"));
}

TEST(Split, EmptyMatchesAreHarmless) {
  EXPECT_EQ(split(split_json("x*"), "a\u00e9xxb"), Pieces({"a", "\u00e9", "xx", "b"}));
}

TEST(Split, LongRunsOfSpaces) {
  const std::string spaces(2'000'000, ' ');
  const Pieces pieces = split(split_json(kLlama3Pattern), spaces + "x");
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].size(), spaces.size() - 1);
}

TEST(Split, GivesUpOnARegexThatExplodes) {
  EXPECT_THAT(refusal([] { split(split_json("(a|a|a)*[bc]"), std::string(5000, 'a')); }),
              testing::ContainsRegex("takes too long|fails on a text"));
  for (const char* slow : {"a*a*b|a", "a*a*a*[bc]"}) {
    EXPECT_THAT(refusal([&] { split(split_json(slow), std::string(50'000, 'a')); }),
                testing::ContainsRegex("takes too long|fails on a text"))
        << slow;
  }
  EXPECT_THAT(refusal([] { split(split_json("(a"), "a"); }),
              testing::AllOf(testing::HasSubstr("'pattern.Regex'"), testing::HasSubstr("'(a'")));
}

std::string normalized(const Json& normalizer, std::string text) {
  RegexScratch scratch;
  parse_normalizer(JsonNode(normalizer, "test")).apply(text, scratch);
  return text;
}

TEST(Normalizer, Unicode) {
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\u0301 a\u030a \u1100\u1161"), "\u00e9 \u00e5 \uac00");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "\u00e9"), "e\u0301");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\ufb01 \u2460"), "fi 1");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "\ufb01\u00e9"), "fie\u0301");
  EXPECT_EQ(normalized({{"type", "NFC"}},
                       "e\u0301\xFF"
                       "e\u0301"),
            "\u00e9\xFF\u00e9");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "\u00c0B\u0130\xC3"), "\u00e0bi\u0307\xC3");
}

TEST(Normalizer, GrowthIsBounded) {
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json by_regex = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "aa"}};
  const Json before = {{"type", "Prepend"}, {"prepend", std::string(800, 'a')}};
  EXPECT_EQ(normalized({{"type", "Sequence"}, {"normalizers", Json(6, twice)}}, "aa").size(), 128U);
  for (const Json& step : {twice, by_regex, before}) {
    const Json steps = {{"type", "Sequence"}, {"normalizers", Json(40, step)}};
    EXPECT_THAT(refusal([&] { normalized(steps, "aaa"); }), testing::HasSubstr("64 times"));
  }
}

TEST(Normalizer, Rewriting) {
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
  EXPECT_EQ(normalized(spaces, "a \n\tb  "), "a b ");
  const Json literal = {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "xab"}};
  EXPECT_EQ(normalized(literal, "ababa"), "xabxaba");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "\u00a0 a "), "a ");
  EXPECT_EQ(normalized({{"type", "Strip"}}, " \u3000 "), "");
}

}  // namespace
}  // namespace hearth::text
