#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace hearth::hub {

/// Parts of a quantized matrix [rows, columns] in a checkpoint: codes, scales and zero points per group of
/// columns.
struct QuantizedModule {
  std::string where;  ///< start of error messages: "FILE: 'MODULE'"
  int64_t rows = 0;
  int64_t columns = 0;
  int bits = 8;
  int64_t block_rows = 0;  ///< rows that share a scale; 0: the config sets no blocks
  int64_t block_columns = 0;
  std::optional<io::TensorView> codes, scales;
  std::optional<io::TensorView> zeros;   ///< nullopt: 0
  std::optional<io::TensorView> groups;  ///< group of each column (act order); nullopt: equal parts
};

/// Each function below returns a decoder of one layout and throws a UserError if the shapes of the parts do
/// not fit together. Decoders refer to the bytes of the parts, which must stay valid.

/// Codes of 8 bits (E4M3, E5M2, integers) in row-major order, with scales for the tensor, for rows, for
/// groups of columns of a row, or for blocks of rows and columns. `factor`: multiplies all values.
std::shared_ptr<const io::TensorDecoder> byte_decoder(const QuantizedModule& module, float factor = 1);
/// pack-quantized of compressed-tensors: codes packed along the columns, zero points along the rows.
std::shared_ptr<const io::TensorDecoder> packed_decoder(const QuantizedModule& module);
/// GPTQ: codes packed along the columns of the matrix, which are the rows of the file. `added_zero`: 1 for
/// the original format, which stores zero point - 1; 0 for gptq_v2.
std::shared_ptr<const io::TensorDecoder> gptq_decoder(const QuantizedModule& module, int added_zero);
/// AWQ ("gemm"): codes packed along the rows of the matrix, in an interleaved order.
std::shared_ptr<const io::TensorDecoder> awq_decoder(const QuantizedModule& module);

}  // namespace hearth::hub
