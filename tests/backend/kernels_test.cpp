#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/convert.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd/simd.h"
#include "backend/tile_model.h"
#include "base/philox.h"
#include "ops/conv/conv_cpu.h"

namespace hearth::cpu {
namespace {

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  PhiloxSequence random(seed, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.uniform(-1, 1);
  return values;
}

/// The values stored as `dtype`, with guard bytes after them; reading back rounds `values` too.
std::vector<std::byte> stored(DType dtype, std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(dtype)) + 64, std::byte{0xAB});
  store_f32(dtype, values.data(), bytes.data(), 0, count);
  load_f32(dtype, bytes.data(), 0, count, values.data());
  return bytes;
}

std::vector<float> loaded(DType dtype, const std::vector<std::byte>& bytes, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  load_f32(dtype, bytes.data(), 0, count, values.data());
  for (size_t i = bytes.size() - 64; i < bytes.size(); ++i)
    EXPECT_EQ(bytes[i], std::byte{0xAB}) << "guard bytes";
  return values;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  double scale = 1e-3;
  for (const double value : want) scale = std::max(scale, std::fabs(value));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * scale) << "element " << i;
}

struct GemmCase {
  int64_t m, n, k;
  bool ta, tb;
  DType dtype;
  int threads;
};

void expect_the_definition(const GemmCase& p) {
  std::vector<float> a = random_floats(p.m * p.k, 1);
  std::vector<float> b = random_floats(p.k * p.n, 2);
  std::vector<float> r = random_floats(p.m * p.n, 3);
  const std::vector<float> bias = random_floats(p.n, 4);
  const auto a_bytes = stored(p.dtype, a);
  const auto b_bytes = stored(p.dtype, b);
  const auto r_bytes = stored(p.dtype, r);
  std::vector<double> want(static_cast<size_t>(p.m * p.n));
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = bias[static_cast<size_t>(j)] + r[static_cast<size_t>(i * p.n + j)];
      for (int64_t q = 0; q < p.k; ++q) {
        const double left = a[static_cast<size_t>(p.ta ? q * p.m + i : i * p.k + q)];
        const double right = b[static_cast<size_t>(p.tb ? j * p.k + q : q * p.n + j)];
        sum += left * right;
      }
      want[static_cast<size_t>(i * p.n + j)] = std::max(0.0, sum);
    }
  }
  const Gemm gemm({.m = p.m,
                   .n = p.n,
                   .k = p.k,
                   .transpose_a = p.ta,
                   .transpose_b = p.tb,
                   .a = p.dtype,
                   .b = p.dtype,
                   .c = p.dtype,
                   .bias = true,
                   .residual = true,
                   .activation = GemmSpec::Activation::relu,
                   .num_threads = p.threads});
  std::vector<float> zeros(static_cast<size_t>(p.m * p.n));
  std::vector<std::byte> workspace(static_cast<size_t>(gemm.workspace_bytes()) + 64);
  ThreadPool threads(p.threads);
  for (int repeat = 0; repeat < 2; ++repeat) {
    auto c = stored(p.dtype, zeros);
    gemm.run(a_bytes.data(), b_bytes.data(), bias.data(), r_bytes.data(), c.data(), workspace.data(),
             threads);
    expect_near(loaded(p.dtype, c, p.m * p.n), want, p.dtype == DType::f32 ? 2e-6 : 6e-3);
  }
}

/// Makes simd() multiply by the model of AMX's tiles while it lives; has_pairs() says whether it could.
class ModeledTiles {
 public:
  ModeledTiles() {
    tables_.gemm_tiles = gemm_tiles;
    if (has_pairs()) use_simd(tables_);
  }
  ~ModeledTiles() { use_simd(before_); }
  ModeledTiles(const ModeledTiles&) = delete;
  ModeledTiles& operator=(const ModeledTiles&) = delete;
  bool has_pairs() const { return before_.gemm_pairs != nullptr; }

