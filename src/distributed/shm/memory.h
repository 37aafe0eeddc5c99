#pragma once

#include <array>
#include <atomic>

#include "base/error.h"
#include "distributed/process_group.h"
#include "distributed/shared_memory.h"
#include "distributed/shm/options.h"
#include "distributed/shm/signal.h"

/// What the ranks of an ShmGroup share. Zeroed bytes are a group that has done nothing.
namespace hearth::distributed {

inline constexpr int64_t kShmAlignment = 64;
/// While one chunk is summed, the next two are brought.
inline constexpr int64_t kShmSlots = 3;

enum class ShmKind : uint32_t {
  none,
  barrier,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  receive
};
inline constexpr std::array<const char*, 8> kShmKindNames = {
    "nothing", "barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "receive"};

/// What a rank shows the others: how many chunks it brought, and of how many it read what all brought, and
/// made its sums.
struct ShmBoard {
  Signal brought, read;
  /// Where it is.
  std::atomic<int64_t> step, index;
  std::atomic<ShmKind> kind;
};
/// From one rank to another.
struct ShmChannel {
  Signal sent, received;
};
struct alignas(kShmAlignment) ShmHead {
  std::atomic<int> missing;  ///< 1 + the rank that was given up
};

/// The shared bytes: a head, boards, channels; then the slots: of each rank its contributions, and the sums
/// that it made, of each pair what is sent.
struct ShmMemory {
  int size;
  ShmOptions options;
  int64_t slot_bytes;
  SharedMemory bytes;

  ShmMemory(int num_ranks, const ShmOptions& given)
      : size(num_ranks),
        options(given),
        // Slots a power of two apart would meet in the caches.
        slot_bytes(round_up(given.chunk_bytes) + kShmAlignment),
        bytes(slots_at() + (2 + num_ranks) * num_ranks * kShmSlots * slot_bytes) {
    HEARTH_CHECK(num_ranks >= 1 && given.chunk_bytes >= kShmAlignment * num_ranks);
  }

  ShmHead& head() const { return *reinterpret_cast<ShmHead*>(bytes.data()); }
  ShmBoard& board(int rank) const {
    return reinterpret_cast<ShmBoard*>(bytes.data() + sizeof(ShmHead))[rank];
  }
  ShmChannel& channel(int from, int to) const {
    std::byte* const first = bytes.data() + sizeof(ShmHead) + static_cast<size_t>(size) * sizeof(ShmBoard);
    return reinterpret_cast<ShmChannel*>(first)[from * size + to];
  }
  /// Where a rank is, in words.
  std::string whereabouts(int rank) const {
    const ShmBoard& of = board(rank);
    const auto kind = of.kind.load();
    if (kind == ShmKind::none) return "nothing";
    return to_string(kShmKindNames.at(static_cast<size_t>(kind)),
                     {.step = of.step.load(), .index = of.index.load()});
  }
  std::byte* contribution(int rank, int64_t chunk) const { return slot(rank, chunk); }
  std::byte* sums(int rank, int64_t chunk) const { return slot(size + rank, chunk); }
  std::byte* parcel(int from, int to, int64_t chunk) const {
    return slot(2 * size + from * size + to, chunk);
  }

 private:
  static int64_t round_up(int64_t count) {
    return (count + kShmAlignment - 1) / kShmAlignment * kShmAlignment;
  }
  int64_t slots_at() const {
    return int64_t{sizeof(ShmHead)} + size * int64_t{sizeof(ShmBoard)} +
           int64_t{size} * size * int64_t{sizeof(ShmChannel)};
  }
  std::byte* slot(int64_t area, int64_t chunk) const {
    return bytes.data() + slots_at() + (area * kShmSlots + chunk % kShmSlots) * slot_bytes;
  }
};

}  // namespace hearth::distributed
