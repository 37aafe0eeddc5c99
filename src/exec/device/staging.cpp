#include "exec/device/staging.h"

#include <algorithm>

namespace hearth::exec {

Staging::Staging(gpu::Device& device, std::byte* on_gpu, int64_t half_bytes)
    : stream_(device),
      memory_(device, std::max<int64_t>(1, gpu_bytes(half_bytes))),
      on_gpu_(on_gpu),
      half_bytes_(half_bytes) {}

std::byte* Staging::fill() {
  stream_.synchronize();
  half_ = (half_ + 1) % kNumHalves;
  ++num_fills_;
  return host();
}

void Staging::send(int64_t begin, int64_t end) {
  stream_.wait(released_[half_]);
  stream_.copy_in(on_gpu(half_) + begin, host() + begin, end - begin);
}

size_t Staging::arrive(gpu::Stream& reader) {
  stream_.record(sent_[half_]);
  reader.wait(sent_[half_]);
  return half_;
}

void Staging::release(gpu::Stream& reader) { reader.record(released_[half_]); }

}  // namespace hearth::exec
