#include "tasks/language/text_rows.h"

#include <algorithm>
#include <array>

#include "base/hash.h"

namespace hearth::tasks {
namespace {

/// Number of rows in a window, which are sorted by length, and of consecutive rows that shuffling keeps
/// together (RowOrder). Constants, so that the order does not depend on the batch size.
constexpr int64_t kRowsPerWindow = 512;
constexpr int64_t kRowsPerRun = 16;
/// Min row length in tokens. Shorter rows are padded, because a separate program for them is not worthwhile.
constexpr int64_t kShortestRow = 32;
constexpr int64_t kNumLengths = 4;
constexpr size_t kNumArrays = 4;
constexpr size_t kNumStagings = 3;

text::PackOptions pack_options(const RowOptions& options) {
  const bool splits = options.overlong == Overlong::split;
  return {.row_length = options.context,
          .overlong = options.overlong,
          .order = !options.packing ? text::PackOrder::alone
                   : splits         ? text::PackOrder::in_order
                                    : text::PackOrder::first_fit_decreasing};
}

/// Returns the smallest number of tokens that at least 90% of the pieces do not exceed; 0 if there are no
/// pieces.
int64_t length_of_90_percent(const std::vector<TextPiece>& pieces) {
  std::vector<int64_t> lengths;
  for (const TextPiece& piece : pieces) lengths.push_back(piece.length);
  if (lengths.empty()) return 0;
  const auto at = lengths.begin() + (9 * std::ssize(lengths) + 9) / 10 - 1;
  std::ranges::nth_element(lengths, at);
  return *at;
}

/// Returns the smallest of `lengths` (longest first) that is at least `num_tokens`.
int64_t padded_length(std::span<const int64_t> lengths, int64_t num_tokens) {
  int64_t found = lengths.front();
  for (const int64_t length : lengths) {
    if (length >= num_tokens) found = length;
  }
  return found;
}

/// Staging memory for one micro-batch.
class Staging {
 public:
  Staging(int64_t num_elements, int64_t num_answers, int64_t teacher_top_k)
      : reference_(static_cast<size_t>(num_answers) + 16),
        teacher_ids_(static_cast<size_t>(num_elements * teacher_top_k) + 16),
        teacher_logps_(teacher_ids_.size()) {
    for (auto& array : arrays_) array.resize(static_cast<size_t>(num_elements) + 16);
  }
  text::RowArrays row(int64_t index, int64_t length) {
    const auto part = [&](size_t i) {
      return std::span(arrays_[i]).subspan(static_cast<size_t>(index * length), static_cast<size_t>(length));
    };
    return {.ids = part(0), .document_starts = part(3), .positions = part(2), .labels = part(1)};
  }
  std::span<float> reference() { return reference_; }
  int32_t* teacher_ids() { return teacher_ids_.data(); }
  float* teacher_logps() { return teacher_logps_.data(); }
  const int32_t* starts() const { return arrays_[3].data(); }
  engine::MicroBatch batch(int64_t num_rows, int64_t row_length) const {
    return {{{"tokens", arrays_[0].data()}, {"labels", arrays_[1].data()}, {"positions", arrays_[2].data()}},
            num_rows,
            row_length};
  }

 private:
  std::array<std::vector<int32_t>, kNumArrays> arrays_;
  std::vector<float> reference_;
  std::vector<int32_t> teacher_ids_;
  std::vector<float> teacher_logps_;
};

class RowStream : public BatchStream {
 public:
  RowStream(const TextRows& rows, int64_t batch, bool shuffle, std::span<const int64_t> lengths,
            const data::LoaderPosition& from, const data::LoaderShare& share)
      : rows_(rows),
        order_(rows, shuffle, {lengths.begin(), lengths.end()}),
        lengths_(lengths.begin(), lengths.end()),
        cursor_(share, from, batch, rows.num_rows()) {
    const int64_t answers = batch * rows.num_answers();
    for (size_t i = 0; i < kNumStagings; ++i)
      staging_.emplace_back(answers * rows.options().context, answers, rows.options().teacher_top_k);
    chosen_.reserve(static_cast<size_t>(batch));
  }

