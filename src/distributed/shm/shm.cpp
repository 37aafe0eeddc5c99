// Collectives over anonymous shared memory, for the ranks of one machine. An array passes through the memory
// in chunks that fit the cores' caches: every rank copies its chunk in, reduces one part of all ranks'
// chunks in the order of sum.h, and copies the sums of the other parts out (reduce-scatter and all-gather).
// Each of these turns is announced by a counter that only its rank increments, and every wait is for another
// rank's counter, so there is no lock that a dying rank could hold. Three chunks are in flight at once, so a
// rank waits only for what the others did one turn earlier. A wait spins for microseconds, then sleeps on a
// futex until the timeout, and then names the missing rank.
#include "distributed/shm/shm.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cpu/convert.h"
#include "base/function_ref.h"
#include "base/threads.h"
#include "distributed/shm/memory.h"
#include "distributed/sum.h"

namespace hearth::distributed {
namespace {

/// Interval at which a sleeping rank checks whether another rank was declared missing.
constexpr std::chrono::milliseconds kNap(100);
/// Arrays up to this size are summed by every rank redundantly, because dividing the work would cost another
/// wait.
constexpr int64_t kSmallBytes = int64_t{16} << 10;

/// Number of elements that are summed and then published at a time, so that they stay in the L1 cache.
constexpr int64_t kPiece = 2048;

int64_t bytes_of(DType dtype, int64_t count) { return count * dtype_bytes(dtype); }
void copy_bytes(const std::byte* from, std::byte* to, int64_t num_bytes) {
  std::memcpy(to, from, static_cast<size_t>(num_bytes));
}

}  // namespace

class ShmProcessGroup : public ProcessGroup {
 public:
  ShmProcessGroup(const ShmMemory& memory, int rank)
      : memory_(memory),
        rank_(rank),
        from_(static_cast<size_t>(memory.size)),
        sent_(from_.size()),
        received_(from_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return memory_.size; }
  bool has(Capability capability) const override { return capability == Capability::compute_cores; }
  void set_collective_id(const CollectiveId& place) override {
    board().step.store(place.step, std::memory_order_relaxed);
    board().index.store(place.index, std::memory_order_relaxed);
  }

  void barrier() override;
  void all_reduce(std::span<float> data, DType wire) override;
  void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) override;
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;

 private:
  /// Publishes, for the duration of a scope, which collective this rank is in.
  class CollectiveScope {
   public:
    CollectiveScope(ShmProcessGroup& group, ShmKind kind) : board_(group.board()) {
      board_.kind.store(kind, std::memory_order_relaxed);
    }
    ~CollectiveScope() { board_.kind.store(ShmKind::none, std::memory_order_relaxed); }
    CollectiveScope(const CollectiveScope&) = delete;
    CollectiveScope& operator=(const CollectiveScope&) = delete;

   private:
    ShmProgress& board_;
  };
  /// Elements [at, at + count) of a collective's array. `chunk`: number of the chunk, counted over the
  /// group's life.
  struct Chunk {
    int64_t chunk, at, count;
  };
  using Work = FunctionRef<void(const Chunk&)>;
  /// The division of a collective's array into chunks, numbered from `first` on.
  struct Chunks {
    int64_t first, num_elements, chunk_elements;

    int64_t size() const { return (num_elements + chunk_elements - 1) / chunk_elements; }
    Chunk operator[](int64_t i) const {
      const int64_t at = i * chunk_elements;
      return {.chunk = first + i, .at = at, .count = std::min(chunk_elements, num_elements - at)};
    }
  };

  ShmProgress& board() const { return memory_.board(rank_); }
  void await(Signal& signal, int64_t count, int rank) const;
  void await_all(Signal ShmProgress::*signal, int64_t count) const;
  Chunks count(int64_t num_elements, int64_t chunk_elements);
  void run(const Chunks& chunks, Work bring, Work sum, Work take);
  void run(const Chunks& chunks, Work bring, Work take);
  void bring_part(const Chunk& chunk, int64_t first, std::span<const float> values, DType wire) const;
  enum class For : uint8_t { all, itself };
  void sum_part(const Chunk& chunk, int64_t first, std::span<const float> own, float* to, DType wire,
                For whom);
  void sum_piece(const Chunk& chunk, int64_t first, std::span<const float> own, float* to, DType wire);
  /// True if `part` is this rank's part and is summed directly in the caller's array, because the wire dtype
  /// is f32.
  bool is_summed_in_place(int part, DType wire) const { return part == rank_ && wire == DType::f32; }
  void all_reduce_small(std::span<float> data, DType wire);
  void take_part(const Chunk& chunk, int part, std::span<float> values, DType wire) const;

