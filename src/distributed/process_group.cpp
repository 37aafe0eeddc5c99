#include "distributed/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace hearth::distributed {

CommError CommError::missing(int rank, const std::string& whereabouts, int waiting, double seconds) {
  return {rank,
          fmt::format("rank {} stopped in {}, rank {} waited {:.1f} s", rank, whereabouts, waiting, seconds)};
}

std::string to_string(const char* collective, const CollectiveId& place) {
  return fmt::format("{} {} of step {}", collective, place.index, place.step);
}

void ProcessGroup::reduce(std::span<float> data, int /*root*/) {
  // An all-reduce costs no more here: sums are computed in host memory, and only `root` copies them to its
  // GPU.
  all_reduce(data, DType::f32);
}

namespace {

[[noreturn]] void refuse(const char* collective) {
  internal_error("expected a group with collectives on device memory for {}", collective);
}

}  // namespace

void ProcessGroup::all_reduce(void*, int64_t, DType, gpu::Stream&) { refuse("all_reduce"); }
void ProcessGroup::reduce(void*, int64_t, DType, int, gpu::Stream&) { refuse("reduce"); }
void ProcessGroup::reduce_scatter(const void*, void*, int64_t, DType, gpu::Stream&) {
  refuse("reduce_scatter");
}
void ProcessGroup::all_gather(const void*, void*, int64_t, gpu::Stream&) { refuse("all_gather"); }
void ProcessGroup::broadcast(void*, int64_t, int, gpu::Stream&) { refuse("broadcast"); }
void ProcessGroup::send(const void*, int64_t, int, gpu::Stream&) { refuse("send"); }
void ProcessGroup::receive(void*, int64_t, int, gpu::Stream&) { refuse("receive"); }

void ProcessGroup::in_step(FunctionRef<void()> collective) noexcept {
  if (error_) return;
  const auto start = std::chrono::steady_clock::now();
  try {
    set_collective_id(collective_id_);
    ++collective_id_.index;
    collective();
  } catch (...) {
    error_ = std::current_exception();
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ProcessGroup::in_step(std::span<const std::span<float>> pieces,
                           FunctionRef<void(std::span<float>)> collective) noexcept {
  in_step([&] {
    if (pieces.size() == 1) return collective(pieces[0]);
    joined_.clear();
    for (const std::span<float> piece : pieces) joined_.insert(joined_.end(), piece.begin(), piece.end());
    collective(joined_);
    auto from = joined_.begin();
    for (const std::span<float> piece : pieces) {
      std::copy_n(from, piece.size(), piece.begin());
      from += std::ssize(piece);
    }
  });
}

void ProcessGroup::check() const {
  if (error_) std::rethrow_exception(error_);
}

}  // namespace hearth::distributed