  engine::MicroBatch next() override {
    const int64_t longest = choose();
    const int64_t length = lengths_.empty() ? rows_.options().context : padded_length(lengths_, longest);
    Staging& staging = staging_[num_made_++ % kNumStagings];
    for (int64_t i = 0; i < std::ssize(chosen_); ++i)
      rows_.fill(chosen_[static_cast<size_t>(i)], staging.row(i, rows_.num_answers() * length));
    engine::MicroBatch made = staging.batch(std::ssize(chosen_), lengths_.empty() ? 0 : length);
    if (rows_.options().documents) made.add({"starts", staging.starts()});
    if (rows_.options().pairs) made.add({"reference", reference(staging.reference())});
    if (rows_.options().teacher_top_k > 0) add_teacher(staging, length, made);
    return made;
  }

 private:
  void add_teacher(Staging& staging, int64_t length, engine::MicroBatch& made) const {
    for (int64_t i = 0; i < std::ssize(chosen_); ++i) {
      const int64_t at = i * length * rows_.options().teacher_top_k;
      rows_.fill_teacher(chosen_[static_cast<size_t>(i)], staging.row(i, length).labels,
                         staging.teacher_ids() + at, staging.teacher_logps() + at);
    }
    made.add({"teacher_ids", staging.teacher_ids()});
    made.add({"teacher_logps", staging.teacher_logps()});
  }
  const float* reference(std::span<float> out) const {
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const auto row = static_cast<size_t>(chosen_[i]);
      out[2 * i] = rows_.reference()[2 * row];
      out[2 * i + 1] = rows_.reference()[2 * row + 1];
    }
    return out.data();
  }
  /// Sets chosen_ to the rows of the next micro-batch; returns their max length in tokens.
  int64_t choose() {
    auto [row, count] = cursor_.next();
    int64_t longest = 0;
    chosen_.clear();
    for (; count > 0; --count, ++row.sample) {
      chosen_.push_back(order_.row_at(row));
      longest = std::max(longest, rows_.lengths()[static_cast<size_t>(chosen_.back())]);
    }
    return longest;
  }

  const TextRows& rows_;
  RowOrder order_;
  std::vector<int64_t> lengths_;
  data::ShareCursor cursor_;
  std::vector<Staging> staging_;
  std::vector<int64_t> chosen_;
  size_t num_made_ = 0;
};

}  // namespace

TextRows::TextRows(const text::TokenCache& cache, std::vector<TextPiece> pieces, RowOptions options)
    : cache_(cache), options_(std::move(options)) {
  counts_.samples = std::ssize(pieces);
  common_length_ = length_of_90_percent(pieces);
  place(pieces);
  for (int64_t row = 0; row < plan_.num_rows(); ++row) add_row(row);
  if (options_.pairs) reference_.resize(2 * rows_.size());
}

void TextRows::add_row(int64_t row) {
  const std::span<const text::Placement> placements = plan_.row(row);
  const text::Placement& last = placements.back();
  const int64_t trained = options_.pairs ? 1 : text::num_labels(placements, cache_);
  if (trained == 0) return;
  rows_.push_back(row);
  trained_.push_back(trained);
  lengths_.push_back(last.offset + last.length);
  num_trained_ += trained;
  num_tokens_ += options_.pairs ? answer(last, 0).length + answer(last, 1).length : lengths_.back();
}

/// The placement of a pair has the length of its longer answer, so this function shortens it to the length of
/// answer `index`.
text::Placement TextRows::answer(text::Placement pair, int64_t index) const {
  pair.sample += index;
  pair.length = std::min(pair.length, std::ssize(cache_.sample(pair.sample)));
  return pair;
}

int64_t TextRows::usable_length(const TextPiece& piece) {
  const bool cut = options_.overlong == Overlong::truncate && piece.length > options_.context;
  const text::Placement whole{
      .sample = piece.sample, .first = piece.first, .length = cut ? options_.context : piece.length};
  for (int64_t i = 0; i < num_answers(); ++i) {
    const text::Placement one = options_.pairs ? answer(whole, i) : whole;
    if (text::num_labels(std::span(&one, 1), cache_) > 0) continue;
    ++counts_.untrained;
    counts_.untrained_start += cut ? 1 : 0;
    return 0;
  }
  return piece.length;
}

