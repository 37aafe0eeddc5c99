#include "text/packing.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace hearth::text {
namespace {

/// Free tokens of each row, for bin packing. First-fit decreasing (Johnson 1973) sorts samples by length and
/// puts each into the first row with enough space. A segment tree of maxima finds that row in O(log rows), so
/// packing n samples takes O(n log n).
class FreeTokens {
 public:
  FreeTokens(int64_t max_rows, int64_t row_length)
      : num_leaves_(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(max_rows, 1)))),
        max_free_(2 * num_leaves_, row_length) {}

  /// Reserves `length` tokens in the first row with that many free ones, and returns the row.
  int64_t reserve(int64_t length) {
    size_t node = 1;
    while (node < num_leaves_) node = 2 * node + (max_free_[2 * node] >= length ? 0 : 1);
    max_free_[node] -= length;
    const auto row = static_cast<int64_t>(node - num_leaves_);
    for (node /= 2; node > 0; node /= 2)
      max_free_[node] = std::max(max_free_[2 * node], max_free_[2 * node + 1]);
    return row;
  }
  int64_t free_in(int64_t row) const { return max_free_[num_leaves_ + static_cast<size_t>(row)]; }

 private:
  size_t num_leaves_;
  std::vector<int64_t> max_free_;
};

class Packer {
 public:
  Packer(std::span<const int64_t> lengths, const PackOptions& options,
         FunctionRef<std::string(int64_t)> name_of)
      : lengths_(lengths), options_(options), name_of_(name_of) {
    HEARTH_CHECK(options.row_length > 0);
    plan_.row_length = options.row_length;
  }

  PackPlan run() {
    const bool streams = options_.order == PackOrder::in_order && options_.overlong == Overlong::split;
    for (int64_t sample = 0; sample < std::ssize(lengths_); ++sample) {
      streams ? stream(sample) : cut(sample);
    }
    if (!streams) place();
    index_rows();
    return std::move(plan_);
  }

 private:
  int64_t length(int64_t sample) const { return lengths_[static_cast<size_t>(sample)]; }

  /// Appends a sample to the stream of all samples, which is cut into rows; a sample may continue in the next
  /// rows.
  void stream(int64_t sample) {
    for (int64_t first = 0; first < length(sample);) {
      const int64_t offset = stream_ % options_.row_length;
      const int64_t count = std::min(length(sample) - first, options_.row_length - offset);
      plan_.placements.push_back(
          {sample, first, count, stream_ / options_.row_length, offset, first + count < length(sample)});
      first += count;
      stream_ += count;
    }
  }

  /// Adds the pieces of a sample, of at most one row each, to the plan, according to options_.overlong.
  /// place() chooses their rows.
  void cut(int64_t sample) {
    const int64_t whole = length(sample);
    if (whole > options_.row_length && options_.overlong == Overlong::refuse) {
      user_error(
          "{0}: the sample has {2} tokens, more than data.context={1}; raise data.context, or set "
          "data.overlong to truncate, drop or split",
          name_of_(sample), options_.row_length, whole);
    }
    if (whole > options_.row_length && options_.overlong == Overlong::drop) {
      ++plan_.num_dropped;
      return;
    }
    const bool truncates = whole > options_.row_length && options_.overlong == Overlong::truncate;
    plan_.num_truncated += truncates ? 1 : 0;
    const int64_t used = truncates ? options_.row_length : whole;
    for (int64_t first = 0; first < used; first += options_.row_length) {
      const int64_t count = std::min(options_.row_length, used - first);
      plan_.placements.push_back(
          {.sample = sample, .first = first, .length = count, .continues = first + count < used});
    }
  }

  void place() {
    switch (options_.order) {
      case PackOrder::in_order:
        return place_in_order();
      case PackOrder::first_fit_decreasing:
        return place_longest_first();
      case PackOrder::alone:
        for (size_t i = 0; i < plan_.placements.size(); ++i)
          plan_.placements[i].row = static_cast<int64_t>(i);
    }
  }

