#include <fmt/format.h>

#include <charconv>

#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"

namespace hearth::ops {
namespace {

/// Number of hexadecimal digits of a word of BlasAlgorithm.
constexpr size_t kDigits = 16;

/// BLAS description (transposed or not, leading dimension) of a matrix with given row and column strides.
struct Side {
  bool transposed;
  int64_t leading;
};
Side side_of(int64_t row_stride, int64_t column_stride, int64_t num_rows) {
  if (row_stride == 1 && column_stride >= num_rows) return {.transposed = false, .leading = column_stride};
  return {.transposed = true, .leading = row_stride};
}

std::string algorithm_prefix() { return std::string(kLibraryVariant) + ":"; }

}  // namespace

gpu::BlasMatmul blas_matmul_of(const MatmulShape& p, DType in, DType out) {
  const Side a = side_of(p.b_column, p.b_term, p.n), b = side_of(p.a_term, p.a_row, p.k);
  return {.transpose_a = a.transposed,
          .transpose_b = b.transposed,
          .m = p.n,
          .n = p.m,
          .k = p.k,
          .leading_a = a.leading,
          .leading_b = b.leading,
          .leading_c = p.c_row,
          .in = in,
          .out = out};
}

bool is_library_variant(std::string_view way) {
  return way == kLibraryVariant || way.starts_with(algorithm_prefix());
}

std::string library_variant(const gpu::BlasAlgorithm& algorithm) {
  std::string way = algorithm_prefix();
  for (const uint64_t word : algorithm.words) way += fmt::format("{:0{}x}", word, kDigits);
  return way;
}

std::optional<gpu::BlasAlgorithm> algorithm_in(std::string_view way) {
  const std::string prefix = algorithm_prefix();
  gpu::BlasAlgorithm algorithm;
  if (!way.starts_with(prefix) || way.size() != prefix.size() + algorithm.words.size() * kDigits)
    return std::nullopt;
  const char* digit = way.data() + prefix.size();
  for (uint64_t& word : algorithm.words) {
    const auto [end, error] = std::from_chars(digit, digit + kDigits, word, 16);
    if (error != std::errc() || end != digit + kDigits) return std::nullopt;
    digit = end;
  }
  return algorithm;
}

}  // namespace hearth::ops
