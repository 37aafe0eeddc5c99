#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// How a frozen matrix is stored in less than 16 bits an element.
///   nf4: 4-bit codes with an absmax for each 64 elements, row after row, and those in 8 bits (QLoRA,
///   Dettmers et
///        al. 2023, arXiv 2305.14314: NormalFloat of appendix E, and double quantization with blocks of 256)
///   int8: whole numbers from -127 to 127 with an absmax for each row (LLM.int8, arXiv 2208.07339)
///   fp8: E4M3 (arXiv 2209.05433) times a power of two for each row, by which a matrix that came in E4M3 is
///        kept as it is; codes of NaN are never written, and read as 480
/// Codes, scales and what is read back of nf4 and int8 are those of bitsandbytes 0.50 bit for bit, up to the
/// last bit of the mean of a matrix's absmax, which depends on the order of its sum.
enum class Quantization : uint8_t { none, nf4, int8, fp8 };
/// Those that store anything in fewer bits.
inline constexpr std::array kQuantizations = {Quantization::nf4, Quantization::int8, Quantization::fp8};
std::string_view quantization_name(Quantization kind);
/// The one with that name ("nf4", "int8", "fp8"); none for any other.
Quantization quantization_from_name(std::string_view name);

/// The 16 values of NormalFloat4, rising: quantiles of a normal, scaled to [-1, 1], with an exact 0 (appendix
/// E of the paper; the digits stand in bitsandbytes' functional.py too).
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
inline constexpr int64_t kBlock4 = 64;        ///< elements that share an absmax
inline constexpr int64_t kBlockAbsmax = 256;  ///< absmax that share one of their own

/// 1/127 with bitsandbytes' digits (int8_vectorwise_dequant).
inline constexpr float kInverse127 = 7.874015718698502e-3F;

/// The tensors that a matrix [rows, columns] is stored as: the matrix's own name and these ends.
struct QuantizedPart {
  std::string_view suffix;
  ir::Type type;
};
std::vector<QuantizedPart> quantized_parts(Quantization kind, int64_t rows, int64_t columns);

/// A stored matrix; absmax8 and offset for nf4 alone.
struct QuantizedMatrix {
  Quantization kind = Quantization::none;
  int64_t rows = 0;
  int64_t columns = 0;
  const uint8_t* codes = nullptr;  ///< nf4: the first of two in the upper half of a byte; int8: int8_t
  const uint8_t* absmax8 = nullptr;
  const float* absmax = nullptr;  ///< fp8: a row's power of two
  const float* offset = nullptr;

  /// `parts` in the order of quantized_parts.
  QuantizedMatrix(Quantization kind, int64_t rows, int64_t columns, std::span<void* const> parts);
  /// Elements [begin, begin + count), row after row.
  void read(int64_t begin, int64_t count, float* out) const;
};

/// Fills the parts of a matrix from its elements, piece by piece, in any order and by several threads: no
/// more than a piece for each and the absmax of nf4 need be in memory.
class Quantizer {
 public:
  Quantizer(Quantization kind, int64_t rows, int64_t columns, std::span<void* const> parts);
  /// Elements of each piece but the last.
  int64_t piece() const { return piece_; }
  /// The piece that starts at element `at`.
  void add(int64_t at, const float* values, int64_t count);
  /// After the last piece.
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
