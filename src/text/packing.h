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
  in_order,  ///< next-fit; Overlong::split cuts one stream into rows, which are full except the last
  first_fit_decreasing,  ///< longest first, each into the first row with room
  alone                  ///< one row per sample
};

/// Options of plan_rows(). `row_length`: tokens per row.
struct PackOptions {
  int64_t row_length = 0;
  Overlong overlong = Overlong::truncate;
  PackOrder order = PackOrder::first_fit_decreasing;
};

/// Tokens [first, first + length) of a sample, at `offset` in a row.
struct Placement {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
  int64_t row = 0;
  int64_t offset = 0;
  bool continues = false;  ///< true if the sample continues in another row
  bool operator==(const Placement&) const = default;
};

/// Assignment of samples to rows. Deterministic: depends on lengths and options only.
struct PackPlan {
  int64_t row_length = 0;
  std::vector<Placement> placements;  ///< by row, then by offset
  std::vector<int64_t> row_starts;    ///< index of each row's first placement; one entry more than rows
  int64_t num_tokens = 0;
  int64_t num_truncated = 0;  ///< samples
  int64_t num_dropped = 0;    ///< samples

  int64_t num_rows() const { return std::ssize(row_starts) - 1; }
  std::span<const Placement> row(int64_t index) const;
  /// Returns the fraction of the rows' positions that hold tokens, in [0, 1].
  double fill() const;
};

/// Assigns samples to rows. `lengths`: tokens per sample; samples without tokens are omitted. `name_of`
/// returns the source of a sample ("FILE:LINE"), for the error of Overlong::refuse.
PackPlan plan_rows(std::span<const int64_t> lengths, const PackOptions& options,
                   FunctionRef<std::string(int64_t sample)> name_of);

/// Output of fill_row, in the caller's memory. Each span has row_length elements.
struct RowArrays {
  std::span<int32_t> ids;  ///< padded with `padding`
  std::span<int32_t>
      document_starts;  ///< start of each token's document in the row; padding is a separate document
  std::span<int32_t> positions;  ///< position in the document, from 0
  std::span<int32_t> labels;     ///< next token of the document; -1 if it does not count in the loss
};

/// Returns the number of labels of a row that count in the loss.
int64_t num_labels(std::span<const Placement> row, const TokenCache& cache);

/// Writes a row. The last token of a piece that continues in another row is labeled with the first token
/// there.
void fill_row(std::span<const Placement> row, const TokenCache& cache, int32_t padding, const RowArrays& out);

}  // namespace hearth::text
