#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/e4m3.h"
#include "base/threads.h"
#include "ir/graph.h"
#include "ops/op_list.h"

namespace hearth::ops {
namespace {

using Floats = std::vector<float>;

/// Runs an op with one input and one output on the CPU.
void run(const char* name, const ir::Attrs& attrs, const ir::Type& from, const ir::Type& to, const void* in,
         void* out) {
  const ir::OpDef& op = *find_op(name);
  const std::vector<ir::Type> in_types = {from}, out_types = {to};
  ASSERT_EQ(op.infer({.attrs = attrs, .in = in_types, .out = {}}).out, out_types);
  ThreadPool threads(2);
  const std::vector<void*> ins = {const_cast<void*>(in)}, outs = {out};
  op.cpu({.attrs = attrs, .in = in_types, .out = out_types})
      .run({.in = ins, .out = outs, .workspace = nullptr, .threads = &threads});
}

ir::Type codes_type(const Shape& shape) { return {.dtype = DType::u8, .shape = {shape[0] * (shape[1] + 1)}}; }
std::vector<uint8_t> encode(const Shape& shape, const Floats& x) {
  std::vector<uint8_t> codes(static_cast<size_t>(codes_type(shape).num_bytes()));
  run("encode_fp8", {}, {.dtype = DType::f32, .shape = shape}, codes_type(shape), x.data(), codes.data());
  return codes;
}
template <typename T>
std::vector<T> decode(DType dtype, const Shape& shape, const std::vector<uint8_t>& codes) {
  std::vector<T> x(static_cast<size_t>(shape.num_elements()));
  run("decode_fp8",
      {{"dtype", std::string(dtype_name(dtype))},
       {"shape", std::vector<int64_t>(shape.begin(), shape.end())}},
      codes_type(shape), {.dtype = dtype, .shape = shape}, codes.data(), x.data());
  return x;
}

TEST(Fp8Copy, KeepsAllCodes) {
  const Shape shape = {1, 256};
  Floats x(256);
  for (int code = 0; code < 256; ++code) {
    const float value = f8_e4m3_to_f32(static_cast<uint8_t>(code));
    x[static_cast<size_t>(code)] = std::isnan(value) ? 0 : 8 * value;
  }
  EXPECT_EQ(decode<float>(DType::f32, shape, encode(shape, x)), x);
}

TEST(Fp8Copy, BoundsTheErrorOfEachRow) {
  const Shape shape = {3, 32};
  Floats x(96, 0.0F);
  for (size_t i = 0; i < 32; ++i) x[i] = std::exp2(static_cast<float>(i) / 3) * (i % 2 == 0 ? 1.1F : -1.1F);
  x[32] = 1e6F;  // an outlier, and small values that keep an absolute error
  for (size_t i = 33; i < 64; ++i) x[i] = 3.0F;
  const Floats y = decode<float>(DType::f32, shape, encode(shape, x));
  for (size_t i = 0; i < 32; ++i) EXPECT_LE(std::fabs(y[i] - x[i]), kMaxE4m3Error * std::fabs(x[i])) << i;
  EXPECT_LE(std::fabs(y[32] - 1e6F), kMaxE4m3Error * 1e6F);
  for (size_t i = 33; i < 64; ++i) EXPECT_LE(std::fabs(y[i] - 3), 0x1p-10F * 4096) << i;
  for (size_t i = 64; i < 96; ++i) EXPECT_EQ(y[i], 0);
}

TEST(Fp8Copy, ARowWithANonFiniteElementBecomesNan) {
  const Shape shape = {3, 16};
  Floats x(48, 1.0F);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[20] = -std::numeric_limits<float>::infinity();
  const Floats y = decode<float>(DType::f32, shape, encode(shape, x));
  for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  for (size_t i = 32; i < 48; ++i) EXPECT_EQ(y[i], 1.0F);
}

TEST(Fp8Copy, StaysInTheRangeOfF16) {
  const Shape shape = {1, 2};
  const auto y = decode<f16>(DType::f16, shape, encode(shape, {65504.0F, -65504.0F}));
  EXPECT_EQ(to_f32(y[0]), 65504.0F);
  EXPECT_EQ(to_f32(y[1]), -65504.0F);
}

}  // namespace
}  // namespace hearth::ops
