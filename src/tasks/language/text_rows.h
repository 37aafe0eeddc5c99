#pragma once

#include "data/loader.h"
#include "tasks/task.h"
#include "text/packing.h"

namespace hearth::tasks {

/// Consecutive tokens of a sample, as a part of the data has them.
struct TextPiece {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
};

/// What did not become a row as it was.
struct RowCounts {
  int64_t samples = 0;
  int64_t truncated = 0;
  int64_t dropped = 0;          ///< samples longer than the context
  int64_t untrained = 0;        ///< samples left out: no trained token
  int64_t untrained_start = 0;  ///< of these, overlong samples of which only the start was checked
};

struct RowOptions {
  int64_t context = 0;
  Overlong overlong = Overlong::truncate;
  bool packing = true;
  /// A row is a pair of answers, samples i (even) and i + 1 of the cache, side by side.
  bool pairs = false;
  bool documents = false;  ///< LanguageModelOptions::documents: micro-batches have the input "starts"
  int32_t padding = 0;
  std::string name;  ///< of the data file, for messages
};

/// One part of the data (to train on, or held out) laid out in rows; every row has something to train on.
/// Packing is planned once: what shares a row does so in every epoch.
class TextRows {
 public:
  /// The cache must outlive the rows.
  TextRows(const text::TokenCache& cache, std::vector<TextPiece> pieces, RowOptions options);

  int64_t num_rows() const { return std::ssize(rows_); }
  const RowOptions& options() const { return options_; }
  const RowCounts& counts() const { return counts_; }
  /// Tokens of all rows or of one, padding aside.
  int64_t num_tokens() const { return num_tokens_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// Labels that the loss counts in all rows or in one; of pairs, the pairs.
  int64_t num_trained() const { return num_trained_; }
  int64_t num_trained(int64_t row) const { return trained_[static_cast<size_t>(row)]; }
  /// Number of tokens that 90% of the samples do not exceed.
  int64_t common_length() const { return common_length_; }
  /// Bytes that the layout takes in memory.
  int64_t num_bytes() const;
  /// A pair wants arrays for both answers, the chosen one's first.
  void fill(int64_t row, const text::RowArrays& out) const;
  /// Rows of the context's length that a row stands for.
  int64_t num_answers() const { return options_.pairs ? 2 : 1; }
  /// Of pairs: the log-probabilities of the answers of all rows under the starting model; zeros at first.
  std::span<const float> reference() const { return reference_; }
  void set_reference(std::vector<float> reference) { reference_ = std::move(reference); }
  /// Of all tokens as the rows have them.
  uint64_t digest() const;

 private:
  int64_t usable(const TextPiece& piece);
  text::Placement answer(text::Placement pair, int64_t index) const;
  void add_row(int64_t row);
  void place(const std::vector<TextPiece>& pieces);

  const text::TokenCache& cache_;
  RowOptions options_;
  RowCounts counts_;
  text::PackPlan plan_;
  std::vector<int64_t> rows_;  ///< of the plan, those with something to train on
  std::vector<int64_t> lengths_, trained_;
  std::vector<float> reference_;
  int64_t num_tokens_ = 0;
  int64_t num_trained_ = 0;
  int64_t common_length_ = 0;
};

/// Lengths that padded rows of these parts come in, longest first: the context and its half, quarter and
/// eighth, as far as they are needed.
std::vector<int64_t> row_lengths(const TextRows& train, const TextRows& held_out);

/// In which order an epoch takes the rows: a permutation keyed by (seed, epoch). Without packing, each
/// stretch of it is brought into runs of rows that are padded to the same length. Changes of the order
/// (data::change_order) move whole runs then.
class RowOrder {
 public:
  /// `lengths` as from row_lengths; empty with packing.
  RowOrder(const TextRows& rows, bool shuffle, std::vector<int64_t> lengths);
  /// The row at a position of an epoch.
  int64_t row_at(const data::LoaderPosition& position);
  /// Labels that the loss counts in `count` rows of an epoch from a position on.
  int64_t num_trained(data::LoaderPosition from, int64_t count);

 private:
  int64_t row_in_place(const data::LoaderPosition& position, int64_t place);
  void sort_window(const data::LoaderPosition& position, int64_t window);
  int64_t unsorted(const data::LoaderPosition& position, int64_t at) const;

  const TextRows& rows_;
  bool shuffle_;
  std::vector<int64_t> lengths_;
  int64_t epoch_ = -1;  ///< of what is in sorted_
  int64_t window_ = -1;
  std::vector<int64_t> sorted_;
};

/// Micro-batches {tokens, labels, positions, starts} of the rows, or {..., reference} of pairs. `lengths` as
/// from row_lengths; empty: every row has the context's length.
std::unique_ptr<BatchStream> stream_rows(const TextRows& rows, int64_t batch, bool shuffle,
                                         std::span<const int64_t> lengths, const data::LoaderPosition& from,
                                         const data::LoaderShare& share = {});

/// Bytes of a stream's staging memory.
int64_t row_staging_bytes(const TextRows& rows, int64_t batch);

}  // namespace hearth::tasks
