#include "text/added_tokens.h"

#include "support.h"

namespace hearth::text {
namespace {

/// "[token]" for what is found, the rest as it is.
std::string found(const std::vector<AddedToken>& tokens, std::string_view text,
                  SpecialTokens special = SpecialTokens::parsed) {
  const AddedTokens added(tokens, {});
  std::string all;
  added.split_raw(text, special, [&](std::string_view part, const AddedToken* token) {
    all += token == nullptr ? fmt::format("({})", part) : fmt::format("[{}:{}]", token->id, part);
  });
  return all;
}

TEST(AddedTokens, TheLongestAtTheEarliestPlace) {
  const std::vector<AddedToken> tokens = {{.content = "<a>", .id = 1},
                                          {.content = "<a>b", .id = 2},
                                          {.content = "<", .id = 3},
                                          {.content = "b<", .id = 4}};
  EXPECT_EQ(found(tokens, "x<a>b<ay"), "(x)[2:<a>b][3:<](ay)");
  EXPECT_EQ(found(tokens, "b<a>"), "[4:b<](a>)");
  EXPECT_EQ(found(tokens, ""), "");
  EXPECT_EQ(found({}, "<a>"), "(<a>)");
}

TEST(AddedTokens, SpecialOnesAreTextUnlessParsed) {
  const std::vector<AddedToken> tokens = {{.content = "<s>", .id = 1, .special = true},
                                          {.content = "<s>x", .id = 2, .special = true},
                                          {.content = "  ", .id = 3}};
  EXPECT_EQ(found(tokens, "a  <s>x"), "(a)[3:  ][2:<s>x]");
  EXPECT_EQ(found(tokens, "a  <s>x", SpecialTokens::as_text), "(a)[3:  ](<s>x)");
}

TEST(AddedTokens, TakeTheSpacesAround) {
  const std::vector<AddedToken> tokens = {{.content = "<l>", .id = 1, .lstrip = true},
                                          {.content = "<r>", .id = 2, .rstrip = true}};
  EXPECT_EQ(found(tokens, "a \n<l> b"), "(a)[1: \n<l>]( b)");
  EXPECT_EQ(found(tokens, "a <r>\u00a0 b"), "(a )[2:<r>\u00a0 ](b)");
  EXPECT_EQ(found(tokens, "<r>  <l>"), "[2:<r>  ][1:<l>]");
}

TEST(AddedTokens, AsSingleWords) {
  const std::vector<AddedToken> tokens = {{.content = "ing", .id = 1, .single_word = true}};
  EXPECT_EQ(found(tokens, "sing ing, ings \u00e9ing-ing"), "(sing )[1:ing](, ings \u00e9ing-)[1:ing]");
  EXPECT_EQ(found(tokens, "ing\u0301 ing\u24d0 ing\u200d ing\u00b2"),
            "(ing\u0301 ing\u24d0 ing\u200d )[1:ing](\u00b2)")
      << "what the tokenizers package finds";
}

TEST(AddedTokens, NormalizedOnesAreSoughtInTheNormalizedText) {
  Json json = bpe_json({"h", "e", "y"}, {});
  json["model"]["unk_token"] = "h";
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {{{"id", 7}, {"content", "HEY"}, {"normalized", true}},
                          {{"id", 8}, {"content", "YE"}, {"normalized", false}}};
  const auto tokenizer = load(json);
  EXPECT_EQ(encode(*tokenizer, "hEyYE"), Ids({7, 8}));
  EXPECT_EQ(encode(*tokenizer, "ye"), Ids({2, 1}));
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(tokenizer->decode(Ids({7, 8, 2})), "HEY YE y");
}

TEST(AddedTokens, WhatTheyCutOffIsPrefixedAgain) {
  Json json = metaspace_json({"\u2581", "a",
                              "\u2581"
                              "a"},
                             {"\u2581 a"});
  json["added_tokens"] = {{{"id", 300}, {"content", "<s>"}, {"special", true}, {"normalized", false}}};
  const auto tokenizer = load(json);
  const std::vector<std::string> both = {
      "\u2581"
      "a",
      "<s>",
      "\u2581"
      "a"};
  EXPECT_EQ(tokens(*tokenizer, "a<s>a", SpecialTokens::parsed), both) << "the normalizer runs on each part";
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}};
  const std::vector<std::string> first = {
      "\u2581"
      "a",
      "<s>", "a"};
  EXPECT_EQ(tokens(*load(json), "a<s>a", SpecialTokens::parsed), first);
}

}  // namespace
}  // namespace hearth::text
