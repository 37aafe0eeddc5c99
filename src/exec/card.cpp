#include "exec/card.h"

#include "base/error.h"
#include "base/text.h"
#include "passes/storage.h"

namespace hearth::exec {

void Card::allocate(int64_t persistent_bytes, int64_t arena_bytes, int64_t staging_bytes) {
  persistent_bytes_ = passes::padded_bytes(persistent_bytes);
  arena_bytes_ = passes::padded_bytes(arena_bytes);
  const int64_t needed = persistent_bytes_ + arena_bytes_ + staging_bytes;
  const int64_t usable = device_.free_bytes();
  if (needed > usable) {
    user_error(
        "expected a plan of at most {} on {}, got {}; try a smaller train.batch, or memory={} for "
        "recomputation",
        human_bytes(usable), device_.info().name, human_bytes(needed),
        human_bytes(std::max<int64_t>(0, usable - persistent_bytes_ - staging_bytes)));
  }
  memory_ = std::make_unique<gpu::Memory>(device_, std::max<int64_t>(1, needed));
}

Places Card::places() {
  std::byte* base = memory_->data();
  return {.persistent = base,
          .arena = base + persistent_bytes_,
          .staging = base + persistent_bytes_ + arena_bytes_,
          .host = nullptr,
          .stream = &stream_};
}

Places Card::places_in(const gpu::Memory& room, const Program& program) {
  return {.persistent = memory_->data(),
          .arena = room.data(),
          .staging = room.data() + passes::padded_bytes(program.arena_bytes()),
          .host = nullptr,
          .stream = &stream_};
}

void Card::upload(const std::byte* persistent) {
  stream_.copy_in(memory_->data(), persistent, persistent_bytes_);
  stream_.synchronise();
}

void Card::download(std::byte* persistent) {
  stream_.copy_out(persistent, memory_->data(), persistent_bytes_);
  stream_.synchronise();
}

}  // namespace hearth::exec
