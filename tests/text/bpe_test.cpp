#include "text/bpe.h"

#include <random>
#include <set>
#include <thread>

#include "support.h"

namespace hearth::text {
namespace {

const std::vector<std::string> kUnrelated = {"u",  "n",  "r",  "e",  "l",    "a",   "t",       "d",
                                             "re", "at", "ed", "un", "ated", "rel", "related", "unrelated"};
const std::vector<std::string> kUnrelatedMerges = {"r e",   "a t",  "e d",      "u n",
                                                   "at ed", "re l", "rel ated", "un related"};

TEST(Bpe, MergesInOrderOfRank) {
  EXPECT_EQ(encode(*load(bpe_json(kUnrelated, kUnrelatedMerges)), "unrelated"), Ids({15}));
  // Without the last merge its two halves stay.
  std::vector<std::string> fewer = kUnrelatedMerges;
  fewer.pop_back();
  EXPECT_EQ(encode(*load(bpe_json(kUnrelated, fewer)), "unrelated"), Ids({11, 14}));
}

TEST(Bpe, OfEqualPairsTheLeftmostMerges) {
  EXPECT_EQ(tokens(*load(bpe_json({"a", "aa"}, {"a a"})), "aaaaa"),
            std::vector<std::string>({"aa", "aa", "a"}));
}

TEST(Bpe, UnknownCharacters) {
  Json json = bpe_json({"<unk>", "a", "b"}, {});
  EXPECT_THAT(refusal([&] { encode(*load(json), "ac"); }),
              testing::HasSubstr("no token for 'c', which the text has"));
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(encode(*load(json), "accb"), Ids({1, 0, 0, 2}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(encode(*load(json), "accb"), Ids({1, 0, 2}));
  EXPECT_EQ(encode(*load(json), "ccacc"), Ids({0, 1, 0}));
}

TEST(Bpe, BytesStandForUnknownCharacters) {
  const auto tokenizer = load(metaspace_json({"\u2581", "h", "i", "\u2581h"}, {"\u2581 h"}));
  EXPECT_EQ(tokens(*tokenizer, "hi \u4e2d\xFF"),
            std::vector<std::string>({"\u2581h", "i", "\u2581", "<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>"}));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "hi \u4e2d\xFF")), "hi \u4e2d\xFF");
  Json few = bpe_json({"<unk>", "<0x61>"}, {});
  few["model"]["byte_fallback"] = true;
  EXPECT_THAT(refusal([&] { load(few); }), testing::HasSubstr("<0x00> is missing"));
}

TEST(Bpe, WholePiecesWithIgnoreMerges) {
  Json json = byte_level_json({"a b", "ab c"});
  json["model"]["merges"] = {"a b"};
  EXPECT_EQ(tokens(*load(json), "abc"), std::vector<std::string>({"ab", "c"}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokens(*load(json), "abc"), std::vector<std::string>({"abc"}));
}

TEST(Bpe, EndOfWordSuffix) {
  Json json = bpe_json({"a", "b", "b</w>", "ab</w>"}, {"a b</w>"});
  json["model"]["end_of_word_suffix"] = "</w>";
  json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  json["decoder"] = {{"type", "BPEDecoder"}, {"suffix", "</w>"}};
  const auto tokenizer = load(json);
  EXPECT_EQ(encode(*tokenizer, "ab bb"), Ids({3, 1, 2}));
  EXPECT_EQ(tokenizer->decode(Ids({3, 1, 2})), "ab bb");
}

TEST(Bpe, BothFormsOfMerges) {
  Json json = bpe_json(kUnrelated, {});
  for (const std::string& merge : kUnrelatedMerges) {
    const size_t space = merge.find(' ');
    json["model"]["merges"].push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  EXPECT_EQ(encode(*load(json), "unrelated"), Ids({15}));
}

/// The definition: as long as there is a pair that merges, merge the leftmost of the lowest rank.
std::vector<std::string> merged_by_definition(std::string_view word, const std::vector<std::string>& merges) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), symbols[i] + " " + symbols[i + 1]);
      const auto rank = static_cast<size_t>(found - merges.begin());
      if (rank < best) best = rank, place = i;
    }
    if (best == merges.size()) return symbols;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

class RandomBpe : public testing::Test {
 protected:
  /// Merges of random pairs of tokens made so far, over "abc".
  void make(unsigned seed) {
    random_.seed(seed);
    vocabulary_ = {"a", "b", "c"};
    merges_.clear();
    for (int i = 0; i < 25; ++i) {
      const std::string left = vocabulary_[random_() % vocabulary_.size()];
      const std::string right = vocabulary_[random_() % vocabulary_.size()];
      if (std::find(merges_.begin(), merges_.end(), left + " " + right) != merges_.end()) continue;
      merges_.push_back(left + " " + right);
      if (std::find(vocabulary_.begin(), vocabulary_.end(), left + right) == vocabulary_.end())
        vocabulary_.push_back(left + right);
    }
  }
  std::string word(size_t bytes) {
    std::string word;
    for (size_t i = 0; i < bytes; ++i) word.push_back("abc"[random_() % 3]);
    return word;
  }

