// A library with NCCL's interface for emulated GPUs, whose memory is the host's: data goes through shared
// memory of the process that made the group's id. HEARTH_FAKE_NCCL says what is wrong with it: "wrong" (sums
// of many numbers), "hang" (its collectives never end), "join" (nor does joining), "refuse" (collectives
// return an error), "refuse one" (those of rank 0). As in the vendors' libraries, what ends a communicator
// waits until every rank does the same.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/gpu/emu/library.h"
#include "base/dtype.h"
#include "distributed/nccl/library.h"

namespace hearth::distributed {
namespace {

constexpr size_t kMostRanks = 8;
constexpr size_t kSlotBytes = size_t{1} << 16;
using Slot = std::array<std::byte, kSlotBytes>;

/// From one rank to another.
struct Mailbox {
  std::atomic<uint64_t> num_sent, num_taken;
  Slot data;
};
struct Shared {
  std::atomic<uint64_t> num_arrivals, num_aborts, num_ends;
  std::array<Slot, kMostRanks> slots;
  std::array<std::array<Mailbox, kMostRanks>, kMostRanks> mailboxes;
};

bool is(std::string_view trouble) {
  const char* given = std::getenv("HEARTH_FAKE_NCCL");
  return given != nullptr && given == trouble;
}

size_t bytes_of(NcclType type) { return type == NcclType::f32 ? 4 : type == NcclType::bf16 ? 2 : 1; }

}  // namespace

struct NcclComm {
  NcclComm(Shared* shared, size_t rank, size_t size) : shared(shared), rank(rank), size(size) {}
  ~NcclComm() { munmap(shared, sizeof(Shared)); }

  Shared* shared;
  size_t rank, size;
  uint64_t num_barriers = 0;
  std::atomic<bool> aborted = false;
  /// What streams call: a stream may be replayed, so all of it stays.
  std::deque<std::function<void()>> calls;

  void wait(const std::function<bool()>& is_so) const {
    while (!is_so() && !aborted) std::this_thread::yield();
  }
  void barrier() {
    ++shared->num_arrivals;
    const uint64_t all = ++num_barriers * size;
    wait([&] { return shared->num_arrivals >= all; });
  }
  /// Every rank brings its bytes piece by piece; `take` sees the piece of each in its slot.
  void meet(const std::byte* from, size_t num_bytes,
            const std::function<void(size_t at, size_t piece)>& take) {
    if (is("hang")) wait([] { return false; });
    for (size_t at = 0; at < num_bytes && !aborted; at += kSlotBytes) {
      const size_t piece = std::min(kSlotBytes, num_bytes - at);
      std::memcpy(shared->slots[rank].data(), from + at, piece);
      barrier();
      if (!aborted) take(at, piece);
      barrier();
    }
  }
  /// Number `i` of the pieces, summed in an order of its own: the last rank first.
  float sum_of(size_t i, NcclType type) const {
    float sum = 0;
    for (size_t r = size; r-- > 0;) {
      const std::byte* from = shared->slots[r].data() + i * bytes_of(type);
      bf16 half;
      float whole = 0;
      if (type == NcclType::bf16) {
        std::memcpy(&half, from, sizeof half);
        whole = to_f32(half);
      } else {
        std::memcpy(&whole, from, sizeof whole);
      }
      sum += whole;
    }
    return sum;
  }
  void sum_into(std::byte* to, size_t at, size_t piece, NcclType type) const {
    const float error = is("wrong") && at > 0 ? 1 : 0;
    for (size_t i = 0; i < piece / bytes_of(type); ++i) {
      const float sum = sum_of(i, type) + error;
      const bf16 half = to_bf16(sum);
      std::byte* place = to + at + i * bytes_of(type);
      type == NcclType::bf16 ? std::memcpy(place, &half, sizeof half) : std::memcpy(place, &sum, sizeof sum);
    }
  }
};

namespace {

/// Has a stream do something when its turn comes.
int put(NcclComm& comm, void* stream, std::function<void()> work) {
  if (is("refuse") || (is("refuse one") && comm.rank == 0)) return 3;
  hearth_emulated_call(
      stream, [](void* call) { (*static_cast<std::function<void()>*>(call))(); },
      &comm.calls.emplace_back(std::move(work)));
  return 0;
}

/// Communicators that were not destroyed: one that hung may still be in use when the process ends.
class Register {
 public:
  NcclComm* add(std::unique_ptr<NcclComm> comm) {
    const std::lock_guard lock(mutex_);
    return all_.emplace_back(std::move(comm)).get();
  }
  void destroy(const NcclComm* comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& one) { return one.get() == comm; });
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<NcclComm>> all_;
};
Register& comms() {
  static auto* const all = new Register;
  return *all;
}

void wait_for_all(const NcclComm& comm, std::atomic<uint64_t>& count) {
  ++count;
  while (count < comm.size) std::this_thread::yield();
}

std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }
const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }

