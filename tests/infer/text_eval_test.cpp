#include "infer/text_eval.h"

#include <gtest/gtest.h>

#include "hub/gguf_parts.h"

namespace hearth::infer {
namespace {

TEST(TextEval, NumbersBehindTheMarkAgreeWhateverTheirForm) {
  const char* wanted = "So 1 + 1234 = 1235.\n#### 1,235";
  for (const char* right :
       {"#### 1235", "well\n#### 1,235.", "####1235", "#### $1,235 dollars", "#### 1235\n#### 7"})
    EXPECT_TRUE(same_answer(right, wanted)) << right;
  for (const char* wrong : {"1235", "#### 12355", "#### -1235", "#### 123.5", "####", "", "#### one"})
    EXPECT_FALSE(same_answer(wrong, wanted)) << wrong;
  EXPECT_TRUE(same_answer("#### -0.5", "#### -0.5."));
}

TEST(TextEval, OtherAnswersAgreeWhole) {
  EXPECT_TRUE(same_answer(" Paris\n", "Paris"));
  EXPECT_FALSE(same_answer("Paris, of course", "Paris"));
  EXPECT_FALSE(same_answer("paris", "Paris"));
  EXPECT_TRUE(same_answer("#### yes", "#### yes "));
  EXPECT_FALSE(same_answer("#### no", "#### yes"));
}

TEST(ExportGguf, RotatedHalvesBecomePairs) {
  // Two heads of six rows: 0 1 2 | 3 4 5 become 0 3 1 4 2 5.
  const std::vector<int64_t> places = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  for (int64_t row = 0; row < 12; ++row)
    EXPECT_EQ(hub::interleaved_row(row, 12, 2), places[static_cast<size_t>(row)]) << row;
}

}  // namespace
}  // namespace hearth::infer
