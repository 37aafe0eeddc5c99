// Prefetching loader. All random choices (order, augmentation, class balance) are pure functions of (seed,
// epoch, sample), computed with Philox and permutations that need no memory. So the loader's position is a
// few numbers, and any thread can compute any row. Batches are staged in a ring of kNumSlots slots. A thread
// takes a piece (a few rows) of the newest open batch, computes the rows without holding the lock, and
// decrements the slot's count of pending rows; next() waits until the oldest slot has none. The caller may
// use the last kNumHeldBatches batches that next() returned; the slots of older batches are refilled. One
// mutex guards all state.
#include "data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "data/captions/bucket_order.h"
#include "data/class_balance.h"

namespace hearth::data {
namespace {

/// Number of staging buffers in the ring. The caller uses up to two batches; the others are being filled.
constexpr int64_t kNumSlots = 4;
constexpr int64_t kNumHeldBatches = 2;
/// Padding after the last row, readable by kernels that load full vectors.
constexpr int64_t kSlackBytes = 64;
constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

/// A staging buffer of the ring.
struct Slot {
  std::array<AlignedBytes, kMaxArrays> arrays;
  ArrayFormats formats = {};  ///< array formats of the batch in the slot
  std::vector<int64_t> indices;
  Batch batch;
  LoaderPosition begin;
  int64_t pending = 0;  ///< number of rows that are not computed yet
  std::exception_ptr error;
  int64_t error_row = 0;
};

/// Rows [first, last) of the batch in a slot: a unit of work, computed by one thread.
struct Piece {
  Slot* slot = nullptr;
  int64_t first = 0;
  int64_t last = 0;
};

enum class Purpose : uint32_t { epoch = 0xE90C, change = 0xE90D, balance = 0xE90E };

uint64_t epoch_key(const LoaderPosition& position, int64_t num_changes, Purpose purpose = Purpose::epoch) {
  const auto epoch = static_cast<uint64_t>(position.epoch);
  const auto words =
      philox4x32(position.seed, {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                                 static_cast<uint32_t>(num_changes), static_cast<uint32_t>(purpose)});
  return uint64_t{words[0]} << 32 | words[1];
}

/// Returns the number of order changes (change_order) in all epochs before the current one.
int64_t changes_before(const LoaderPosition& position) {
  return position.num_changes - position.num_changes_here;
}

int64_t permuted(uint64_t key, int64_t count, int64_t position) {
  return static_cast<int64_t>(
      permuted_index(key, static_cast<uint64_t>(count), static_cast<uint64_t>(position)));
}

BucketOrder::Draw in_bucket(const BucketOrder& buckets, const LoaderPosition& position, bool shuffle) {
  return buckets.at(epoch_key(position, changes_before(position)),
                    position_in_epoch(position, buckets.num_places(), buckets.batch()), shuffle);
}

/// Returns the number of rows in an epoch.
int64_t epoch_size(const RowSource& source, const LoaderOptions& options) {
  return options.buckets != nullptr ? options.buckets->num_places() : epoch_rows(source.num_rows(), options);
}

void check(const RowSource& source, const LoaderOptions& options, const LoaderPosition& start) {
  HEARTH_CHECK(options.buckets == nullptr ||
               (options.balance == nullptr && options.buckets->batch() == options.batch));
  const int64_t num_rows = epoch_size(source, options);
  if (num_rows < 1) user_error("expected at least one image in the dataset, got none");
  if (options.batch < 1) user_error("expected a batch of at least 1, got {}", options.batch);
  if (options.num_threads < 0 || options.num_threads > 256)
    user_error("expected 0 to 256 loader threads, got {}", options.num_threads);
  if (start.seed != options.seed)
    user_error("the data position was stored with seed {}, but the seed is {}; resume with the same seed",
               start.seed, options.seed);
  if (start.epoch < 0 || start.sample < 0 || start.total < 0 || start.sample >= num_rows)
    user_error(
        "the data has {} images, but the stored position is image {} of epoch {}; has the dataset changed?",
        num_rows, start.sample, start.epoch);
  if (options.buckets != nullptr && start.sample % options.batch != 0)
    user_error(
        "{} images of this epoch have been read, which is not a multiple of the micro-batch {}; resume with "
        "the previous train.batch",
        start.sample, options.batch);
}

}  // namespace

int64_t epoch_rows(int64_t num_rows, const LoaderOptions& options) {
  const int64_t rest = num_rows % std::max<int64_t>(1, options.batch);
  return rest < num_rows && rest < options.min_batch ? num_rows - rest : num_rows;
}

bool change_order(LoaderPosition& position) {
  if (position.num_changes_here == LoaderPosition::kMaxChanges) return false;
  position.changed_at.at(static_cast<size_t>(position.num_changes_here++)) = position.sample;
  ++position.num_changes;
  return true;
}

int64_t position_in_epoch(const LoaderPosition& position, int64_t count, int64_t run) {
  int64_t place = position.sample;
  // Applies the order changes of this epoch, latest first. Each one permutes only the positions after the
  // point at which it was made.
  for (int64_t i = position.num_changes_here; i > 0; --i) {
    const int64_t first = position.changed_at.at(static_cast<size_t>(i - 1)), left = count - first;
    const int64_t length = left >= 2 * run ? run : 1;
    const int64_t stretch = (place - first) / length;
    if (place < first || stretch >= left / length) continue;
    const uint64_t key = epoch_key(position, changes_before(position) + i, Purpose::change);
    place += (permuted(key, left / length, stretch) - stretch) * length;
  }
  return place;
}

int64_t row_bytes(const ArrayFormats& formats) {
  int64_t bytes = 0;
  for (const ArrayFormat& format : formats) bytes += format.row_bytes;
  return bytes;
}

int64_t shuffled(const LoaderPosition& position, int64_t count, int64_t index) {
  return permuted(epoch_key(position, changes_before(position)), count, index);
}

LoaderPosition advanced(const LoaderPosition& from, int64_t count, int64_t epoch_size) {
  LoaderPosition next = from;
  next.sample += count;
  next.total += count;
  if (next.sample >= epoch_size) {
    next.sample = 0;
    ++next.epoch;
    next.num_changes_here = 0;
    next.changed_at = {};
  }
  return next;
}

ShareCursor::ShareCursor(const LoaderShare& share, const LoaderPosition& start, int64_t batch,
                         int64_t epoch_size)
    : share_(share), position_(start), batch_(batch), epoch_size_(epoch_size) {
  HEARTH_CHECK(share.count >= 1 && share.first >= 0 && share.first + share.count <= share.group &&
               share.first < (epoch_size + batch - 1) / batch);
}

ShareCursor::BatchRange ShareCursor::next() {
  while (true) {
    const BatchRange stretch{position_, std::min(batch_, epoch_size_ - position_.sample)};
    const bool is_own = number_ >= share_.first && number_ < share_.first + share_.count;
    position_ = advanced(position_, stretch.count, epoch_size_);
    number_ = position_.sample == 0 ? 0 : (number_ + 1) % share_.group;
    if (is_own) return stretch;
  }
}

struct Loader::State {
  State(const RowSource& rows_of, const LoaderOptions& chosen, const LoaderPosition& start)
      : source(rows_of),
        options(chosen),
        position_after(start),
        num_rows(epoch_size(source, options)),
        cursor(options.share, start, options.batch, num_rows) {
    allocate();
    try {
      for (size_t i = 0; i < scratch.size() && options.num_threads > 0; ++i)
        threads.emplace_back([this, i] { work(scratch[i].data()); });
    } catch (...) {
      // If a thread cannot be started, stop() ends those that run already.
      stop();
      throw;
    }
  }
  ~State() { stop(); }