  std::mt19937 random_;
  std::vector<std::string> vocabulary_;
  std::vector<std::string> merges_;
};

TEST_F(RandomBpe, EqualsTheDefinition) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    make(seed);
    const auto tokenizer = load(bpe_json(vocabulary_, merges_));
    for (int i = 0; i < 30; ++i) {
      const std::string text = word(1 + random_() % 60);
      ASSERT_EQ(tokens(*tokenizer, text), merged_by_definition(text, merges_))
          << "seed " << seed << ": " << text;
    }
  }
}

TEST_F(RandomBpe, RememberedPiecesStayRight) {
  make(1);
  const auto tokenizer = load(bpe_json(vocabulary_, merges_));
  std::vector<std::string> words;
  // More than the cache holds, so that places are shared.
  for (int i = 0; i < 60000; ++i) words.push_back(word(1 + random_() % 12));
  for (const std::string& each : words) encode(*tokenizer, each);
  for (size_t i = 0; i < words.size(); i += 50) {
    ASSERT_EQ(tokens(*tokenizer, words[i]), merged_by_definition(words[i], merges_));
  }
}

TEST_F(RandomBpe, ManyThreadsAgree) {
  make(2);
  const auto tokenizer = load(bpe_json(vocabulary_, merges_));
  const std::string text = word(20000);
  const Ids expected = encode(*tokenizer, text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < text.size(); i += 7) encode(*tokenizer, std::string_view(text).substr(i, 20));
      ids = encode(*tokenizer, text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

/// Text that is cut into words at spaces gives what the whole text gives.
TEST_F(RandomBpe, WordsApartEqualTheWhole) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    make(seed);
    vocabulary_.insert(vocabulary_.end(), {"_", "_a", "__"});
    merges_.insert(merges_.begin() + static_cast<std::ptrdiff_t>(random_() % merges_.size()), "_ a");
    merges_.insert(merges_.begin() + static_cast<std::ptrdiff_t>(random_() % merges_.size()), "_ _");
    // A token across words, which keeps the text whole.
    if (seed % 2 == 1) vocabulary_.push_back("b_"), merges_.insert(merges_.begin(), "b _");
    const auto with_spaces = [](std::string text) {
      for (size_t at = 0; (at = text.find('_', at)) != std::string::npos; at += kMetaspace.size())
        text.replace(at, 1, kMetaspace);
      return text;
    };
    std::vector<std::string> vocabulary;
    std::vector<std::string> merges;
    for (const std::string& token : vocabulary_) vocabulary.push_back(with_spaces(token));
    for (const std::string& merge : merges_) merges.push_back(with_spaces(merge));
    const auto tokenizer = load(bpe_json(vocabulary, merges));
    for (int i = 0; i < 20; ++i) {
      std::string text = word(50);
      for (int space = 0; space < 14; ++space) text[random_() % 50] = '_';
      std::vector<std::string> expected;
      for (const std::string& token : merged_by_definition(text, merges_))
        expected.push_back(with_spaces(token));
      ASSERT_EQ(tokens(*tokenizer, with_spaces(text)), expected) << "seed " << seed << ": " << text;
    }
  }
}

TEST(Bpe, ALongPieceTakesNoLongTime) {
  std::vector<std::string> vocabulary = {"a"};
  std::vector<std::string> merges;
  for (int i = 0; i < 10; ++i) {
    merges.push_back(vocabulary.back() + " " + vocabulary.back());
    vocabulary.push_back(vocabulary.back() + vocabulary.back());
  }
  const Ids ids = encode(*load(bpe_json(vocabulary, merges)), std::string(1024 * 1000 + 5, 'a'));
  EXPECT_EQ(ids.size(), 1002U);
  EXPECT_EQ(ids.front(), 10);
}

TEST(MergesFromRanks, EveryCutOfAToken) {
  Vocabulary vocabulary;
  for (const char* token : {"a", "b", "ab", "ba", "aba"}) vocabulary.add(token, vocabulary.size(), "test");
  const std::vector<int32_t> rank = {0, 1, 2, 3, 4};
  const std::vector<Merge> merges = merges_from_ranks(vocabulary, rank, "test");
  std::set<std::pair<int32_t, int32_t>> of_aba;
  for (const Merge& merge : merges) {
    if (merge.merged == 4) of_aba.emplace(merge.left, merge.right);
  }
  EXPECT_EQ(of_aba, (std::set<std::pair<int32_t, int32_t>>{{0, 3}, {2, 0}}));
  EXPECT_EQ(merges.size(), 4U);
  vocabulary.add(std::string(5000, 'a'), vocabulary.size(), "test");
  const std::vector<int32_t> more = {0, 1, 2, 3, 4, 5};
  EXPECT_THAT(refusal([&] { merges_from_ranks(vocabulary, more, "x.model"); }),
              testing::HasSubstr("x.model"));
}

}  // namespace
}  // namespace hearth::text