/// Where the maker of an id keeps what its ranks share.
struct CollectiveId {
  pid_t process;
  int file;
};

}  // namespace
}  // namespace hearth::distributed

using namespace hearth;
using namespace hearth::distributed;

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22703;
  return 0;
}

const char* ncclGetErrorString(int) { return "the library was told to refuse"; }

int ncclGetUniqueId(NcclId* id) {
  const CollectiveId place{.process = getpid(), .file = memfd_create("fake-nccl", MFD_CLOEXEC)};
  if (ftruncate(place.file, sizeof(Shared)) != 0) return 2;
  std::memcpy(id->bytes.data(), &place, sizeof place);
  return 0;
}

int ncclCommInitRank(NcclComm** comm, int num_ranks, NcclId id, int rank) {
  while (is("join")) pause();
  CollectiveId place{};
  std::memcpy(&place, id.bytes.data(), sizeof place);
  const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  const int file = open(path.c_str(), O_RDWR);
  void* const shared = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return 2;
  *comm = comms().add(std::make_unique<NcclComm>(static_cast<Shared*>(shared), static_cast<size_t>(rank),
                                                 static_cast<size_t>(num_ranks)));
  (*comm)->barrier();
  if (rank == 0) close(place.file);
  return 0;
}

int ncclCommDestroy(NcclComm* comm) {
  wait_for_all(*comm, comm->shared->num_ends);
  comms().destroy(comm);
  return 0;
}

int ncclCommAbort(NcclComm* comm) {
  comm->aborted = true;
  wait_for_all(*comm, comm->shared->num_aborts);
  return 0;
}

int ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclOperation, NcclComm* comm,
                  void* stream) {
  return put(*comm, stream, [=] {
    comm->meet(bytes(from), count * bytes_of(type),
               [&](size_t at, size_t piece) { comm->sum_into(bytes(to), at, piece, type); });
  });
}

#ifndef WITHOUT_REDUCE
int ncclReduce(const void* from, void* to, size_t count, NcclType type, NcclOperation, int root,
               NcclComm* comm, void* stream) {
  return put(*comm, stream, [=] {
    comm->meet(bytes(from), count * bytes_of(type), [&](size_t at, size_t piece) {
      if (comm->rank == static_cast<size_t>(root)) comm->sum_into(bytes(to), at, piece, type);
    });
  });
}
#endif

int ncclBroadcast(const void* from, void* to, size_t count, NcclType type, int root, NcclComm* comm,
                  void* stream) {
  return put(*comm, stream, [=] {
    comm->meet(bytes(from), count * bytes_of(type), [&](size_t at, size_t piece) {
      std::memcpy(bytes(to) + at, comm->shared->slots[static_cast<size_t>(root)].data(), piece);
    });
  });
}

int ncclReduceScatter(const void* from, void* to, size_t count, NcclType type, NcclOperation, NcclComm* comm,
                      void* stream) {
  return put(*comm, stream, [=] {
    const size_t part = count * bytes_of(type);
    for (size_t r = 0; r < comm->size; ++r) {
      comm->meet(bytes(from) + r * part, part, [&](size_t at, size_t piece) {
        if (r == comm->rank) comm->sum_into(bytes(to), at, piece, type);
      });
    }
  });
}

int ncclAllGather(const void* from, void* to, size_t count, NcclType type, NcclComm* comm, void* stream) {
  return put(*comm, stream, [=] {
    const size_t part = count * bytes_of(type);
    comm->meet(bytes(from), part, [&](size_t at, size_t piece) {
      for (size_t r = 0; r < comm->size; ++r)
        std::memcpy(bytes(to) + r * part + at, comm->shared->slots[r].data(), piece);
    });
  });
}

int ncclSend(const void* from, size_t count, NcclType type, int peer, NcclComm* comm, void* stream) {
  return put(*comm, stream, [=] {
    Mailbox& box = comm->shared->mailboxes[comm->rank][static_cast<size_t>(peer)];
    const size_t all = count * bytes_of(type);
    for (size_t at = 0; at < all; at += kSlotBytes) {
      comm->wait([&] { return box.num_taken == box.num_sent; });
      std::memcpy(box.data.data(), bytes(from) + at, std::min(kSlotBytes, all - at));
      ++box.num_sent;
    }
  });
}

int ncclRecv(void* to, size_t count, NcclType type, int peer, NcclComm* comm, void* stream) {
  return put(*comm, stream, [=] {
    Mailbox& box = comm->shared->mailboxes[static_cast<size_t>(peer)][comm->rank];
    const size_t all = count * bytes_of(type);
    for (size_t at = 0; at < all; at += kSlotBytes) {
      comm->wait([&] { return box.num_sent > box.num_taken; });
      std::memcpy(bytes(to) + at, box.data.data(), std::min(kSlotBytes, all - at));
      ++box.num_taken;
    }
  });
}
}
