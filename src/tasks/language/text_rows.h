#pragma once

#include "data/loader.h"
#include "tasks/task.h"
#include "text/packing.h"
#include "text/teacher_file.h"

namespace hearth::tasks {

/// A range of tokens of a sample; `sample` is its index in the token cache.
struct TextPiece {
  int64_t sample = 0;
  int64_t first = 0;
  int64_t length = 0;
};

/// Number of all samples, and of samples that are cut or left out when they are packed into rows.
struct RowCounts {
  int64_t samples = 0;
  int64_t truncated = 0;
  int64_t dropped = 0;    ///< samples left out because they are longer than the context
  int64_t untrained = 0;  ///< samples left out because they have no trained token
  /// Part of `untrained`: samples longer than the context, of which only the start has no trained token.
  int64_t untrained_start = 0;
};

struct RowOptions {
  int64_t context = 0;
  Overlong overlong = Overlong::truncate;
  bool packing = true;
  /// True if a row is a pair of answers: the chosen one, sample i of the cache (i even), and the rejected
  /// one, sample i + 1.
  bool pairs = false;
  /// True if micro-batches have the array "starts" (LanguageModelOptions::documents).
  bool documents = false;
  int32_t padding = 0;
  /// Number of tokens that a teacher lists per token (LanguageModelOptions::teacher_top_k).
  int64_t teacher_top_k = 0;
  std::string name;  ///< name of the data file, for messages
};

/// Rows of the training or held-out part of the data, into which samples are packed. Every row has at least
/// one trained token. Packing is planned once, so a row has the same samples in every epoch.
class TextRows {
 public:
  /// `cache` must outlive this object.
  TextRows(const text::TokenCache& cache, std::vector<TextPiece> pieces, RowOptions options);

  int64_t num_rows() const { return std::ssize(rows_); }
  const RowOptions& options() const { return options_; }
  const RowCounts& counts() const { return counts_; }
  /// Return the number of tokens without padding of all rows, and for each row its length without padding.
  int64_t num_tokens() const { return num_tokens_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// Return the number of labels that count in the loss, of all rows and of one row; with pairs, the number
  /// of pairs.
  int64_t num_trained() const { return num_trained_; }
  int64_t num_trained(int64_t row) const { return trained_[static_cast<size_t>(row)]; }
  /// Returns the number of tokens that at least 90% of the samples do not exceed.
  int64_t common_length() const { return common_length_; }
  /// Returns the bytes of host memory of the packing plan.
  int64_t num_bytes() const;
  /// Writes the arrays of a row. The arrays of a pair have twice the row length: the chosen answer in the
  /// first half, the rejected one in the second.
  void fill(int64_t row, const text::RowArrays& out) const;
  /// Returns the number of sequences that a row has in the model: 2 for a pair, otherwise 1.
  int64_t num_answers() const { return options_.pairs ? 2 : 1; }
  /// Returns the log-probabilities of both answers of each pair under the reference model, [rows, 2]; zeros
  /// before set_reference().
  std::span<const float> reference() const { return reference_; }
  void set_reference(std::vector<float> reference) { reference_ = std::move(reference); }
  /// Sets the teacher's entries, and the index of the first entry of each row; empty: an entry is the
  /// position of a token in the cache. Without entries, the teacher's arrays are zero. They must outlive this
  /// object.
  void set_teacher(const text::TeacherEntries& entries, std::vector<int64_t> first_entries);
  /// Returns the position in the cache after the last token that a label follows.
  int64_t end_of_labels() const;
  /// Writes the teacher's entries of a row, [labels, teacher_top_k], for the tokens that have a label.
  void fill_teacher(int64_t row, std::span<const int32_t> labels, int32_t* ids, float* logps) const;
  /// Returns a hash of all tokens in the order of the rows.
  uint64_t digest() const;

 private:
  /// Returns the position in the cache of the first token of a placement.
  int64_t position_of(const text::Placement& placement) const;
  /// Returns the length of a piece for the packing plan. If it would have no trained token, counts it in
  /// counts_ and returns 0.
  int64_t usable_length(const TextPiece& piece);
  /// Returns the placement of answer `index` (0 or 1) of a pair.
  text::Placement answer(text::Placement pair, int64_t index) const;
  /// Adds a row of the packing plan, unless it has no trained token.
  void add_row(int64_t row);
  /// Plans into which rows the pieces are packed, and sets counts_.
  void place(const std::vector<TextPiece>& pieces);

  const text::TokenCache& cache_;
  RowOptions options_;
  RowCounts counts_;
  text::PackPlan plan_;
  std::vector<int64_t> rows_;  ///< rows of the packing plan that have a trained token
  std::vector<int64_t> lengths_, trained_;
  std::vector<float> reference_;
  const text::TeacherEntries* teacher_ = nullptr;
  std::vector<int64_t> first_entries_;
  int64_t num_tokens_ = 0;
  int64_t num_trained_ = 0;
  int64_t common_length_ = 0;
};

/// Returns the lengths in tokens to which rows are padded without packing, longest first. Candidates are the
/// context, its half, quarter and eighth (rounded up to multiples of 16, at least about 32); each row is
/// padded to the shortest candidate that fits, and candidates without rows are left out.
std::vector<int64_t> row_lengths(const TextRows& train, const TextRows& held_out);

/// Order of the rows in an epoch: a permutation keyed by (seed, epoch). Without packing, rows of similar
/// length are grouped so that micro-batches need little padding: each window of 512 rows is sorted by padded
/// length, then its groups of 16 rows are shuffled. data::change_order permutes only full groups.
class RowOrder {
 public:
  /// `lengths`: result of row_lengths(); empty with packing.
  RowOrder(const TextRows& rows, bool shuffle, std::vector<int64_t> lengths);
  /// Returns the row at a position of an epoch.
  int64_t row_at(const data::LoaderPosition& position);
  /// Returns the number of labels that count in the loss, in the `count` rows that begin at a position.
  int64_t num_trained(data::LoaderPosition from, int64_t count);

 private:
  /// Returns the row at index `place` of the epoch's order.
  int64_t row_at_index(const data::LoaderPosition& position, int64_t place);
  /// Fills sorted_ with the rows of a window, sorted by padded length.
  void sort_window(const data::LoaderPosition& position, int64_t window);
  /// Returns the row at index `at` of the epoch's permutation, before windows are sorted.
  int64_t unsorted(const data::LoaderPosition& position, int64_t at) const;

  const TextRows& rows_;
  bool shuffle_;
  std::vector<int64_t> lengths_;
  int64_t epoch_ = -1;  ///< epoch of the rows in sorted_; window_: their window
  int64_t window_ = -1;
  std::vector<int64_t> sorted_;
};

/// Returns the index of each row's first entry in a teacher file: entries are in the order of an epoch
/// without shuffling. `lengths`: as for RowOrder.
std::vector<int64_t> first_teacher_entries(const TextRows& rows, const std::vector<int64_t>& lengths);

/// Returns a stream of micro-batches {tokens, labels, positions}, with `starts` if rows have documents, and
/// `reference` if they are pairs, and {teacher_ids, teacher_logps} with a teacher. `lengths`: result of
/// row_lengths(); empty: every row is padded to the context. The rows must outlive the stream.
std::unique_ptr<BatchStream> stream_rows(const TextRows& rows, int64_t batch, bool shuffle,
                                         std::span<const int64_t> lengths, const data::LoaderPosition& from,
                                         const data::LoaderShare& share = {});

/// Returns the bytes of staging memory of a stream from stream_rows().
int64_t row_staging_bytes(const TextRows& rows, int64_t batch);

}  // namespace hearth::tasks
