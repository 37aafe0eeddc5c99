#include "ops/matmul/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/clones.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

constexpr int64_t kPieceElements = 1 << 17;
constexpr float kMinAbsmax = 1e-38F;

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

float largest(const float* values, int64_t count) {
  float largest_abs = 0;
  for (int64_t i = 0; i < count; ++i) largest_abs = std::max(largest_abs, std::abs(values[i]));
  return largest_abs;
}

/// Returns the nf4 code whose value is nearest to x: the number of midpoints between adjacent code values
/// that are below x.
uint8_t nearest4(float x) {
  static const std::array<float, 16> middles = [] {
    std::array<float, 16> result{};
    for (size_t i = 0; i + 1 < result.size(); ++i) result[i] = (kNormalFloat4[i] + kNormalFloat4[i + 1]) / 2;
    return result;
  }();
  size_t at = 0;
  for (size_t step = 8; step > 0; step /= 2) at += x > middles[at + step - 1] ? step : 0;
  return static_cast<uint8_t>(at);
}

/// The two nf4 values that each byte encodes.
constexpr std::array<std::array<float, 2>, 256> kPairs = [] {
  std::array<std::array<float, 2>, 256> result{};
  for (size_t i = 0; i < result.size(); ++i) result[i] = {kNormalFloat4[i / 16], kNormalFloat4[i % 16]};
  return result;
}();

/// Looks up the values of nf4 codes [begin, end), without their scale.
void look_up(const uint8_t* codes, int64_t begin, int64_t end, float* out) {
  if (begin % 2 != 0) *out++ = kPairs[codes[begin++ / 2]][1];
  for (; begin + 1 < end; begin += 2, out += 2) std::memcpy(out, kPairs[codes[begin / 2]].data(), 8);
  if (begin < end) *out = kPairs[codes[begin / 2]][0];
}

void read_nf4(const QuantizedMatrix& m, int64_t begin, int64_t count, float* out) {
  const DynamicMap& map = dynamic_map(true);
  for (int64_t i = begin; i < begin + count;) {
    const int64_t block = i / kBlock4;
    // Two statements, so that the product is rounded before the addition (no FMA), as in bitsandbytes.
    const float product = map[m.absmax8[block]] * m.absmax[block / kBlockAbsmax];
    const float scale = product + *m.offset;
    const int64_t end = std::min((block + 1) * kBlock4, begin + count);
    look_up(m.codes, i, end, out);
    for (; i < end; ++i) *out++ *= scale;
  }
}

void read_int8(const QuantizedMatrix& m, int64_t begin, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const int8_t*>(m.codes);
  for (int64_t i = begin; i < begin + count;) {
    const int64_t row = i / m.columns;
    const int64_t end = std::min((row + 1) * m.columns, begin + count);
    const float absmax = m.absmax[row];
    for (; i < end; ++i) *out++ = static_cast<float>(codes[i]) * absmax * kInverse127;
  }
}

/// Computes out[i] = scale * value of E4M3 code codes[i].
HEARTH_CLONES void read_codes8(const uint8_t* codes, int64_t count, float scale, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = e4m3_value(codes[i]) * scale;
}
void read_fp8(const QuantizedMatrix& m, int64_t begin, int64_t count, float* out) {
  for (int64_t i = begin; i < begin + count;) {
    const int64_t row = i / m.columns, end = std::min((row + 1) * m.columns, begin + count);
    read_codes8(m.codes + i, end - i, m.absmax[row], out);
    out += end - i;
    i = end;
  }
}

/// Returns the scale of a row with this absmax (e4m3_exponent); 1 if it is not finite.
float fp8_scale(float largest_abs) {
  const uint8_t exponent = e4m3_exponent(largest_abs);
  return exponent == kNanExponent ? 1 : e4m3_scale(exponent);
}

}  // namespace

std::string_view quantization_name(Quantization kind) {
  constexpr std::string_view kNames[] = {"none", "nf4", "int8", "fp8"};
  return kNames[static_cast<size_t>(kind)];
}

Quantization quantization_from_name(std::string_view name) {
  for (const Quantization kind : kQuantizations) {
    if (name == quantization_name(kind)) return kind;
  }
  return Quantization::none;
}

std::vector<QuantizedPart> quantized_parts(Quantization kind, int64_t rows, int64_t columns) {
  const int64_t count = rows * columns;
  if (kind == Quantization::int8)
    return {{"", {DType::i8, {rows, columns}}}, {".absmax", {DType::f32, {rows}}}};
  if (kind == Quantization::fp8)
    return {{"", {DType::u8, {rows, columns}}}, {".scale", {DType::f32, {rows}}}};
  const int64_t blocks = parts_of(count, kBlock4);
  return {{"", {DType::u8, {parts_of(count, 2)}}},
          {".absmax", {DType::u8, {blocks}}},
          {".nested_absmax", {DType::f32, {parts_of(blocks, kBlockAbsmax)}}},
          {".offset", {DType::f32, {1}}}};
}

