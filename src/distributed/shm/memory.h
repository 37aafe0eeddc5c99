#pragma once

#include <array>
#include <atomic>

#include "base/error.h"
#include "distributed/process_group.h"
#include "distributed/shared_memory.h"
#include "distributed/shm/options.h"
#include "distributed/shm/signal.h"

/// Layout of the memory shared by the ranks of a ShmGroup. Zeroed bytes are a valid initial state.
namespace hearth::distributed {

inline constexpr int64_t kShmAlignment = 64;
/// Slots per rank for chunks: while one chunk is summed, the next two are copied in.
inline constexpr int64_t kShmSlots = 3;

/// Kind of the collective that a rank is in.
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

/// Progress of a rank, visible to the others: the number of chunks it has copied in (`brought`), and of
/// chunks of which it has read all contributions and written its sums (`read`).
struct ShmProgress {
  Signal brought, read;
  /// Step and index of the collective that the rank is in.
  std::atomic<int64_t> step, index;
  std::atomic<ShmKind> kind;
};
/// Progress of the messages from one rank to another, in chunks.
struct ShmChannel {
  Signal sent, received;
};
/// State that all ranks of the group share.
struct alignas(kShmAlignment) ShmHead {
  std::atomic<int> missing;  ///< 1 + the rank declared missing; 0: none
};

/// The shared memory: a head, the progress of each rank (board), channels, and then the slots: contributions
/// of each rank, sums of each rank, and messages of each pair of ranks.
struct ShmMemory {
  int size;
  ShmOptions options;
  int64_t slot_bytes;
  SharedMemory bytes;

  ShmMemory(int num_ranks, const ShmOptions& given)
      : size(num_ranks),
        options(given),
        // One cache line more, because slots at a power-of-two distance would compete for the same cache
        // sets.
        slot_bytes(round_up(given.chunk_bytes) + kShmAlignment),
        bytes(slots_at() + (2 + num_ranks) * num_ranks * kShmSlots * slot_bytes) {
    HEARTH_CHECK(num_ranks >= 1 && given.chunk_bytes >= kShmAlignment * num_ranks);
  }

  ShmHead& head() const { return *reinterpret_cast<ShmHead*>(bytes.data()); }
  ShmProgress& board(int rank) const {
    return reinterpret_cast<ShmProgress*>(bytes.data() + sizeof(ShmHead))[rank];
  }
  ShmChannel& channel(int from, int to) const {
    std::byte* const first = bytes.data() + sizeof(ShmHead) + static_cast<size_t>(size) * sizeof(ShmProgress);
    return reinterpret_cast<ShmChannel*>(first)[from * size + to];
  }
  /// Describes the collective that a rank is in.
  std::string whereabouts(int rank) const {
    const ShmProgress& of = board(rank);
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
    return int64_t{sizeof(ShmHead)} + size * int64_t{sizeof(ShmProgress)} +
           int64_t{size} * size * int64_t{sizeof(ShmChannel)};
  }
  std::byte* slot(int64_t area, int64_t chunk) const {
    return bytes.data() + slots_at() + (area * kShmSlots + chunk % kShmSlots) * slot_bytes;
  }
};

}  // namespace hearth::distributed
