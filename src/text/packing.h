#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/choices.h"
#include "base/function_ref.h"
#include "text/token_cache.h"

namespace hearth::text {

enum class PackOrder {
  in_order,  ///< next-fit; with Overlong::split rows are cut out of one stream and all but the last are full
  first_fit_decreasing,  ///< longest first, each into the first row that has room
  alone                  ///< each has a row of its own
};

struct PackOptions {
  int64_t row_length = 0;
  Overlong overlong = Overlong::truncate;
  PackOrder order = PackOrder::first_fit_decreasing;
};

/// Tokens [first, first + length) of a sample at `offset` of a row.
struct Placement {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
  int64_t row = 0;
  int64_t offset = 0;
  bool goes_on = false;  ///< in another row
  bool operator==(const Placement&) const = default;
};

/// Which samples go where. The same lengths and options give the same plan everywhere.
struct PackPlan {
  int64_t row_length = 0;
  std::vector<Placement> placements;  ///< by row, then by offset
  std::vector<int64_t> row_starts;    ///< in placements; one more than rows
  int64_t num_tokens = 0;
  int64_t num_truncated = 0;  ///< samples
  int64_t num_dropped = 0;    ///< samples

  int64_t num_rows() const { return std::ssize(row_starts) - 1; }
  std::span<const Placement> row(int64_t index) const;
  /// The share of the rows' places that hold tokens.
  double fill() const;
};

/// `name_of` says where a sample comes from ("FILE:LINE"), for Overlong::refuse. Samples without tokens are
/// left out.
PackPlan plan_rows(std::span<const int64_t> lengths, const PackOptions& options,
                   FunctionRef<std::string(int64_t sample)> name_of);

/// One row, in the caller's memory; every span has the row's length.
struct RowArrays {
  std::span<int32_t> ids;  ///< padded with `padding`
  std::span<int32_t>
      document_starts;           ///< per token, where its document begins in the row; padding is a document
  std::span<int32_t> positions;  ///< from 0 in every document
  std::span<int32_t> labels;     ///< the next token of the document, or -1 where the loss does not count it
};

/// How many labels of a row the loss counts.
int64_t num_labels(std::span<const Placement> row, const TokenCache& cache);

/// Writes a row. The last token of a piece that continues in another row is labeled with what follows there.
void fill_row(std::span<const Placement> row, const TokenCache& cache, int32_t padding, const RowArrays& out);

}  // namespace hearth::text