void TextRows::place(const std::vector<TextPiece>& pieces) {
  std::vector<int64_t> lengths;
  for (const TextPiece& piece : pieces) lengths.push_back(usable_length(piece));
  const auto name_of = [&](int64_t index) {
    return fmt::format("{}:{}", options_.name, cache_.line(pieces[static_cast<size_t>(index)].sample));
  };
  plan_ = text::plan_rows(lengths, pack_options(options_), name_of);
  for (text::Placement& placement : plan_.placements) {
    const TextPiece& piece = pieces[static_cast<size_t>(placement.sample)];
    placement.sample = piece.sample;
    placement.first += piece.first;
  }
  counts_.truncated = plan_.num_truncated;
  counts_.dropped = plan_.num_dropped;
}

int64_t TextRows::num_bytes() const {
  return std::ssize(plan_.placements) * static_cast<int64_t>(sizeof(text::Placement)) +
         8 * (std::ssize(plan_.row_starts) + 3 * num_rows() + std::ssize(first_entries_)) +
         4 * std::ssize(reference_);
}

void TextRows::fill(int64_t row, const text::RowArrays& out) const {
  const std::span<const text::Placement> placements = plan_.row(rows_[static_cast<size_t>(row)]);
  if (!options_.pairs) return text::fill_row(placements, cache_, options_.padding, out);
  for (const int64_t i : {0, 1}) {
    const text::Placement one = answer(placements.back(), i);
    const auto half = [&](std::span<int32_t> whole) {
      return whole.subspan(static_cast<size_t>(i) * whole.size() / 2, whole.size() / 2);
    };
    text::fill_row(std::span(&one, 1), cache_, options_.padding,
                   {.ids = half(out.ids),
                    .document_starts = half(out.document_starts),
                    .positions = half(out.positions),
                    .labels = half(out.labels)});
  }
}

int64_t TextRows::position_of(const text::Placement& placement) const {
  return cache_.sample(placement.sample).data() - cache_.sample(0).data() + placement.first;
}

int64_t TextRows::end_of_labels() const {
  int64_t end = 0;
  for (const int64_t row : rows_)
    for (const text::Placement& placement : plan_.row(row))
      end = std::max(end, position_of(placement) + placement.length - (placement.continues ? 0 : 1));
  return end;
}

void TextRows::set_teacher(const text::TeacherEntries& entries, std::vector<int64_t> first_entries) {
  teacher_ = &entries;
  first_entries_ = std::move(first_entries);
}

void TextRows::fill_teacher(int64_t row, std::span<const int32_t> labels, int32_t* ids, float* logps) const {
  if (teacher_ == nullptr) return;
  const int64_t k = options_.teacher_top_k;
  if (first_entries_.empty()) {
    for (const text::Placement& placement : plan_.row(rows_[static_cast<size_t>(row)]))
      for (int64_t i = 0, at = placement.offset; i < placement.length; ++i, ++at)
        if (labels[static_cast<size_t>(at)] >= 0)
          teacher_->read(position_of(placement) + i, ids + at * k, logps + at * k);
    return;
  }
  int64_t entry = first_entries_[static_cast<size_t>(row)];
  for (const int32_t label : labels) {
    if (label >= 0) teacher_->read(entry++, ids, logps);
    ids += k;
    logps += k;
  }
}

uint64_t TextRows::digest() const {
  Hasher hasher;
  for (const int64_t row : rows_) {
    for (const text::Placement& placement : plan_.row(row)) {
      for (int64_t i = 0; i < num_answers(); ++i) {
        const text::Placement one = options_.pairs ? answer(placement, i) : placement;
        const auto tokens = cache_.sample(one.sample).subspan(static_cast<size_t>(one.first));
        hasher.update(std::as_bytes(tokens.first(static_cast<size_t>(one.length))));
      }
    }
  }
  return hasher.digest();
}

