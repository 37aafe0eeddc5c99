#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/choices.h"
#include "base/function_ref.h"
#include "text/token_cache.h"

namespace hearth::text {

/// Algorithm that assigns samples to rows (bin packing).
enum class PackOrder {
  /// Next-fit in the order of the data; with Overlong::split, all samples form one stream that is cut into
  /// rows.
  in_order,
  first_fit_decreasing,  ///< longest sample first, each into the first row with room
  alone                  ///< one row per sample
};

/// Options of plan_rows(). `row_length`: tokens per row.
struct PackOptions {
  int64_t row_length = 0;
  Overlong overlong = Overlong::truncate;
  PackOrder order = PackOrder::first_fit_decreasing;
};

/// A piece of a sample, tokens [first, first + length), and its place in the plan: `row`, and `offset` in it
/// in tokens.
struct Placement {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
  int64_t row = 0;
  int64_t offset = 0;
  bool continues = false;  ///< true if the sample continues in another row after this piece
  bool operator==(const Placement&) const = default;
};

/// Assignment of samples to rows. Deterministic: depends on lengths and options only.
struct PackPlan {
  int64_t row_length = 0;
  std::vector<Placement> placements;  ///< sorted by row, then by offset
  /// Index of the first placement of each row; the last entry is the number of placements.
  std::vector<int64_t> row_starts;
  int64_t num_tokens = 0;
  int64_t num_truncated = 0;  ///< number of truncated samples
  int64_t num_dropped = 0;    ///< number of dropped samples

  int64_t num_rows() const { return std::ssize(row_starts) - 1; }
  std::span<const Placement> row(int64_t index) const;
  /// Returns the fraction of the rows' positions that hold tokens, in [0, 1].
  double fill() const;
};

/// Assigns samples to rows. `lengths`: number of tokens of each sample; samples without tokens are omitted.
/// name_of(sample) returns the source of a sample ("FILE:LINE"), for the error of Overlong::refuse.
PackPlan plan_rows(std::span<const int64_t> lengths, const PackOptions& options,
                   FunctionRef<std::string(int64_t sample)> name_of);

/// Arrays that fill_row() writes, in the caller's memory. Each span has row_length elements, one per token.
struct RowArrays {
  std::span<int32_t> ids;  ///< token ids, padded with `padding`
  std::span<int32_t>
      /// Offset in the row at which the token's document starts; padding counts as a separate document.
      document_starts;
  std::span<int32_t> positions;  ///< position in the document (in this row), from 0
  std::span<int32_t> labels;     ///< next token of the document; -1 if the loss does not count it
};

/// Returns the number of labels of a row other than -1, which count in the loss.
int64_t num_labels(std::span<const Placement> row, const TokenCache& cache);

/// Writes the arrays of a row. If a piece continues in another row, the label of its last token is the first
/// token there. `padding`: id for positions without a token.
void fill_row(std::span<const Placement> row, const TokenCache& cache, int32_t padding, const RowArrays& out);

}  // namespace hearth::text
