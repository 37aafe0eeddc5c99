#include "exec/memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/asan.h"
#include "base/error.h"
#include "base/text.h"
#include "ir/op_def.h"
#include "passes/memory/storage.h"

namespace hearth::exec {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

/// Returns the section of the layout for a role: 0 is the front (frozen weights), 1 the middle (saved in
/// checkpoints), 2 the end (values carried within an update).
int place_of(ir::Role role) {
  if (role == ir::Role::frozen) return 0;
  return role == ir::Role::carried ? 2 : 1;
}

}  // namespace

Region::Region(int64_t num_bytes)
    : num_bytes_((num_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes) {
  if (num_bytes_ == 0) return;
  const auto mapped_bytes = static_cast<size_t>(num_bytes_ + kHugePageBytes);
  void* mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    user_error(
        "the system cannot allocate {} of memory; lower train.batch or set memory to use recomputation",
        human_bytes(num_bytes));
  }
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(mapped) % kHugePageBytes);
  const int64_t head = past == 0 ? 0 : kHugePageBytes - past;
  const int64_t tail = kHugePageBytes - head;
  data_ = static_cast<std::byte*>(mapped) + head;
  if (head > 0) munmap(mapped, static_cast<size_t>(head));
  if (tail > 0) munmap(data_ + num_bytes_, static_cast<size_t>(tail));
  madvise(data_, static_cast<size_t>(num_bytes_), MADV_HUGEPAGE);
  // An ended thread's stack may have had the same addresses, which AddressSanitizer still marks as
  // unreadable.
  unpoison(data_, static_cast<size_t>(num_bytes_));
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(num_bytes_));
}

void PersistentLayout::add(const ir::Graph& graph) {
  const std::vector<char> on_host = ir::on_host(graph);
  for (const int place : {0, 1, 2}) {
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const ir::Value& value = graph.values[i];
      if (value.producer != ir::kNone || !ir::is_persistent(value.role)) continue;
      if (place_of(value.role) == place) add(value, on_host[i] != 0);
    }
  }
}

void PersistentLayout::add(const ir::Value& value, bool on_host) {
  const auto [found, added] = index_.try_emplace(value.name, buffers_.size());
  if (!added) {
    HEARTH_CHECK(buffers_[found->second].type == value.type);
    return;
  }
  HEARTH_CHECK(buffers_.empty() || place_of(buffers_.back().role) <= place_of(value.role));
  buffers_.push_back({.name = value.name,
                      .type = value.type,
                      .role = value.role,
                      .offset = num_bytes_,
                      .on_host = on_host,
                      .device_offset = device_bytes_});
  const int64_t num_bytes = passes::padded_bytes(value.type.num_bytes());
  num_bytes_ += num_bytes;
  if (buffers_.back().is_on_device()) device_bytes_ += num_bytes;
}

std::vector<DevicePiece> PersistentLayout::device_pieces() const {
  std::vector<DevicePiece> pieces;
  for (const PersistentBuffer& buffer : buffers_) {
    if (!buffer.is_on_device()) continue;
    const int64_t num_bytes = passes::padded_bytes(buffer.type.num_bytes());
    if (!pieces.empty() && pieces.back().offset + pieces.back().num_bytes == buffer.offset) {
      pieces.back().num_bytes += num_bytes;
    } else {
      pieces.push_back(
          {.offset = buffer.offset, .device_offset = buffer.device_offset, .num_bytes = num_bytes});
    }
  }
  return pieces;
}

const PersistentBuffer* PersistentLayout::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &buffers_[found->second];
}

const PersistentBuffer& PersistentLayout::at(const std::string& name) const {
  const PersistentBuffer* buffer = find(name);
  if (buffer == nullptr) internal_error("no persistent buffer is called '{}'", name);
  return *buffer;
}

int64_t PersistentLayout::sum_of(ir::Role role, bool on_host) const {
  int64_t total = 0;
  for (const PersistentBuffer& buffer : buffers_) {
    if (buffer.role == role && buffer.on_host == on_host)
      total += passes::padded_bytes(buffer.type.num_bytes());
  }
  return total;
}

}  // namespace hearth::exec