  const ShmMemory& memory_;
  int rank_;
  int64_t num_chunks_ = 0;  ///< number of chunks moved so far
  std::vector<const std::byte*> from_;
  std::vector<int64_t> sent_, received_;  ///< number of chunks sent to and received from each rank
};

void ShmProcessGroup::await(Signal& signal, int64_t count, int rank) const {
  using Clock = std::chrono::steady_clock;
  const auto wanted = static_cast<uint32_t>(count);
  if (signal.has_reached(wanted)) return;
  const auto start = Clock::now();
  const std::chrono::duration<double> timeout_span(memory_.options.deadline_seconds + allowed_seconds());
  const auto end = start + std::chrono::duration_cast<Clock::duration>(timeout_span);
  while (!signal.wait(wanted, std::min(end, Clock::now() + kNap))) {
    const int missing = memory_.head().missing.load(std::memory_order_acquire) - 1;
    if (missing < 0 && Clock::now() < end) continue;
    const std::chrono::duration<double> waited = Clock::now() - start;
    throw CommError::missing(missing < 0 ? rank : missing, memory_.whereabouts(rank_), rank_, waited.count());
  }
}
void ShmProcessGroup::await_all(Signal ShmProgress::*signal, int64_t count) const {
  for (int rank = 0; rank < size(); ++rank) await(memory_.board(rank).*signal, count, rank);
}

ShmProcessGroup::Chunks ShmProcessGroup::count(int64_t num_elements, int64_t chunk_elements) {
  const Chunks chunks{num_chunks_, num_elements, chunk_elements};
  num_chunks_ += chunks.size();
  return chunks;
}

/// Pipeline of three turns (copy in, sum, copy out): while one chunk is summed, two are being copied in, so a
/// rank waits only for what the others did one turn earlier. Slots are reused safely: a rank copies in a
/// chunk only when all ranks have read the earlier chunk in the same slot.
void ShmProcessGroup::run(const Chunks& chunks, Work bring, Work sum, Work take) {
  const int64_t num_chunks = chunks.size(), first = chunks.first;
  for (int64_t turn = 0; turn < num_chunks + 3; ++turn) {
    if (turn >= 2 && turn < num_chunks + 2) {
      await_all(&ShmProgress::brought, first + turn - 1);
      sum(chunks[turn - 2]);
      board().read.raise();
    }
    if (turn >= 3) {
      await_all(&ShmProgress::read, first + turn - 2);
      take(chunks[turn - 3]);
    }
    if (turn < num_chunks) {
      await_all(&ShmProgress::read, first + turn + 1 - kShmSlots);
      bring(chunks[turn]);
      board().brought.raise();
    }
  }
}

/// Pipeline of two turns (copy in, copy out), for collectives that read the contributions of other ranks
/// directly.
void ShmProcessGroup::run(const Chunks& chunks, Work bring, Work take) {
  const int64_t num_chunks = chunks.size(), first = chunks.first;
  for (int64_t turn = 0; turn <= num_chunks; ++turn) {
    if (turn < num_chunks) {
      await_all(&ShmProgress::read, first + turn + 1 - kShmSlots);
      bring(chunks[turn]);
      board().brought.raise();
    }
    if (turn == 0) continue;
    await_all(&ShmProgress::brought, first + turn);
    take(chunks[turn - 1]);
    board().read.raise();
  }
}

