#include "hub/floats.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/convert.h"
#include "base/error.h"

namespace hearth::hub {
namespace {

void load_8_bit(const io::TensorView& view, int64_t from, std::span<float> values) {
  HEARTH_CHECK(view.dtype == DType::f8_e4m3 || view.dtype == DType::f8_e5m2);
  std::array<float, 256> known{};
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    const float value = view.dtype == DType::f8_e4m3 ? f8_e4m3_to_f32(bits) : f8_e5m2_to_f32(bits);
    known[static_cast<size_t>(i)] = value * view.scale.value_or(1);
  }
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = known[static_cast<uint8_t>(view.bytes[static_cast<size_t>(from) + i])];
}

}  // namespace

std::vector<float> floats_of(const io::TensorView& view, int64_t from, int64_t count) {
  if (view.decoder) {
    std::vector<float> values(static_cast<size_t>(count));
    view.decoder->decode(view, from, values);
    return values;
  }
  const int64_t size = dtype_bytes(view.dtype);
  // Copies the elements, because those in a mapped file may be unaligned.
  std::vector<double> aligned(static_cast<size_t>((count * size + 7) / 8));
  std::memcpy(aligned.data(), view.bytes.data() + from * size, static_cast<size_t>(count * size));
  std::vector<float> values(static_cast<size_t>(count));
  if (view.dtype == DType::f64) {
    std::ranges::transform(aligned, values.begin(), [](double value) { return static_cast<float>(value); });
  } else if (size == 1) {
    load_8_bit(view, from, values);
  } else {
    cpu::load_f32(view.dtype, aligned.data(), 0, count, values.data());
  }
  return values;
}

std::vector<float> floats_of(const io::TensorView& view) {
  return floats_of(view, 0, view.shape.num_elements());
}

}  // namespace hearth::hub
