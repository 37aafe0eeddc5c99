#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// Storage formats of a frozen matrix with less than 16 bits per element.
///   nf4: 4-bit codes with an absmax for each 64 elements in row-major order; the absmax values are quantized
///        to 8 bits (QLoRA, Dettmers et al. 2023, arXiv 2305.14314: NormalFloat of appendix E, and double
///        quantization in blocks of 256)
///   int8: integers in [-127, 127] with an absmax for each row (LLM.int8, arXiv 2208.07339)
///   fp8: E4M3 codes (arXiv 2209.05433) times a power of two for each row, so that a matrix whose elements
///        are E4M3 values is stored without loss; NaN codes are never written, and are read as 480
/// Codes, scales and dequantized values of nf4 and int8 are equal to those of bitsandbytes 0.50 bit for bit,
/// except that the mean of a matrix's absmax values (the offset of nf4) may differ in the last bit, because
/// it depends on the order of summation.
enum class Quantization : uint8_t { none, nf4, int8, fp8 };
/// All formats except none.
inline constexpr std::array kQuantizations = {Quantization::nf4, Quantization::int8, Quantization::fp8};
std::string_view quantization_name(Quantization kind);
/// Returns the format with that name ("nf4", "int8", "fp8"); none for any other name.
Quantization quantization_from_name(std::string_view name);

/// The 16 values of NormalFloat4 in ascending order: quantiles of a normal distribution, scaled to [-1, 1],
/// with an exact 0 (appendix E of the paper; same digits as in bitsandbytes' functional.py).
inline constexpr std::array<float, 16> kNormalFloat4 = {-1.0F,
                                                        -0.6961928009986877F,
                                                        -0.5250730514526367F,
                                                        -0.39491748809814453F,
                                                        -0.28444138169288635F,
                                                        -0.18477343022823334F,
                                                        -0.09105003625154495F,
                                                        0.0F,
                                                        0.07958029955625534F,
                                                        0.16093020141124725F,
                                                        0.24611230194568634F,
                                                        0.33791524171829224F,
                                                        0.44070982933044434F,
                                                        0.5626170039176941F,
                                                        0.7229568362236023F,
                                                        1.0F};
inline constexpr int64_t kBlock4 = 64;  ///< number of elements that share an absmax in nf4
inline constexpr int64_t kBlockAbsmax =
    256;  ///< number of absmax values that share a second-level absmax in nf4

/// 1/127 with the digits of bitsandbytes (int8_vectorwise_dequant).
inline constexpr float kInverse127 = 7.874015718698502e-3F;

/// A tensor that stores a part of a quantized matrix: codes or scales. The tensor's name is the matrix's name
/// plus `suffix`.
struct QuantizedPart {
  std::string_view suffix;
  ir::Type type;
};
/// Returns the tensors that store a matrix [rows, columns] in a format, in the order of QuantizedMatrix.
std::vector<QuantizedPart> quantized_parts(Quantization kind, int64_t rows, int64_t columns);

/// View of a quantized matrix. absmax8 and offset are null except for nf4, whose absmax values are quantized
/// to 8 bits (absmax8, with second-level absmax) after their mean, offset, was subtracted.
struct QuantizedMatrix {
  Quantization kind = Quantization::none;
  int64_t rows = 0;
  int64_t columns = 0;
  const uint8_t* codes =
      nullptr;  ///< nf4: two codes per byte, the first in the upper 4 bits; int8: int8_t; fp8: E4M3
  const uint8_t* absmax8 = nullptr;
  const float* absmax = nullptr;  ///< nf4: second-level absmax; int8: absmax per row; fp8: scale per row
  const float* offset = nullptr;

  /// `parts` are the tensors of quantized_parts(), in the same order.
  QuantizedMatrix(Quantization kind, int64_t rows, int64_t columns, std::span<void* const> parts);
  /// Dequantizes elements [begin, begin + count) in row-major order.
  void read(int64_t begin, int64_t count, float* out) const;
};

/// Quantizes a matrix piece by piece, in any order and from several threads, so that only one f32 piece per
/// thread must be in memory. Results are written to `parts`, the tensors of quantized_parts().
class Quantizer {
 public:
  Quantizer(Quantization kind, int64_t rows, int64_t columns, std::span<void* const> parts);
  /// Returns the number of elements of each piece; the last piece may be shorter.
  int64_t piece() const { return piece_; }
  /// Quantizes the piece that starts at element `at`, a multiple of piece().
  void add(int64_t at, const float* values, int64_t count);
  /// Completes the matrix (the scales of nf4); call once, after all pieces.
  void finish();

 private:
  void add_nf4(int64_t at, const float* values, int64_t count);
  void add_int8(int64_t at, const float* values, int64_t count);
  void add_fp8(int64_t at, const float* values, int64_t count);

  Quantization kind_;
  int64_t columns_;
  int64_t piece_;
  std::vector<void*> parts_;
  std::vector<float> absmax_;
};

}  // namespace hearth::ops
