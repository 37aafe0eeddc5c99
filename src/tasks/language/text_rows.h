#pragma once

#include "data/loader.h"
#include "tasks/task.h"
#include "text/packing.h"

namespace hearth::tasks {

/// A range of tokens of a sample; `sample` is its index in the token cache.
struct TextPiece {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
};

/// Counts of samples that rows do not hold in full.
struct RowCounts {
  int64_t samples = 0;
  int64_t truncated = 0;
  int64_t dropped = 0;          ///< samples left out: longer than the context
  int64_t untrained = 0;        ///< samples left out: no trained token
  int64_t untrained_start = 0;  ///< of these, overlong samples of which only the start was checked
};

struct RowOptions {
  int64_t context = 0;
  Overlong overlong = Overlong::truncate;
  bool packing = true;
  /// True if a row is a pair of answers: samples i (even, the chosen one) and i + 1 of the cache.
  bool pairs = false;
  bool documents = false;  ///< LanguageModelOptions::documents: micro-batches have the input "starts"
  int32_t padding = 0;
  std::string name;  ///< name of the data file, for messages
};

/// The training or held-out part of the data, packed into rows. Every row has at least one trained token.
/// Packing is planned once, so the same documents share a row in every epoch.
class TextRows {
 public:
  /// The cache must outlive the rows.
  TextRows(const text::TokenCache& cache, std::vector<TextPiece> pieces, RowOptions options);

  int64_t num_rows() const { return std::ssize(rows_); }
  const RowOptions& options() const { return options_; }
  const RowCounts& counts() const { return counts_; }
  /// Number of tokens without padding: of all rows; by row, the end of its last token.
  int64_t num_tokens() const { return num_tokens_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// Number of labels that the loss counts, in all rows or in one; with pairs, the number of pairs.
  int64_t num_trained() const { return num_trained_; }
  int64_t num_trained(int64_t row) const { return trained_[static_cast<size_t>(row)]; }
  /// Number of tokens that 90% of the samples do not exceed.
  int64_t common_length() const { return common_length_; }
  /// Returns the host memory of the packing plan in bytes.
  int64_t num_bytes() const;
  /// Writes a row's arrays. A pair needs arrays of twice the length; the first half is the chosen answer.
  void fill(int64_t row, const text::RowArrays& out) const;
  /// Number of model rows per row: 2 for a pair, otherwise 1.
  int64_t num_answers() const { return options_.pairs ? 2 : 1; }
  /// Log-probabilities of both answers of each pair under the reference model, [rows, 2]; zeros until set.
  std::span<const float> reference() const { return reference_; }
  void set_reference(std::vector<float> reference) { reference_ = std::move(reference); }
  /// Returns a hash of all tokens in the order of the rows.
  uint64_t digest() const;

 private:
  /// Returns the length to plan for: 0 if the row would have no trained token, which is counted in counts_.
  int64_t usable_length(const TextPiece& piece);
  /// Returns answer `index` of a pair.
  text::Placement answer(text::Placement pair, int64_t index) const;
  /// Adds a row of the plan unless it has no trained token.
  void add_row(int64_t row);
  /// Plans the rows and sets counts_.
  void place(const std::vector<TextPiece>& pieces);

  const text::TokenCache& cache_;
  RowOptions options_;
  RowCounts counts_;
  text::PackPlan plan_;
  std::vector<int64_t> rows_;  ///< rows of the plan with a trained token
  std::vector<int64_t> lengths_, trained_;
  std::vector<float> reference_;
  int64_t num_tokens_ = 0;
  int64_t num_trained_ = 0;
  int64_t common_length_ = 0;
};

/// Returns the lengths that padded rows of these parts need, longest first: of the context and its half,
/// quarter and eighth (multiples of 16, down to about 32 tokens) those that some row pads to.
std::vector<int64_t> row_lengths(const TextRows& train, const TextRows& held_out);

/// Order of the rows in an epoch: a permutation keyed by (seed, epoch). Without packing, rows of similar
/// length are grouped so that micro-batches need little padding: each window of 512 rows is sorted by padded
/// length, then its runs of 16 rows are shuffled. data::change_order then permutes whole runs.
class RowOrder {
 public:
  /// `lengths`: from row_lengths(); empty with packing.
  RowOrder(const TextRows& rows, bool shuffle, std::vector<int64_t> lengths);
  /// Returns the row at a position of an epoch.
  int64_t row_at(const data::LoaderPosition& position);
  /// Returns the number of labels that the loss counts in `count` rows from a position on.
  int64_t num_trained(data::LoaderPosition from, int64_t count);

 private:
  /// Returns the row at index `place` of the epoch's order.
  int64_t row_at_index(const data::LoaderPosition& position, int64_t place);
  /// Fills sorted_ with the rows of a window by padded length.
  void sort_window(const data::LoaderPosition& position, int64_t window);
  /// Returns the row at index `at` of the permutation, before grouping.
  int64_t unsorted(const data::LoaderPosition& position, int64_t at) const;

  const TextRows& rows_;
  bool shuffle_;
  std::vector<int64_t> lengths_;
  int64_t epoch_ = -1;  ///< epoch and window of the rows in sorted_
  int64_t window_ = -1;
  std::vector<int64_t> sorted_;
};

/// Returns a stream of micro-batches {tokens, labels, positions, starts} of the rows, or, for pairs, {tokens,
/// labels, positions, reference}. `lengths`: from row_lengths(); empty: every row is padded to the context.
/// The rows must outlive the stream.
std::unique_ptr<BatchStream> stream_rows(const TextRows& rows, int64_t batch, bool shuffle,
                                         std::span<const int64_t> lengths, const data::LoaderPosition& from,
                                         const data::LoaderShare& share = {});

/// Returns the bytes of a stream's staging memory.
int64_t row_staging_bytes(const TextRows& rows, int64_t batch);

}  // namespace hearth::tasks