 private:
  const SimdKernels before_ = simd();
  SimdKernels tables_ = before_;
};

class GemmTest : public testing::TestWithParam<GemmCase> {};
TEST_P(GemmTest, MatchesTheDefinition) { expect_the_definition(GetParam()); }

class TiledGemmTest : public testing::TestWithParam<GemmCase> {};
TEST_P(TiledGemmTest, MatchesTheDefinition) {
  const ModeledTiles tiles;
  if (!tiles.has_pairs()) GTEST_SKIP() << "no multiplication of bf16 pairs on this processor";
  expect_the_definition(GetParam());
}

std::vector<std::byte> product_of(const GemmCase& p) {
  std::vector<float> a = random_floats(p.m * p.k, 1), b = random_floats(p.k * p.n, 2);
  std::vector<float> c(static_cast<size_t>(p.m * p.n));
  const auto left = stored(p.dtype, a), right = stored(p.dtype, b);
  auto made = stored(DType::f32, c);
  const Gemm gemm({.m = p.m,
                   .n = p.n,
                   .k = p.k,
                   .transpose_a = p.ta,
                   .transpose_b = p.tb,
                   .a = p.dtype,
                   .b = p.dtype,
                   .num_threads = p.threads});
  std::vector<std::byte> workspace(static_cast<size_t>(gemm.workspace_bytes()) + 64);
  ThreadPool threads(p.threads);
  gemm.run(left.data(), right.data(), nullptr, nullptr, made.data(), workspace.data(), threads);
  return made;
}

void expect_same_bits(GemmCase p) {
  for (const auto& [m, n, k] : {std::tuple{1030, 100, 96}, {40, 150, 200}, {75, 600, 130}, {40, 310, 900}}) {
    for (const auto& [ta, tb] : {std::pair{false, false}, {false, true}, {true, false}}) {
      p = {m, n, k, ta, tb, p.dtype, 1};
      const std::vector<std::byte> alone = product_of(p);
      for (p.threads = 2; p.threads < 5; ++p.threads)
        EXPECT_EQ(product_of(p), alone) << fmt::format("{} x {} x {}, {} threads", m, n, k, p.threads);
    }
  }
}

TEST(Gemm, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) expect_same_bits({.dtype = dtype});
  const ModeledTiles tiles;
  if (tiles.has_pairs()) expect_same_bits({.dtype = DType::bf16});
}

std::vector<GemmCase> gemm_cases() {
  std::vector<GemmCase> cases;
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1},
                                {3, 5, 7},
                                {64, 96, 80},
                                {17, 33, 19},
                                {8, 10, 300},
                                {10, 40, 513},
                                {10, 40, 1024},
                                {350, 300, 512},
                                {231, 133, 390},
                                {1030, 70, 64},
                                {256, 260, 768}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        cases.push_back({m, n, k, ta, tb, DType::f32, 2});
        cases.push_back({m, n, k, ta, tb, DType::bf16, 3});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest, testing::ValuesIn(gemm_cases()));

