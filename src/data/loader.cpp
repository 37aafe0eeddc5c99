#include "data/loader.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "data/augment.h"

namespace hearth::data {
namespace {

constexpr size_t kRing = 4;
/// Floats readable behind the last image, for kernels that load whole vectors.
constexpr size_t kSlack = 16;

uint64_t epoch_key(uint64_t seed, int64_t epoch) {
  const auto words =
      philox4x32(seed, {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32), 0, 0xE90C});
  return uint64_t{words[0]} << 32 | words[1];
}

}  // namespace

Loader::Loader(const Dataset& dataset, LoaderOptions options, LoaderPosition start)
    : dataset_(dataset), options_(std::move(options)), ring_(kRing), opened_(start), handed_out_(start) {
  if (dataset.size() < 1) user_error("expected at least one picture in the dataset");
  const auto pixels = static_cast<size_t>(dataset.image_size() * dataset.image_size() * dataset.channels());
  const auto batch = static_cast<size_t>(options_.batch);
  for (Slot& slot : ring_) {
    slot.images.resize(batch * pixels + kSlack);
    slot.labels.resize(batch + kSlack);
    slot.indices.resize(batch);
  }
  for (int i = 0; i < std::max(1, options_.num_threads); ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int64_t Loader::batches_per_epoch() const { return (dataset_.size() + options_.batch - 1) / options_.batch; }

LoaderPosition Loader::after(const LoaderPosition& position, int64_t count) const {
  LoaderPosition next = position;
  next.sample += count;
  next.total += count;
  if (next.sample >= dataset_.size()) {
    next.sample = 0;
    ++next.epoch;
  }
  return next;
}

void Loader::open_slot(Slot& slot, int64_t sequence) {
  slot.sequence = sequence;
  slot.begin = opened_;
  slot.claimed = slot.done = 0;
  slot.batch = {.images = slot.images.data(),
                .labels = slot.labels.data(),
                .indices = slot.indices.data(),
                .count = std::min(options_.batch, dataset_.size() - opened_.sample),
                .epoch = opened_.epoch};
  opened_ = after(opened_, slot.batch.count);
}

void Loader::work() {
  const auto pixels =
      static_cast<size_t>(dataset_.image_size() * dataset_.image_size() * dataset_.channels());
  std::vector<uint8_t> bytes(pixels);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Slot& slot = ring_[static_cast<size_t>(open_sequence_) % kRing];
    if (slot.sequence != open_sequence_) {
      // The two newest batches handed out stay untouched: the trainer may still read them.
      if (open_sequence_ > next_sequence_ + static_cast<int64_t>(kRing) - 3 || error_ != nullptr) {
        changed_.wait(lock);
        continue;
      }
      open_slot(slot, open_sequence_);
    }
    const int64_t offset = slot.claimed++;
    if (slot.claimed >= slot.batch.count) ++open_sequence_;
    if (offset >= slot.batch.count) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      load_sample(slot, offset, bytes);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr && error_ == nullptr) error_ = error;
    if (++slot.done == slot.batch.count || error != nullptr) changed_.notify_all();
  }
}

void Loader::load_sample(Slot& slot, int64_t offset, std::vector<uint8_t>& bytes) const {
  const uint64_t key = epoch_key(slot.begin.seed, slot.begin.epoch);
  const int64_t position = slot.begin.sample + offset;
  const auto count = static_cast<uint64_t>(dataset_.size());
  const auto index = options_.shuffle
                         ? static_cast<int64_t>(permuted_index(key, count, static_cast<uint64_t>(position)))
                         : position;
  const auto at = static_cast<size_t>(offset);
  float* out = slot.images.data() + at * bytes.size();
  slot.indices[at] = index;
  if (dataset_.holds_floats()) return dataset_.read_floats(index, out, &slot.labels[at]);
  dataset_.read(index, bytes.data(), &slot.labels[at]);
  const Augmenter augmenter{options_, dataset_.image_size(), dataset_.channels()};
  augmenter.apply(key, index, bytes.data(), out);
}

const Batch& Loader::next() {
  std::unique_lock lock(mutex_);
  Slot& slot = ring_[static_cast<size_t>(next_sequence_) % kRing];
  changed_.wait(lock, [&] {
    return error_ != nullptr || (slot.sequence == next_sequence_ && slot.done == slot.batch.count);
  });
  if (error_ != nullptr) std::rethrow_exception(error_);
  handed_out_ = after(slot.begin, slot.batch.count);
  ++next_sequence_;
  lock.unlock();
  changed_.notify_all();
  return slot.batch;
}

}  // namespace hearth::data
