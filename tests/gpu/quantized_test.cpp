// A GPU decodes quantized weights to the processor's bits: multiplied by the identity, nothing else is left.
#include "ops/matmul/quantized.h"

#include <gtest/gtest.h>

#include "backend/gpu/rt.h"
#include "base/philox.h"
#include "gpu/gpu.h"
#include "ops/matmul/matmul.h"

namespace hearth::ops {
namespace {

constexpr int64_t kRows = 70, kColumns = 299;

/// The parts of a matrix of random numbers, and what the processor reads from them.
struct Matrix {
  std::vector<std::vector<std::byte>> parts;
  std::vector<ir::Type> types;
  std::vector<float> values = std::vector<float>(kRows * kColumns);

  explicit Matrix(Quantization kind) {
    PhiloxSequence random(3, 0);
    for (float& value : values) value = random.normal();
    std::vector<void*> arrays;
    for (const QuantizedPart& part : quantized_parts(kind, kRows, kColumns)) {
      types.push_back(part.type);
      parts.emplace_back(static_cast<size_t>(part.type.num_bytes()));
    }
    for (std::vector<std::byte>& part : parts) arrays.push_back(part.data());
    Quantizer quantizer(kind, kRows, kColumns, arrays);
    quantizer.add(0, values.data(), kRows * kColumns);
    quantizer.finish();
    QuantizedMatrix(kind, kRows, kColumns, arrays).read(0, kRows * kColumns, values.data());
  }
};

class DecodedOnACard : public testing::TestWithParam<std::tuple<Quantization, bool>> {
 protected:
  /// The matrix, or with `back` false its transpose, by way of a matmul with the identity.
  template <typename T>
  static std::vector<T> product(const Matrix& matrix, DType dtype) {
    const auto& [kind, back] = GetParam();
    const int64_t side = back ? kRows : kColumns, width = back ? kColumns : kRows;
    const ir::Attrs attrs = {{"format", std::string(quantization_name(kind))},
                             {"rows", kRows},
                             {"columns", kColumns},
                             {"back", int64_t{back}}};
    std::vector<ir::Type> in = {{dtype, {side, side}}};
    in.insert(in.end(), matrix.types.begin(), matrix.types.end());
    const std::vector<ir::Type> out = {{dtype, {side, width}}};
    gpu::Gpu gpu;
    const ir::Kernel kernel =
        gpu.kernel(quantized_linear, ir::NodeView{.attrs = attrs, .in = in, .out = out});
    std::vector<T> identity(static_cast<size_t>(side * side), rt::from_float<T>(0));
    for (int64_t i = 0; i < side; ++i) identity[static_cast<size_t>(i * side + i)] = rt::from_float<T>(1);
    std::vector<void*> arrays = {gpu.put(identity)};
    for (const std::vector<std::byte>& part : matrix.parts) arrays.push_back(gpu.put(part));
    std::vector<void*> results = {gpu.room<T>(static_cast<size_t>(side * width))};
    auto* workspace = gpu.room<std::byte>(static_cast<size_t>(kernel.workspace_bytes + 1));
    kernel.run({.in = arrays, .out = results, .workspace = workspace, .stream = &gpu.stream()});
    return gpu.get(static_cast<const T*>(results[0]), static_cast<size_t>(side * width));
  }
  static float expected(const Matrix& matrix, int64_t i) {
    return matrix.values[static_cast<size_t>(std::get<1>(GetParam()) ? i : i % kRows * kColumns + i / kRows)];
  }
};

TEST_P(DecodedOnACard, HasTheBitsOfTheProcessor) {
  HEARTH_NEED_GPU();
  const Matrix matrix(std::get<0>(GetParam()));
  const auto wide = product<float>(matrix, DType::f32);
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    ASSERT_EQ(wide[static_cast<size_t>(i)], expected(matrix, i)) << i;
  const auto narrow = product<rt::bf16>(matrix, DType::bf16);
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    ASSERT_EQ(narrow[static_cast<size_t>(i)].bits, rt::from_float<rt::bf16>(expected(matrix, i)).bits) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, DecodedOnACard,
                         testing::Combine(testing::ValuesIn(kQuantizations), testing::Bool()));

}  // namespace
}  // namespace hearth::ops