/// Sizes that fill no tile, in terms, rows or columns, or in none of them.
std::vector<GemmCase> tiled_cases() {
  std::vector<GemmCase> cases;
  for (const auto& [m, n, k] :
       {std::tuple{17, 33, 38}, {350, 300, 512}, {231, 133, 390}, {70, 256, 2000}, {33, 100, 20}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) cases.push_back({m, n, k, ta, tb, DType::bf16, 3});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, TiledGemmTest, testing::ValuesIn(tiled_cases()));

std::vector<const SimdKernels*> tables_here() {
  std::vector<const SimdKernels*> tables = {&kBaselineKernels, &simd()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) tables.push_back(&kAvx2Kernels);
#endif
  return tables;
}

TEST(Transpose, OnEveryInstructionSet) {
  constexpr int64_t kRows = 37, kColumns = 53, kInRow = 60, kOutRow = 40;
  const std::vector<float> in = random_floats(kRows * kInRow, 5);
  for (const SimdKernels* table : tables_here()) {
    std::vector<float> out(kColumns * kOutRow, -1.0F);
    table->transpose(in.data(), kInRow, kRows, kColumns, out.data(), kOutRow);
    for (size_t c = 0; c < kColumns; ++c) {
      for (size_t r = 0; r < kOutRow; ++r)
        ASSERT_EQ(out[c * kOutRow + r], r < kRows ? in[r * kInRow + c] : -1.0F) << table->isa;
    }
  }
}

/// A run in the middle of pixels and channels, which nothing around it may change.
TEST(Depthwise, OnEveryInstructionSet) {
  constexpr int64_t kChannels = 40, kStep = 43, kPixels = 24, kFirst = 2, kChannel = 3, kNumChannels = 21;
  std::vector<float> in = random_floats(3 * 32 * kStep, 6), w = random_floats(15 * kChannels, 7);
  const std::vector<float> dy = random_floats(kPixels * kStep, 8);
  for (const SimdKernels* table : tables_here()) {
    for (const int64_t row_taps : {1, 2, 3, 4, 5}) {
      for (const int64_t count : {0, 1, 7, 13, 21}) {
        SCOPED_TRACE(fmt::format("{}, rows of {} taps, {} pixels", table->isa, row_taps, count));
        std::vector<float> dw(w.size(), 0.5F), out(dy.size(), -1.0F);
        std::vector<DepthwiseTap> taps, gradients;
        for (int64_t t = 0; t < 3 * row_taps; ++t) {
          float* from = in.data() + (t / row_taps * 32 + t % row_taps) * kStep;
          taps.push_back({from, w.data() + t * kChannels});
          gradients.push_back({from, dw.data() + t * kChannels});
        }
        DepthwiseRun run{.taps = taps.data(),
                         .num_taps = std::ssize(taps),
                         .row_taps = row_taps,
                         .first = kFirst,
                         .count = count,
                         .in_step = kStep,
                         .out_step = kStep,
                         .channel = kChannel,
                         .channels = kNumChannels};
        table->depthwise(run, out.data());
        run.taps = gradients.data();
        table->depthwise_weights(run, dy.data());
        std::vector<double> want(out.size(), -1.0), want_dw(w.size(), 0.5);
        for (int64_t i = kFirst; i < kFirst + count; ++i) {
          for (int64_t c = kChannel; c < kChannel + kNumChannels; ++c) {
            const auto at = static_cast<size_t>(i * kStep + c);
            want[at] = 0;
            for (size_t t = 0; t < taps.size(); ++t) {
              const double seen = taps[t].in[at];
              want[at] += seen * taps[t].w[c];
              want_dw[t * kChannels + static_cast<size_t>(c)] += seen * dy[at];
            }
          }
        }
        expect_near(out, want, 1e-5);
        expect_near(dw, want_dw, 1e-5);
      }
    }
  }
}

struct ConvCase {
  ConvShape shape;
  DType dtype = DType::f32;
  int threads = 1;
};

class ConvTest : public testing::TestWithParam<ConvCase> {
 protected:
  static int64_t x_count(const ConvShape& s) { return s.batch * s.in_h * s.in_w * s.in_c; }
  static int64_t y_count(const ConvShape& s) { return s.batch * s.out_h() * s.out_w() * s.out_c; }
  static int64_t w_count(const ConvShape& s) { return s.kernel_h * s.kernel_w * s.in_c * s.out_c; }

  /// Calls visit(x index, w index, y index) for every product of the convolution.
  template <typename Visit>
  static void for_each_product(const ConvShape& s, Visit visit) {
    for (int64_t y = 0; y < y_count(s); ++y) {
      const int64_t o = y % s.out_c;
      const int64_t ox = y / s.out_c % s.out_w();
      const int64_t oy = y / s.out_c / s.out_w() % s.out_h();
      const int64_t image = y / s.out_c / s.out_w() / s.out_h();
      for (int64_t t = 0; t < s.kernel_h * s.kernel_w; ++t) {
        const int64_t iy = oy * s.stride - s.padding + t / s.kernel_w;
        const int64_t ix = ox * s.stride - s.padding + t % s.kernel_w;
        if (iy < 0 || iy >= s.in_h || ix < 0 || ix >= s.in_w) continue;
        for (int64_t c = 0; c < s.in_c; ++c) {
          visit(static_cast<size_t>(((image * s.in_h + iy) * s.in_w + ix) * s.in_c + c),
                static_cast<size_t>((t * s.in_c + c) * s.out_c + o), static_cast<size_t>(y));
        }
      }
    }
  }

  static std::vector<ConvAlgorithm> algorithms(const ConvShape& s) {
    if (s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1)
      return {ConvAlgorithm::direct, ConvAlgorithm::winograd};
    return {ConvAlgorithm::direct};
  }
};

TEST_P(ConvTest, AllThreePassesMatchTheDefinition) {
  const ConvShape& s = GetParam().shape;
  const DType dtype = GetParam().dtype;
  std::vector<float> x = random_floats(x_count(s), 1);
  std::vector<float> w = random_floats(w_count(s), 2);
  std::vector<float> dy = random_floats(y_count(s), 3);
  std::vector<float> residual = random_floats(y_count(s), 4);
  const std::vector<float> bias = random_floats(s.out_c, 5);
  const auto x_bytes = stored(dtype, x);
  const auto w_bytes = stored(dtype, w);
  const auto dy_bytes = stored(dtype, dy);
  const auto residual_bytes = stored(dtype, residual);
  std::vector<double> want_y(dy.size());
  std::vector<double> want_dx(x.size());
  std::vector<double> want_dw(w.size());
  for_each_product(s, [&](size_t i, size_t j, size_t k) {
    want_y[k] += static_cast<double>(x[i]) * w[j];
    want_dx[i] += static_cast<double>(w[j]) * dy[k];
    want_dw[j] += static_cast<double>(x[i]) * dy[k];
  });
  for (size_t k = 0; k < want_y.size(); ++k) {
    want_y[k] = std::max(0.0, want_y[k] + bias[k % static_cast<size_t>(s.out_c)] + residual[k]);
  }
  const double tolerance = dtype == DType::f32 ? 1e-5 : 6e-3;
  ThreadPool threads(GetParam().threads);
  for (const ConvAlgorithm algorithm : algorithms(s)) {
    ConvSpec spec{.shape = s, .x = dtype, .w = dtype, .num_threads = threads.size(), .algorithm = algorithm};
    const ConvBackwardData data(spec);
    const ConvBackwardWeights weights(spec);
    spec.bias = spec.residual = spec.relu = true;
    const ConvForward forward(spec);
    const int64_t bytes =
        std::max({forward.workspace_bytes(), data.workspace_bytes(), weights.workspace_bytes()});
    std::vector<std::byte> workspace(static_cast<size_t>(bytes) + 64);
    std::vector<float> y_zero(dy.size());
    std::vector<float> x_zero(x.size());
    auto y = stored(dtype, y_zero);
    auto dx = stored(dtype, x_zero);
    std::vector<float> dw(w.size(), 9.0F);
    forward.run(x_bytes.data(), w_bytes.data(), bias.data(), residual_bytes.data(), y.data(),
                workspace.data(), threads);
    expect_near(loaded(dtype, y, y_count(s)), want_y, tolerance);
    data.run(dy_bytes.data(), w_bytes.data(), dx.data(), workspace.data(), threads);
    expect_near(loaded(dtype, dx, x_count(s)), want_dx, tolerance);
    weights.run(x_bytes.data(), dy_bytes.data(), dw.data(), workspace.data(), threads);
    expect_near(dw, want_dw, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvTest,
    testing::Values(
        ConvCase{{.batch = 2, .in_h = 8, .in_w = 8, .in_c = 16, .out_c = 32}, DType::f32, 2},
        ConvCase{{.batch = 3, .in_h = 7, .in_w = 9, .in_c = 5, .out_c = 33}, DType::f32, 2},
        ConvCase{{.batch = 1, .in_h = 4, .in_w = 5, .in_c = 35, .out_c = 7, .padding = 0}, DType::f32, 3},
        ConvCase{{.batch = 2, .in_h = 6, .in_w = 6, .in_c = 20, .out_c = 40, .padding = 2}, DType::f32, 1},
        ConvCase{{.batch = 2, .in_h = 9, .in_w = 8, .in_c = 6, .out_c = 18, .stride = 2}, DType::f32, 2},
        ConvCase{{.batch = 3, .in_h = 9, .in_w = 8, .in_c = 32, .out_c = 64, .stride = 2}, DType::f32, 2},
        // Few channels: patches are multiplied as they lie.
        ConvCase{{.batch = 2,
                  .in_h = 9,
                  .in_w = 30,
                  .in_c = 3,
                  .out_c = 40,
                  .kernel_h = 6,
                  .kernel_w = 6,
                  .stride = 2,
                  .padding = 2},
                 DType::f32,
                 2},
        ConvCase{{.batch = 3,
                  .in_h = 6,
                  .in_w = 3,
                  .in_c = 4,
                  .out_c = 16,
                  .kernel_h = 5,
                  .kernel_w = 7,
                  .stride = 2,
                  .padding = 3},
                 DType::f32,
                 1},
        // So many filters that their gradients are made for some input channels at a time, of one chunk of
        // tiles and of two.
        ConvCase{{.batch = 2, .in_h = 1, .in_w = 1, .in_c = 530, .out_c = 530}, DType::f32, 2},
        ConvCase{{.batch = 65, .in_h = 1, .in_w = 1, .in_c = 530, .out_c = 530}, DType::f32, 2},
        ConvCase{{.batch = 2,
                  .in_h = 7,
                  .in_w = 10,
                  .in_c = 64,
                  .out_c = 32,
                  .kernel_h = 5,
                  .kernel_w = 2,
                  .stride = 3,
                  .padding = 2},
                 DType::f32,
                 1},
        ConvCase{{.batch = 2,
                  .in_h = 6,
                  .in_w = 6,
                  .in_c = 32,
                  .out_c = 32,
                  .kernel_h = 1,
                  .kernel_w = 1,
                  .stride = 2,
                  .padding = 0},
                 DType::bf16,
                 2},
        ConvCase{{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 32, .out_c = 32, .stride = 2, .padding = 2},
                 DType::f32,
                 1},
        ConvCase{{.batch = 2,
                  .in_h = 8,
                  .in_w = 8,
                  .in_c = 24,
                  .out_c = 17,
                  .kernel_h = 1,
                  .kernel_w = 1,
                  .padding = 0},
                 DType::f32,
                 2},
        ConvCase{{.batch = 2,
                  .in_h = 9,
                  .in_w = 9,
                  .in_c = 24,
                  .out_c = 17,
                  .kernel_h = 1,
                  .kernel_w = 1,
                  .stride = 2,
                  .padding = 0},
                 DType::f32,
                 2},
        ConvCase{{.batch = 1,
                  .in_h = 15,
                  .in_w = 15,
                  .in_c = 3,
                  .out_c = 16,
                  .kernel_h = 7,
                  .kernel_w = 7,
                  .stride = 2,
                  .padding = 3},
                 DType::f32,
                 2},
        ConvCase{{.batch = 3, .in_h = 7, .in_w = 9, .in_c = 18, .out_c = 33}, DType::bf16, 2},
        ConvCase{{.batch = 2, .in_h = 9, .in_w = 8, .in_c = 6, .out_c = 18, .stride = 2}, DType::f16, 2}));

}  // namespace
}  // namespace hearth::cpu
