#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/block_format.h"
#include "base/choices.h"
#include "base/group_format.h"

namespace hearth {

/// Formats of the weights and inputs of linear layers in quantization-aware training and in exported files:
///   q4_0, q8_0: weights in blocks of GGUF
///   int4: weights in int4 (W4A16)
///   int8_int4: weights in int4, inputs in int8 with a zero point for each token (8da4w, W4A8)
///   w8a8: weights in int8 for each row, inputs in int8 for each token
///   fp8: weights in E4M3 for each row, inputs in E4M3 for each token
enum class QatScheme : uint8_t { none, q4_0, q8_0, int4, int8_int4, w8a8, fp8 };
/// The empty name selects no scheme.
template <>
inline constexpr auto kNames<QatScheme> = std::to_array<std::string_view>({"", "q4_0", "q8_0", "int4",
                                                                           "8da4w", "w8a8", "fp8"});

/// Formats of a scheme. `blocks` and `weights` exclude each other; `inputs` is none if inputs are not
/// rounded.
struct SchemeFormats {
  BlockFormat blocks = BlockFormat::none;
  GroupFormat weights = GroupFormat::none;
  GroupFormat inputs = GroupFormat::none;
  int64_t group = 0;  ///< default number of adjacent weights that share a scale; 0: a row
};
constexpr SchemeFormats formats_of(QatScheme scheme) {
  switch (scheme) {
    case QatScheme::none:
      break;
    case QatScheme::q4_0:
      return {.blocks = BlockFormat::q4_0, .group = kBlockElements};
    case QatScheme::q8_0:
      return {.blocks = BlockFormat::q8_0, .group = kBlockElements};
    case QatScheme::int4:
      return {.weights = GroupFormat::int4, .group = 128};
    case QatScheme::int8_int4:
      return {.weights = GroupFormat::int4, .inputs = GroupFormat::int8_affine, .group = 32};
    case QatScheme::w8a8:
      return {.weights = GroupFormat::int8, .inputs = GroupFormat::int8_token};
    case QatScheme::fp8:
      return {.weights = GroupFormat::fp8, .inputs = GroupFormat::fp8_token};
  }
  return {};
}
/// True if the number of weights that share a scale can be set (quantize.group).
constexpr bool has_group(QatScheme scheme) {
  return scheme == QatScheme::int4 || scheme == QatScheme::int8_int4;
}

/// Rounding of the linear layers of a model.
struct QatRounding {
  QatScheme scheme = QatScheme::none;
  int64_t group = 0;       ///< number of adjacent weights that share a scale; 0: default of the scheme
  int64_t first_step = 0;  ///< first step of training that rounds; evaluations always round

  SchemeFormats formats() const {
    SchemeFormats formats = formats_of(scheme);
    if (group > 0) formats.group = group;
    return formats;
  }
  /// True if layers with this number of inputs are rounded.
  bool fits(int64_t columns) const {
    const int64_t size = formats().group;
    return scheme != QatScheme::none && (size == 0 || columns % size == 0);
  }
};

}  // namespace hearth