std::vector<int64_t> row_lengths(const TextRows& train, const TextRows& held_out) {
  std::vector<int64_t> all = {train.options().context};
  for (int64_t i = 1; i < kNumLengths && all.back() / 2 >= kShortestRow; ++i)
    all.push_back((all.back() / 2 + 15) / 16 * 16);
  std::vector<int64_t> used;
  for (const TextRows* rows : {&train, &held_out}) {
    for (const int64_t length : rows->lengths()) {
      const int64_t needed = padded_length(all, length);
      if (std::find(used.begin(), used.end(), needed) == used.end()) used.push_back(needed);
    }
  }
  std::sort(used.begin(), used.end(), std::greater<>());
  return used;
}

RowOrder::RowOrder(const TextRows& rows, bool shuffle, std::vector<int64_t> lengths)
    : rows_(rows), shuffle_(shuffle), lengths_(std::move(lengths)) {
  if (!lengths_.empty()) sorted_.reserve(static_cast<size_t>(std::min(kRowsPerWindow, rows.num_rows())));
}

int64_t RowOrder::unsorted(const data::LoaderPosition& position, int64_t at) const {
  return shuffle_ ? data::shuffled(position, rows_.num_rows(), at) : at;
}

void RowOrder::sort_window(const data::LoaderPosition& position, int64_t window) {
  const int64_t first = window * kRowsPerWindow;
  const int64_t count = std::min(kRowsPerWindow, rows_.num_rows() - first);
  sorted_.clear();
  for (const int64_t length : lengths_) {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t row = unsorted(position, i);
      if (padded_length(lengths_, rows_.lengths()[static_cast<size_t>(row)]) == length)
        sorted_.push_back(row);
    }
  }
  epoch_ = position.epoch;
  window_ = window;
}

int64_t RowOrder::row_at(const data::LoaderPosition& position) {
  return row_at_index(
      position, data::position_in_epoch(position, rows_.num_rows(), lengths_.empty() ? 1 : kRowsPerRun));
}

int64_t RowOrder::row_at_index(const data::LoaderPosition& position, int64_t place) {
  if (lengths_.empty()) return unsorted(position, place);
  const int64_t window = place / kRowsPerWindow;
  if (window != window_ || position.epoch != epoch_) sort_window(position, window);
  // Shuffles groups of kRowsPerRun rows in the window; otherwise every window would begin with its longest
  // rows.
  const int64_t at = place % kRowsPerWindow;
  const int64_t run = at / kRowsPerRun, num_whole_runs = std::ssize(sorted_) / kRowsPerRun;
  const bool moves = shuffle_ && run < num_whole_runs;
  const int64_t from = moves ? data::shuffled(position, num_whole_runs, run) : run;
  return sorted_[static_cast<size_t>(from * kRowsPerRun + at % kRowsPerRun)];
}

int64_t RowOrder::num_trained(data::LoaderPosition from, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i, ++from.sample) sum += rows_.num_trained(row_at(from));
  return sum;
}

std::vector<int64_t> first_teacher_entries(const TextRows& rows, const std::vector<int64_t>& lengths) {
  RowOrder order(rows, false, lengths);
  std::vector<int64_t> first(static_cast<size_t>(rows.num_rows()));
  int64_t next = 0;
  for (data::LoaderPosition at; at.sample < rows.num_rows(); ++at.sample) {
    const int64_t row = order.row_at(at);
    first[static_cast<size_t>(row)] = next;
    next += rows.num_trained(row);
  }
  return first;
}

std::unique_ptr<BatchStream> stream_rows(const TextRows& rows, int64_t batch, bool shuffle,
                                         std::span<const int64_t> lengths, const data::LoaderPosition& from,
                                         const data::LoaderShare& share) {
  return std::make_unique<RowStream>(rows, batch, shuffle, lengths, from, share);
}

int64_t row_staging_bytes(const TextRows& rows, int64_t batch) {
  const auto num_arrays = static_cast<int64_t>(kNumArrays) + 2 * rows.options().teacher_top_k;
  return static_cast<int64_t>(kNumStagings) * num_arrays * 4 * batch * rows.num_answers() *
         rows.options().context;
}

}  // namespace hearth::tasks
