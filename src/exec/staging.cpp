#include "exec/staging.h"

#include <algorithm>

namespace hearth::exec {

Staging::Staging(gpu::Device& device, std::byte* on_card, int64_t half_bytes)
    : stream_(device),
      memory_(device, std::max<int64_t>(1, card_bytes(half_bytes))),
      on_card_(on_card),
      half_bytes_(half_bytes) {}

std::byte* Staging::fill() {
  stream_.synchronise();
  half_ = (half_ + 1) % kNumHalves;
  return memory_.data() + static_cast<int64_t>(half_) * half_bytes_;
}

size_t Staging::send(int64_t num_bytes, gpu::Stream& reader) {
  stream_.wait(released_[half_]);
  stream_.copy_in(on_card(half_), memory_.data() + static_cast<int64_t>(half_) * half_bytes_, num_bytes);
  stream_.record(sent_[half_]);
  reader.wait(sent_[half_]);
  return half_;
}

void Staging::release(gpu::Stream& reader) { reader.record(released_[half_]); }

}  // namespace hearth::exec