/// Copies this rank's values to its contribution slot, from element `first` of the chunk on.
void ShmProcessGroup::bring_part(const Chunk& chunk, int64_t first, std::span<const float> values,
                                 DType wire) const {
  cpu::store_f32(wire, values.data(), memory_.contribution(rank_, chunk.chunk), first, std::ssize(values));
}
/// Sums the contributions of all ranks into `to`, from element `first` of the chunk on. `own` is this rank's
/// contribution and may be `to`. With For::all, also publishes the sums in this rank's slot.
void ShmProcessGroup::sum_part(const Chunk& chunk, int64_t first, std::span<const float> own, float* to,
                               DType wire, For whom) {
  std::byte* const sums = memory_.sums(rank_, chunk.chunk);
  for (int64_t at = 0; at < std::ssize(own); at += kPiece) {
    const int64_t count = std::min(kPiece, std::ssize(own) - at);
    sum_piece(chunk, first + at, own.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), to + at,
              wire);
    if (whom == For::all) cpu::store_f32(sum_dtype(wire), to + at, sums, at, count);
  }
}
/// Sums at most kPiece elements. In f32, this rank's contribution is read from `own`. Otherwise it is read
/// from the slot, so that it is rounded like the contributions of the other ranks.
void ShmProcessGroup::sum_piece(const Chunk& chunk, int64_t first, std::span<const float> own, float* to,
                                DType wire) {
  for (int rank = 0; rank < size(); ++rank)
    from_[static_cast<size_t>(rank)] = memory_.contribution(rank, chunk.chunk) + bytes_of(wire, first);
  if (wire == DType::f32) {
    from_[static_cast<size_t>(rank_)] = std::as_bytes(own).data();
    return sum_in_order(wire, from_, reinterpret_cast<std::byte*>(to), std::ssize(own));
  }
  std::array<std::byte, kPiece * sizeof(bf16)> rounded;
  sum_in_order(wire, from_, rounded.data(), std::ssize(own));
  cpu::load_f32(sum_dtype(wire), rounded.data(), 0, std::ssize(own), to);
}
/// Copies the sums that rank `part` has published.
void ShmProcessGroup::take_part(const Chunk& chunk, int part, std::span<float> values, DType wire) const {
  cpu::load_f32(sum_dtype(wire), memory_.sums(part, chunk.chunk), 0, std::ssize(values), values.data());
}

void ShmProcessGroup::barrier() {
  const CollectiveScope collective_scope(*this, ShmKind::barrier);
  const auto nothing = [](const Chunk&) {};
  run(count(1, 1), nothing, nothing);
}

void ShmProcessGroup::all_reduce_small(std::span<float> data, DType wire) {
  run(
      count(std::ssize(data), std::max<int64_t>(1, std::ssize(data))),
      [&](const Chunk& chunk) { bring_part(chunk, 0, data, wire); },
      [&](const Chunk& chunk) { sum_part(chunk, 0, data, data.data(), wire, For::itself); });
}

void ShmProcessGroup::all_reduce(std::span<float> data, DType wire) {
  const CollectiveScope collective_scope(*this, ShmKind::all_reduce);
  if (bytes_of(wire, std::ssize(data)) <= std::min(kSmallBytes, memory_.options.chunk_bytes))
    return all_reduce_small(data, wire);
  const auto part_of = [&](const Chunk& chunk, int part) { return split_range(chunk.count, size(), part); };
  const auto values = [&](const Chunk& chunk, int part) {
    const Range range = part_of(chunk, part);
    return data.subspan(static_cast<size_t>(chunk.at + range.begin), static_cast<size_t>(range.size()));
  };
  run(
      count(std::ssize(data), memory_.options.chunk_bytes / dtype_bytes(sum_dtype(wire))),
      [&](const Chunk& chunk) {
        for (int part = 0; part < size(); ++part) {
          if (!is_summed_in_place(part, wire))
            bring_part(chunk, part_of(chunk, part).begin, values(chunk, part), wire);
        }
      },
      [&](const Chunk& chunk) {
        const std::span<float> own = values(chunk, rank_);
        sum_part(chunk, part_of(chunk, rank_).begin, own, own.data(), wire, For::all);
      },
      [&](const Chunk& chunk) {
        for (int part = 0; part < size(); ++part) {
          if (part != rank_) take_part(chunk, part, values(chunk, part), wire);
        }
      });
}

void ShmProcessGroup::reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) {
  HEARTH_CHECK(in.size() == out.size() * from_.size());
  const CollectiveScope collective_scope(*this, ShmKind::reduce_scatter);
  const auto values = [&](const Chunk& chunk, int part) {
    const size_t at = static_cast<size_t>(part) * out.size() + static_cast<size_t>(chunk.at);
    return in.subspan(at, static_cast<size_t>(chunk.count));
  };
  run(
      count(std::ssize(out), memory_.options.chunk_bytes / dtype_bytes(wire) / size()),
      [&](const Chunk& chunk) {
        for (int part = 0; part < size(); ++part) {
          if (!is_summed_in_place(part, wire))
            bring_part(chunk, part * chunk.count, values(chunk, part), wire);
        }
      },
      [&](const Chunk& chunk) {
        sum_part(chunk, rank_ * chunk.count, values(chunk, rank_), out.data() + chunk.at, wire, For::itself);
      });
}

