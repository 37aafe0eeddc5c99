#include "ops/update/dynamic_map.h"

#include <limits>

#include "backend/cpu/clones.h"

namespace hearth::ops {
namespace {

DynamicMap make_map(bool with_sign) {
  DynamicMap map{};
  for (size_t i = 0; i < map.size(); ++i) map[i] = dynamic_value(with_sign, static_cast<uint8_t>(i));
  return map;
}

/// Returns the midpoint of each pair of adjacent values; the entry after the last value is infinity.
DynamicMap make_middles(const DynamicMap& map) {
  DynamicMap middles{};
  for (size_t i = 0; i + 1 < map.size(); ++i) middles[i] = 0.5F * (map[i] + map[i + 1]);
  middles.back() = std::numeric_limits<float>::infinity();
  return middles;
}

struct Tables {
  DynamicMap map;
  DynamicMap middles;
  explicit Tables(bool with_sign) : map(make_map(with_sign)), middles(make_middles(map)) {}
};
const Tables& tables(bool with_sign) {
  static const Tables with(true), without(false);
  return with_sign ? with : without;
}

/// Computes codes[i], the number of midpoints below factor * in[i], by binary search.
HEARTH_CLONES void search(const float* middles, const float* in, float factor, uint8_t* codes,
                          int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = factor * in[i];
    int32_t at = 0;
    for (int32_t step = 128; step > 0; step /= 2) at += x > middles[at + step - 1] ? step : 0;
    codes[i] = static_cast<uint8_t>(at);
  }
}

}  // namespace

const DynamicMap& dynamic_map(bool with_sign) { return tables(with_sign).map; }

void quantize_dynamic(bool with_sign, const float* in, float factor, uint8_t* codes, int64_t count) {
  search(tables(with_sign).middles.data(), in, factor, codes, count);
}

void keep_signs(const float* in, uint8_t* codes, int64_t count) {
  const DynamicMap& map = dynamic_map(true);
  for (int64_t i = 0; i < count; ++i) {
    if (in[i] < 0 && map[codes[i]] >= 0) --codes[i];
    if (in[i] > 0 && map[codes[i]] < 0) ++codes[i];
  }
}

}  // namespace hearth::ops
