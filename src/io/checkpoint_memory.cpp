#include "io/checkpoint_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "io/checkpoint.h"

namespace hearth::io {
namespace {

constexpr int kNumSlots = 2;
constexpr int64_t kPage = 4096;
/// Bytes reserved in a slot for the JSON state of a run.
constexpr int64_t kStateBytes = int64_t{1} << 16;

int64_t round_up(int64_t count) { return (count + kPage - 1) / kPage * kPage; }

}  // namespace

/// Header of a slot; the slot's state and memory follow. It is cleared before a save and written last, so
/// that an interrupted save leaves an empty slot (zeros).
struct CheckpointMemory::Head {
  static constexpr size_t kManifestBytes = 1024;
  uint64_t run = 0;
  int64_t step = 0;
  int64_t memory_bytes = 0;
  int64_t state_bytes = 0;
  int64_t manifest_bytes = 0;
  std::array<char, kManifestBytes> manifest{};

  /// True if this slot has a snapshot, and the other slot is empty or has an older one.
  bool is_newer_than(const Head& other) const {
    return manifest_bytes > 0 && (other.manifest_bytes == 0 || step > other.step);
  }
  bool fits(int64_t slot_bytes) const {
    return manifest_bytes > 0 && manifest_bytes <= std::ssize(manifest) && state_bytes >= 0 &&
           state_bytes <= kStateBytes && memory_bytes >= 0 &&
           memory_bytes <= slot_bytes - kPage - kStateBytes;
  }
};

CheckpointMemory::CheckpointMemory() : file_(memfd_create("hearth-checkpoints", MFD_CLOEXEC)) {
  static_assert(sizeof(Head) <= kPage);
}

CheckpointMemory::~CheckpointMemory() {
  if (file_ >= 0) close(file_);
}

int64_t CheckpointMemory::slot_bytes() const {
  struct stat info {};
  return fstat(file_, &info) == 0 ? info.st_size / kNumSlots : 0;
}

int64_t CheckpointMemory::num_bytes() const {
  constexpr int64_t kBlock = 512;
  struct stat info {};
  return fstat(file_, &info) == 0 ? info.st_blocks * kBlock : 0;
}

bool CheckpointMemory::make_room(int64_t memory_bytes, int64_t free_bytes) const {
  if (file_ < 0) return false;
  const int64_t needed = kPage + kStateBytes + round_up(memory_bytes);
  const bool kept = slot_bytes() == needed;
  if (kNumSlots * needed - (kept ? num_bytes() : 0) > free_bytes / 2) return false;
  return kept || (ftruncate(file_, 0) == 0 && ftruncate(file_, kNumSlots * needed) == 0);
}

CheckpointMemory::Head CheckpointMemory::head(int slot) const {
  Head head;
  const ssize_t count = pread(file_, &head, sizeof head, slot * slot_bytes());
  return count == ssize_t{sizeof head} ? head : Head{};
}

/// Writes to the memfd with pwrite(). A mapping would kill the process (SIGBUS) if memory is exhausted.
bool CheckpointMemory::write(int64_t offset, const void* data, size_t num_bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t count = pwrite(file_, from, num_bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    from += count;
    offset += count;
    num_bytes -= static_cast<size_t>(count);
  }
  return true;
}

void CheckpointMemory::clear(int slot) const {
  const Head none;
  write(slot * slot_bytes(), &none, sizeof none);
}

bool CheckpointMemory::save(std::string_view run, int64_t step, std::span<const std::byte> memory,
                            std::string_view state) const {
  // A save at an earlier step means that the run was rolled back, so snapshots of later steps are invalid.
  discard_later(step);
  const int slot = head(1).is_newer_than(head(0)) ? 0 : 1;
  const int64_t at = slot * slot_bytes();
  const std::string manifest = make_manifest(step, memory, state);
  Head made{.run = hash64(run),
            .step = step,
            .memory_bytes = std::ssize(memory),
            .state_bytes = std::ssize(state),
            .manifest_bytes = std::ssize(manifest)};
  HEARTH_CHECK(made.fits(slot_bytes()));
  std::ranges::copy(manifest, made.manifest.begin());
  clear(slot);
  if (!write(at + kPage, state.data(), state.size())) return false;
  if (!write(at + kPage + kStateBytes, memory.data(), memory.size())) return false;
  return write(at, &made, sizeof made);
}

void CheckpointMemory::discard_later(int64_t step) const {
  for (int slot = 0; slot < kNumSlots; ++slot) {
    const Head found = head(slot);
    if (found.manifest_bytes > 0 && found.step > step) clear(slot);
  }
}

std::optional<MemoryCheckpoint> CheckpointMemory::find_newest(std::string_view run,
                                                              std::vector<std::string>* refused) const {
  const int64_t num_bytes = slot_bytes();
  if (num_bytes == 0) return std::nullopt;
  std::array<int, kNumSlots> order = {0, 1};
  if (head(1).is_newer_than(head(0))) std::ranges::reverse(order);
  for (const int slot : order) {
    const Head found = head(slot);
    if (!found.fits(num_bytes) || found.run != hash64(run)) continue;
    MemoryCheckpoint made{.step = found.step, .file = MappedFile(fmt::format("/proc/self/fd/{}", file_))};
    const std::span<const std::byte> bytes =
        made.file.bytes().subspan(static_cast<size_t>(slot * num_bytes + kPage));
    made.memory = bytes.subspan(kStateBytes, static_cast<size_t>(found.memory_bytes));
    made.state.assign(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(found.state_bytes));
    const std::string manifest(found.manifest.data(), static_cast<size_t>(found.manifest_bytes));
    if (const auto fault = check_parts(manifest, made.memory, made.state)) {
      if (refused != nullptr) refused->push_back(fmt::format("step {} in memory: {}", found.step, *fault));
      continue;
    }
    return made;
  }
  return std::nullopt;
}

}  // namespace hearth::io