void ShmProcessGroup::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  HEARTH_CHECK(out.size() == in.size() * from_.size());
  const CollectiveScope collective_scope(*this, ShmKind::all_gather);
  run(
      count(std::ssize(in), memory_.options.chunk_bytes),
      [&](const Chunk& chunk) {
        copy_bytes(in.data() + chunk.at, memory_.contribution(rank_, chunk.chunk), chunk.count);
      },
      [&](const Chunk& chunk) {
        for (int rank = 0; rank < size(); ++rank) {
          std::byte* const to = out.data() + rank * std::ssize(in) + chunk.at;
          copy_bytes(memory_.contribution(rank, chunk.chunk), to, chunk.count);
        }
      });
}

void ShmProcessGroup::broadcast(std::span<std::byte> data, int root) {
  const CollectiveScope collective_scope(*this, ShmKind::broadcast);
  const auto slot_of = [&](const Chunk& chunk) { return memory_.contribution(root, chunk.chunk); };
  run(
      count(std::ssize(data), memory_.options.chunk_bytes),
      [&](const Chunk& chunk) {
        if (rank_ == root) copy_bytes(data.data() + chunk.at, slot_of(chunk), chunk.count);
      },
      [&](const Chunk& chunk) {
        if (rank_ != root) copy_bytes(slot_of(chunk), data.data() + chunk.at, chunk.count);
      });
}

void ShmProcessGroup::send(std::span<const std::byte> data, int to) {
  const CollectiveScope collective_scope(*this, ShmKind::send);
  ShmChannel& channel = memory_.channel(rank_, to);
  for (int64_t at = 0; at < std::ssize(data); at += memory_.options.chunk_bytes) {
    const int64_t number = sent_[static_cast<size_t>(to)]++;
    const int64_t count = std::min(memory_.options.chunk_bytes, std::ssize(data) - at);
    await(channel.received, number - kShmSlots + 1, to);
    copy_bytes(data.data() + at, memory_.parcel(rank_, to, number), count);
    channel.sent.raise();
  }
}

void ShmProcessGroup::receive(std::span<std::byte> data, int from) {
  const CollectiveScope collective_scope(*this, ShmKind::receive);
  ShmChannel& channel = memory_.channel(from, rank_);
  for (int64_t at = 0; at < std::ssize(data); at += memory_.options.chunk_bytes) {
    const int64_t number = received_[static_cast<size_t>(from)]++;
    const int64_t count = std::min(memory_.options.chunk_bytes, std::ssize(data) - at);
    await(channel.sent, number + 1, from);
    copy_bytes(memory_.parcel(from, rank_, number), data.data() + at, count);
    channel.received.raise();
  }
}

ShmGroup::ShmGroup(int size, const ShmOptions& options)
    : memory_(std::make_unique<ShmMemory>(size, options)) {}
ShmGroup::~ShmGroup() = default;

std::unique_ptr<ProcessGroup> ShmGroup::open(int rank) {
  return std::make_unique<ShmProcessGroup>(*memory_, rank);
}
int ShmGroup::size() const { return memory_->size; }
std::string ShmGroup::whereabouts(int rank) const { return memory_->whereabouts(rank); }
void ShmGroup::give_up(int rank) { memory_->head().missing.store(rank + 1, std::memory_order_release); }

namespace {

/// Runs `work` in a forked process, and ends the process.
[[noreturn]] void run_forked(ShmGroup& group, int rank, FunctionRef<void(ProcessGroup&)> work) {
  try {
    work(*group.open(rank));
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

}  // namespace

void run_ranks(int size, FunctionRef<void(ProcessGroup&)> work) {
  ShmGroup group(size);
  std::vector<pid_t> others;
  for (int rank = 1; rank < size; ++rank) {
    const pid_t child = fork();
    if (child < 0) internal_error("cannot fork a process for rank {}", rank);
    if (child == 0) run_forked(group, rank, work);
    others.push_back(child);
  }
  work(*group.open(0));
  for (size_t i = 0; i < others.size(); ++i) {
    int status = 0;
    waitpid(others[i], &status, 0);
    if (status != 0) internal_error("rank {} exited with status {}", i + 1, status);
  }
}

}  // namespace hearth::distributed
