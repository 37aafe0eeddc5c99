#include "cli/program.h"

namespace hearth {
namespace {

class Tokenize : public Program {
 protected:
  Tokenize() {
    put("model/tokenizer.json",
        R"({"added_tokens": [{"id": 3, "content": "<s>", "special": true, "normalized": false}],
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<": 4, "s": 5, ">": 6}, "merges": ["a b"]}})");
  }
};

TEST_F(Tokenize, PrintsTheTokensOfAText) {
  EXPECT_EQ(works("hearth tokenize model --text abb"), "       2  ab\n       1  b\n");
  EXPECT_EQ(works("printf a | hearth tokenize model/tokenizer.json"), "       0  a\n");
  EXPECT_EQ(works("hearth tokenize model --special --text '<s>a'"), "       3  <s>\n       0  a\n");
  EXPECT_EQ(works("hearth tokenize model --text '<s>'"), "       4  <\n       5  s\n       6  >\n");
}

TEST_F(Tokenize, CountsThoseOfFiles) {
  put("one.txt", "abab");
  put("two.txt", "b");
  const std::string out = works("hearth tokenize model one.txt two.txt");
  EXPECT_THAT(out, testing::HasSubstr("one.txt: 2 tokens, 4 bytes, 2.00 bytes per token, "));
  EXPECT_THAT(out, testing::HasSubstr("two.txt: 1 tokens, 1 bytes"));
  EXPECT_THAT(out, testing::HasSubstr("together: 3 tokens, 5 bytes"));
  EXPECT_THAT(out, testing::HasSubstr("MB/min"));
}

TEST_F(Tokenize, Mistakes) {
  refused("hearth tokenize", {"model", "hearth tokenize --help"});
  refused("hearth tokenize none", {"none"});
  refused("hearth tokenize .", {"tokenizer.json", "merges.txt"});
  refused("hearth tokenize model none.txt", {"none.txt"});
  refused("hearth tokenize model --text x", {"model/tokenizer.json", "'x'"});
  put("model/tokenizer_config.json", "{\"bos_token\": 1}");
  refused("hearth tokenize model --text a", {"model/tokenizer_config.json", "'bos_token'"});
}

}  // namespace
}  // namespace hearth
