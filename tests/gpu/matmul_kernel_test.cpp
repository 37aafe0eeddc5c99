// Matmuls on GPUs: every way that blocks may share one, tails and split sums included.
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/gpu/rt.h"
#include "gpu/gpu.h"

namespace hearth::ops {
namespace {

using rt::bf16;

struct Case {
  MatmulVariant way;
  int m, n, k;
  bool transpose_a, transpose_b;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << static_cast<int>(c.way) << ": " << c.m << " x " << c.n << " x " << c.k
       << (c.transpose_a ? " a^T" : "") << (c.transpose_b ? " b^T" : "");
}

class Matmuls : public testing::TestWithParam<Case> {};

std::vector<bf16> numbers(int count, int seed) {
  std::vector<bf16> made;
  for (int i = 0; i < count; ++i)
    made.push_back(rt::from_float<bf16>(static_cast<float>((i * 37 + seed) % 41 - 20) / 8.0F));
  return made;
}

TEST_P(Matmuls, AreSumsOfProducts) {
  const Case& c = GetParam();
  const MatmulShape shape{.m = c.m,
                          .n = c.n,
                          .k = c.k,
                          .a_row = c.transpose_a ? 1 : c.k,
                          .a_term = c.transpose_a ? c.m : 1,
                          .b_term = c.transpose_b ? 1 : c.n,
                          .b_column = c.transpose_b ? c.k : 1,
                          .c_row = c.n};
  const std::vector<bf16> a = numbers(c.m * c.k, 1), b = numbers(c.k * c.n, 5);
  const MatmulKernel kernel(shape, DType::bf16, DType::f32, c.way);
  gpu::Gpu gpu;
  auto* out = gpu.room<float>(static_cast<size_t>(c.m * c.n));
  kernel.launch(gpu.handle(),
                {.a = gpu.put(a),
                 .b = gpu.put(b),
                 .c = out,
                 .workspace = gpu.room<std::byte>(static_cast<size_t>(kernel.workspace_bytes() + 1))});
  gpu.stream().synchronize();
  const std::vector<float> got = gpu.get(out, static_cast<size_t>(c.m * c.n));
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < c.k; ++p)
        sum += double{rt::to_float(a[static_cast<size_t>(i * shape.a_row + p * shape.a_term)])} *
               rt::to_float(b[static_cast<size_t>(p * shape.b_term + j * shape.b_column)]);
      ASSERT_EQ(got[static_cast<size_t>(i * c.n + j)], static_cast<float>(sum))
          << i << ", " << j << ": eighths are summed without rounding";
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      made.push_back({MatmulVariant::large, 130, 144, 40, transpose_a, transpose_b});
      made.push_back({MatmulVariant::large, 136, 144, 104, transpose_a, transpose_b});
      made.push_back({MatmulVariant::small, 80, 65, 72, transpose_a, transpose_b});
      made.push_back({MatmulVariant::small, 80, 72, 88, transpose_a, transpose_b});
      made.push_back({MatmulVariant::tall, 136, 16, 33, transpose_a, transpose_b});
      made.push_back({MatmulVariant::tall, 136, 8, 48, transpose_a, transpose_b});
      made.push_back({MatmulVariant::wide, 8, 150, 64, transpose_a, transpose_b});
      made.push_back({MatmulVariant::wide, 8, 152, 56, transpose_a, transpose_b});
    }
  }
  made.push_back({MatmulVariant::tall, 20, 7, 1030, false, true});
  made.push_back({MatmulVariant::wide, 5, 24, 800, true, false});
  return made;
}
INSTANTIATE_TEST_SUITE_P(Ways, Matmuls, testing::ValuesIn(cases()));

TEST(MatmulWays, AreTheWordsOfAnAttribute) {
  const ir::Attrs one = {{"way", std::string("large")}}, three = {{"way", std::string("tall,,library")}};
  EXPECT_EQ(variant_at({}, 0), "");
  EXPECT_EQ(variant_at(one, 0), "large");
  EXPECT_EQ(variant_at(one, 1), "");
  EXPECT_EQ(variant_at(three, 0), "tall");
  EXPECT_EQ(variant_at(three, 1), "");
  EXPECT_EQ(variant_at(three, 2), "library");
}

TEST(MatmulWays, ContainTheAlgorithmOfALibrary) {
  const gpu::BlasAlgorithm algorithm{{1, 0xFFFFFFFFFFFFFFFF, 0, 0x0123456789ABCDEF, 0, 0, 0, 2}};
  const std::string way = library_variant(algorithm);
  EXPECT_TRUE(is_library_variant(way));
  EXPECT_EQ(algorithm_in(way), algorithm);
  EXPECT_TRUE(is_library_variant("library"));
  EXPECT_FALSE(is_library_variant("large"));
  EXPECT_FALSE(is_library_variant("libraryx"));
  for (std::string wrong :
       {std::string("library"), std::string("large"), way + "0", way.substr(0, way.size() - 1),
        way.substr(0, way.size() - 1) + "g", way.substr(0, way.size() - 1) + "-"})
    EXPECT_EQ(algorithm_in(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace hearth::ops