QuantizedMatrix::QuantizedMatrix(Quantization kind_of, int64_t num_rows, int64_t num_columns,
                                 std::span<void* const> parts)
    : kind(kind_of), rows(num_rows), columns(num_columns), codes(static_cast<const uint8_t*>(parts[0])) {
  if (kind != Quantization::nf4) {
    absmax = static_cast<const float*>(parts[1]);
    return;
  }
  absmax8 = static_cast<const uint8_t*>(parts[1]);
  absmax = static_cast<const float*>(parts[2]);
  offset = static_cast<const float*>(parts[3]);
}

void QuantizedMatrix::read(int64_t begin, int64_t count, float* out) const {
  if (kind == Quantization::nf4) return read_nf4(*this, begin, count, out);
  kind == Quantization::int8 ? read_int8(*this, begin, count, out) : read_fp8(*this, begin, count, out);
}

Quantizer::Quantizer(Quantization kind, int64_t rows, int64_t columns, std::span<void* const> parts)
    : kind_(kind),
      columns_(columns),
      piece_(kind == Quantization::nf4 ? kPieceElements
                                       : std::max<int64_t>(1, kPieceElements / columns) * columns),
      parts_(parts.begin(), parts.end()) {
  HEARTH_CHECK(parts.size() == quantized_parts(kind, rows, columns).size());
  if (kind == Quantization::nf4) absmax_.resize(static_cast<size_t>(parts_of(rows * columns, kBlock4)));
}

void Quantizer::add(int64_t at, const float* values, int64_t count) {
  HEARTH_CHECK(at % piece_ == 0);
  if (kind_ == Quantization::nf4) return add_nf4(at, values, count);
  kind_ == Quantization::int8 ? add_int8(at, values, count) : add_fp8(at, values, count);
}

void Quantizer::add_nf4(int64_t at, const float* values, int64_t count) {
  auto* codes = static_cast<uint8_t*>(parts_[0]) + at / 2;
  std::fill_n(codes, parts_of(count, 2), uint8_t{0});
  for (int64_t first = 0; first < count; first += kBlock4) {
    const int64_t size = std::min(kBlock4, count - first);
    const float largest_abs = largest(values + first, size);
    absmax_[static_cast<size_t>((at + first) / kBlock4)] = largest_abs;
    const float factor = 1 / std::max(largest_abs, kMinAbsmax);
    for (int64_t i = first; i < first + size; ++i) {
      const int code = nearest4(values[i] * factor) << (i % 2 == 0 ? 4 : 0);
      codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | code);
    }
  }
}

void Quantizer::add_int8(int64_t at, const float* values, int64_t count) {
  auto* codes = static_cast<int8_t*>(parts_[0]) + at;
  for (int64_t first = 0; first < count; first += columns_) {
    const float largest_abs = largest(values + first, columns_);
    static_cast<float*>(parts_[1])[(at + first) / columns_] = largest_abs;
    const float factor = largest_abs > 0 ? 127 / largest_abs : 0;
    for (int64_t i = first; i < first + columns_; ++i)
      codes[i] = static_cast<int8_t>(std::nearbyint(values[i] * factor));
  }
}

void Quantizer::add_fp8(int64_t at, const float* values, int64_t count) {
  auto* codes = static_cast<uint8_t*>(parts_[0]) + at;
  for (int64_t first = 0; first < count; first += columns_) {
    const float scale = fp8_scale(largest(values + first, columns_));
    static_cast<float*>(parts_[1])[(at + first) / columns_] = scale;
    for (int64_t i = first; i < first + columns_; ++i) codes[i] = e4m3_code(values[i] / scale);
  }
}

void Quantizer::finish() {
  if (kind_ != Quantization::nf4) return;
  double sum = 0;
  for (const float value : absmax_) sum += static_cast<double>(value);
  const auto mean = static_cast<float>(sum / static_cast<double>(absmax_.size()));
  *static_cast<float*>(parts_[3]) = mean;
  for (float& value : absmax_) value -= mean;
  const auto count = std::ssize(absmax_);
  for (int64_t first = 0; first < count; first += kBlockAbsmax) {
    const int64_t size = std::min(kBlockAbsmax, count - first);
    const float largest_abs = largest(absmax_.data() + first, size);
    static_cast<float*>(parts_[2])[first / kBlockAbsmax] = largest_abs;
    quantize_dynamic(true, absmax_.data() + first, 1 / std::max(largest_abs, kMinAbsmax),
                     static_cast<uint8_t*>(parts_[1]) + first, size);
  }
}

}  // namespace hearth::ops
