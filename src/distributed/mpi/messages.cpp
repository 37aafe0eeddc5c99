#include "distributed/mpi/messages.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/convert.h"
#include "base/error.h"
#include "base/threads.h"
#include "distributed/sum.h"

namespace hearth::distributed {
namespace {

/// Calls body(begin, count) for consecutive ranges of at most `max_count` elements.
template <typename Body>
void in_runs(int64_t count, int64_t max_count, Body body) {
  for (int64_t begin = 0; begin < count; begin += max_count) body(begin, std::min(max_count, count - begin));
}

template <typename T>
std::span<T> part(std::span<T> all, int64_t begin, int64_t count) {
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace

void MessageProcessGroup::barrier() {
  collective_ = "barrier";
  std::byte mine{0};
  arrived_.resize(static_cast<size_t>(size()));
  out_.clear();
  in_.clear();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == this->rank()) continue;
    out_.push_back({rank, {&mine, 1}});
    in_.push_back({rank, part(std::span(arrived_), rank, 1)});
  }
  exchange(out_, in_);
}

/// Reduce-scatter of numbers in dtype `wire`: `own` has one part of equal size for each rank, in rank order.
/// `sums` receives the sum over all ranks of the part for this rank, in sum_dtype(wire).
void MessageProcessGroup::sum_parts(std::span<const std::byte> own, std::span<std::byte> sums, DType wire) {
  const int64_t part_bytes = std::ssize(own) / size();
  arrived_.resize(own.size());
  out_.clear();
  in_.clear();
  std::vector<const std::byte*> from;
  for (int rank = 0; rank < size(); ++rank) {
    const bool here = rank == this->rank();
    const std::span<std::byte> arriving = part(std::span(arrived_), rank * part_bytes, part_bytes);
    from.push_back(here ? own.data() + rank * part_bytes : arriving.data());
    if (here) continue;
    out_.push_back({rank, part(own, rank * part_bytes, part_bytes)});
    in_.push_back({rank, arriving});
  }
  exchange(out_, in_);
  sum_in_order(wire, from, sums.data(), part_bytes / dtype_bytes(wire));
}

void MessageProcessGroup::all_reduce(std::span<float> data, DType wire) {
  const int64_t sum_bytes = dtype_bytes(sum_dtype(wire)), max_count = kMaxMessageBytes / sum_bytes;
  in_runs(std::ssize(data), max_count * size(), [&](int64_t begin, int64_t count) {
    // All parts have the same size, so the last one may extend past the end of the array; those sums are
    // never read.
    const int64_t part_count = (count + size() - 1) / size(), part_bytes = part_count * sum_bytes;
    brought_.resize(static_cast<size_t>(part_count * dtype_bytes(wire) * size()));
    sums_.resize(static_cast<size_t>(part_bytes * size()));
    collective_ = "all_reduce";
    cpu::store_f32(wire, data.data() + begin, brought_.data(), 0, count);
    const std::span<std::byte> own = part(std::span(sums_), rank() * part_bytes, part_bytes);
    sum_parts(brought_, own, wire);
    out_.clear();
    in_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      out_.push_back({rank, own});
      in_.push_back({rank, part(std::span(sums_), rank * part_bytes, part_bytes)});
    }
    exchange(out_, in_);
    cpu::load_f32(sum_dtype(wire), sums_.data(), 0, count, data.data() + begin);
  });
}

void MessageProcessGroup::reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) {
  HEARTH_CHECK(in.size() == out.size() * static_cast<size_t>(size()));
  collective_ = "reduce_scatter";
  in_runs(std::ssize(out), kMaxMessageBytes / dtype_bytes(wire), [&](int64_t begin, int64_t count) {
    brought_.resize(static_cast<size_t>(count * dtype_bytes(wire) * size()));
    sums_.resize(static_cast<size_t>(count * dtype_bytes(sum_dtype(wire))));
    for (int rank = 0; rank < size(); ++rank)
      cpu::store_f32(wire, in.data() + rank * std::ssize(out) + begin, brought_.data(), rank * count, count);
    sum_parts(brought_, sums_, wire);
    cpu::load_f32(sum_dtype(wire), sums_.data(), 0, count, out.data() + begin);
  });
}

void MessageProcessGroup::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  HEARTH_CHECK(out.size() == in.size() * static_cast<size_t>(size()));
  collective_ = "all_gather";
  std::memcpy(out.data() + rank() * std::ssize(in), in.data(), in.size());
  in_runs(std::ssize(in), kMaxMessageBytes, [&](int64_t begin, int64_t count) {
    out_.clear();
    in_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      out_.push_back({rank, part(in, begin, count)});
      in_.push_back({rank, part(out, rank * std::ssize(in) + begin, count)});
    }
    exchange(out_, in_);
  });
}

void MessageProcessGroup::broadcast(std::span<std::byte> data, int root) {
  collective_ = "broadcast";
  in_runs(std::ssize(data), kMaxMessageBytes, [&](int64_t begin, int64_t count) {
    out_.clear();
    in_.clear();
    if (rank() != root) in_.push_back({root, part(data, begin, count)});
    for (int rank = 0; rank < size() && this->rank() == root; ++rank) {
      if (rank != root) out_.push_back({rank, part(std::span<const std::byte>(data), begin, count)});
    }
    exchange(out_, in_);
  });
}

void MessageProcessGroup::send(std::span<const std::byte> data, int to) {
  collective_ = "send";
  in_runs(std::ssize(data), kMaxMessageBytes, [&](int64_t begin, int64_t count) {
    const Outgoing message{to, part(data, begin, count)};
    exchange({&message, 1}, {});
  });
}

void MessageProcessGroup::receive(std::span<std::byte> data, int from) {
  collective_ = "receive";
  in_runs(std::ssize(data), kMaxMessageBytes, [&](int64_t begin, int64_t count) {
    const Incoming message{from, part(data, begin, count)};
    exchange({}, {&message, 1});
  });
}

}  // namespace hearth::distributed