  void allocate();
  void stop();
  void work(std::byte* own);
  bool can_take() const { return next_row < rows || opened - released < kNumSlots; }
  Piece take();
  void open_slot();
  void fill(const Piece& piece, std::byte* own);
  void fill_row(Slot& slot, int64_t row, std::byte* own) const;
  ClassBalance::Draw draw_at(const LoaderPosition& position) const;
  int64_t length_at(const LoaderPosition& begin) const;
  void finish(const Piece& piece);
  const Batch& next();
  Slot& slot_of(int64_t sequence) { return ring[static_cast<size_t>(sequence % kNumSlots)]; }

  const RowSource& source;
  const LoaderOptions options;
  LoaderPosition position_after;
  const int64_t num_rows;  ///< number of rows in an epoch
  std::vector<Slot> ring;
  std::vector<std::vector<std::byte>> scratch;  ///< scratch memory of each thread
  int64_t piece_rows = 1;

  std::mutex mutex;
  std::condition_variable room;
  std::condition_variable ready;
  ShareCursor cursor;
  int64_t opened = 0;    ///< number of batches for which a slot was opened
  int64_t returned = 0;  ///< number of batches that next() has returned
  int64_t released = 0;  ///< number of batches whose slots may be refilled
  int64_t next_row = 0;  ///< next row of the newest batch that no thread has taken
  int64_t rows = 0;
  bool stopping = false;
  std::vector<std::thread> threads;
};

void Loader::State::allocate() {
  const ArrayFormats formats = source.formats(0);
  const int64_t kept_rows = std::min(options.batch, num_rows);
  ring.resize(kNumSlots);
  for (Slot& slot : ring) {
    for (size_t i = 0; i < kMaxArrays && formats[i].row_bytes > 0; ++i) {
      const auto num_bytes = static_cast<size_t>(kept_rows * formats[i].row_bytes + kSlackBytes);
      slot.arrays[i] = AlignedBytes(new (kAlignment) std::byte[num_bytes]());
    }
    slot.indices.resize(static_cast<size_t>(kept_rows));
  }
  const int num_readers = std::max(1, options.num_threads);
  scratch.assign(static_cast<size_t>(num_readers),
                 std::vector<std::byte>(static_cast<size_t>(source.scratch_bytes())));
  piece_rows = std::clamp<int64_t>(kept_rows / (4 * num_readers), 1, 16);
  threads.reserve(static_cast<size_t>(options.num_threads));
}

void Loader::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  room.notify_all();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

void Loader::State::work(std::byte* own) {
  std::unique_lock lock(mutex);
  while (true) {
    room.wait(lock, [this] { return stopping || can_take(); });
    if (stopping) return;
    const Piece piece = take();
    lock.unlock();
    fill(piece, own);
    lock.lock();
    finish(piece);
  }
}

Piece Loader::State::take() {
  if (next_row == rows) open_slot();
  Slot& slot = slot_of(opened - 1);
  const Piece piece{&slot, next_row, std::min(rows, next_row + piece_rows)};
  next_row = piece.last;
  return piece;
}

void Loader::State::open_slot() {
  const ShareCursor::BatchRange stretch = cursor.next();
  Slot& slot = slot_of(opened++);
  rows = stretch.count;
  next_row = 0;
  slot.begin = stretch.begin;
  slot.pending = rows;
  slot.error = nullptr;
  slot.batch = {.indices = slot.indices.data(),
                .count = rows,
                .epoch = stretch.begin.epoch,
                .row_length = length_at(stretch.begin)};
  slot.formats = source.formats(slot.batch.row_length);
  for (size_t i = 0; i < kMaxArrays; ++i) slot.batch.arrays[i] = {slot.formats[i].name, slot.arrays[i].get()};
}

void Loader::State::fill(const Piece& piece, std::byte* own) {
  for (int64_t row = piece.first; row < piece.last; ++row) {
    try {
      fill_row(*piece.slot, row, own);
    } catch (...) {
      const std::lock_guard lock(mutex);
      Slot& slot = *piece.slot;
      // Keeps the error with the lowest row number, so that the message does not depend on the number of
      // threads.
      if (slot.error == nullptr || row < slot.error_row) {
        slot.error = std::current_exception();
        slot.error_row = row;
      }
    }
  }
}

int64_t Loader::State::length_at(const LoaderPosition& begin) const {
  if (options.buckets == nullptr) return source.row_length(begin);
  return in_bucket(*options.buckets, begin, options.shuffle).length;
}

ClassBalance::Draw Loader::State::draw_at(const LoaderPosition& position) const {
  if (options.buckets != nullptr) {
    const BucketOrder::Draw drawn = in_bucket(*options.buckets, position, options.shuffle);
    return {.index = drawn.index, .repeat = drawn.repeat};
  }
  int64_t place = position_in_epoch(position, num_rows);
  if (options.shuffle) place = shuffled(position, source.num_rows(), place);
  if (options.balance == nullptr) return {.index = place};
  return options.balance->at(epoch_key(position, 0, Purpose::balance), place);
}

void Loader::State::fill_row(Slot& slot, int64_t row, std::byte* own) const {
  LoaderPosition position = slot.begin;
  position.sample += row;
  const ClassBalance::Draw draw = draw_at(position);
  slot.indices[static_cast<size_t>(row)] = draw.index;
  std::array<std::byte*, kMaxArrays> at = {};
  for (size_t i = 0; i < kMaxArrays; ++i)
    at[i] = slot.arrays[i] ? slot.arrays[i].get() + row * slot.formats[i].row_bytes : nullptr;
  source.make({.key = epoch_key(position, draw.repeat),
               .epoch = position.epoch,
               .index = draw.index,
               .length = slot.batch.row_length,
               .scratch = own},
              at);
}

void Loader::State::finish(const Piece& piece) {
  piece.slot->pending -= piece.last - piece.first;
  if (piece.slot->pending == 0) ready.notify_one();
}

const Batch& Loader::State::next() {
  std::unique_lock lock(mutex);
  released = std::max(released, returned + 1 - kNumHeldBatches);
  room.notify_all();
  Slot& slot = slot_of(returned);
  while (threads.empty() && (opened <= returned || next_row < rows)) {
    const Piece piece = take();
    lock.unlock();
    fill(piece, scratch[0].data());
    lock.lock();
    finish(piece);
  }
  ready.wait(lock, [&] { return opened > returned && slot.pending == 0; });
  if (slot.error != nullptr) std::rethrow_exception(slot.error);
  ++returned;
  position_after = advanced(slot.begin, slot.batch.count, num_rows);
  return slot.batch;
}

Loader::Loader(const RowSource& source, const LoaderOptions& options, const LoaderPosition& start) {
  check(source, options, start);
  state_ = std::make_unique<State>(source, options, start);
}

Loader::~Loader() = default;

const Batch& Loader::next() { return state_->next(); }

LoaderPosition Loader::position() const { return state_->position_after; }

int64_t Loader::batches_per_epoch() const {
  return (state_->num_rows + state_->options.batch - 1) / state_->options.batch;
}

}  // namespace hearth::data