  void place_in_order() {
    int64_t row = 0, used = 0;
    for (Placement& piece : plan_.placements) {
      if (used + piece.length > options_.row_length) {
        ++row;
        used = 0;
      }
      piece.row = row;
      piece.offset = used;
      used += piece.length;
    }
  }

  void place_longest_first() {
    std::stable_sort(plan_.placements.begin(), plan_.placements.end(),
                     [](const Placement& a, const Placement& b) { return a.length > b.length; });
    FreeTokens free_tokens(std::ssize(plan_.placements), options_.row_length);
    for (Placement& piece : plan_.placements) {
      piece.row = free_tokens.reserve(piece.length);
      piece.offset = options_.row_length - free_tokens.free_in(piece.row) - piece.length;
    }
    std::sort(plan_.placements.begin(), plan_.placements.end(), [](const Placement& a, const Placement& b) {
      return std::pair(a.row, a.offset) < std::pair(b.row, b.offset);
    });
  }

  void index_rows() {
    for (int64_t i = 0; i < std::ssize(plan_.placements); ++i) {
      const Placement& piece = plan_.placements[static_cast<size_t>(i)];
      if (piece.row == std::ssize(plan_.row_starts)) plan_.row_starts.push_back(i);
      plan_.num_tokens += piece.length;
    }
    plan_.row_starts.push_back(std::ssize(plan_.placements));
  }

  std::span<const int64_t> lengths_;
  PackOptions options_;
  FunctionRef<std::string(int64_t)> name_of_;
  PackPlan plan_;
  int64_t stream_ = 0;
};

/// Returns the label of token `i` of a piece: the token that follows; -1 if there is none or the loss does
/// not count it.
int32_t label_of(const Placement& piece, std::span<const PackedToken> sample, int64_t i) {
  const auto next = static_cast<size_t>(piece.first + i + 1);
  const bool has_next = next < sample.size() && (i + 1 < piece.length || piece.continues);
  return has_next && sample[next].trained() ? sample[next].id() : -1;
}

void fill_piece(const Placement& piece, std::span<const PackedToken> sample, const RowArrays& out) {
  for (int64_t i = 0; i < piece.length; ++i) {
    const auto at = static_cast<size_t>(piece.offset + i);
    out.ids[at] = sample[static_cast<size_t>(piece.first + i)].id();
    out.document_starts[at] = static_cast<int32_t>(piece.offset);
    out.positions[at] = static_cast<int32_t>(i);
    out.labels[at] = label_of(piece, sample, i);
  }
}

}  // namespace

std::span<const Placement> PackPlan::row(int64_t index) const {
  const auto first = static_cast<size_t>(row_starts[static_cast<size_t>(index)]);
  const auto last = static_cast<size_t>(row_starts[static_cast<size_t>(index) + 1]);
  return std::span(placements).subspan(first, last - first);
}

double PackPlan::fill() const {
  const auto num_positions = static_cast<double>(num_rows() * row_length);
  return num_positions > 0 ? static_cast<double>(num_tokens) / num_positions : 0;
}

PackPlan plan_rows(std::span<const int64_t> lengths, const PackOptions& options,
                   FunctionRef<std::string(int64_t)> name_of) {
  return Packer(lengths, options, name_of).run();
}

int64_t num_labels(std::span<const Placement> row, const TokenCache& cache) {
  int64_t count = 0;
  for (const Placement& piece : row) {
    const std::span<const PackedToken> sample = cache.sample(piece.sample);
    for (int64_t i = 0; i < piece.length; ++i) count += label_of(piece, sample, i) >= 0 ? 1 : 0;
  }
  return count;
}

void fill_row(std::span<const Placement> row, const TokenCache& cache, int32_t padding,
              const RowArrays& out) {
  int64_t used = 0;
  for (const Placement& piece : row) {
    fill_piece(piece, cache.sample(piece.sample), out);
    used = piece.offset + piece.length;
  }
  for (auto at = static_cast<size_t>(used); at < out.ids.size(); ++at) {
    out.ids[at] = padding;
    out.document_starts[at] = static_cast<int32_t>(used);
    out.positions[at] = 0;  // Position 0 adds nothing to the context length.
    out.labels[at] = -1;
  }
}

}  // namespace hearth::text
